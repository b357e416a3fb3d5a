package kvlayout

// elementBytes is the size of a value of the model's own type, bf16 or fp16.
const elementBytes = 2

// FitsTP reports whether tp ranks can split the state evenly. The B and C groups
// of Mamba2 either divide by tp or are fewer than its ranks, which then hold
// copies.
func (s State) FitsTP(tp int) bool {
	if tp < 1 || s.Heads%tp != 0 {
		return false
	}
	if s.Kind == Mamba2 {
		return s.ConvParts[0]%tp == 0 && (s.Groups%tp == 0 || (s.Groups > 0 && s.Groups < tp))
	}
	for _, part := range s.ConvParts {
		if part%tp != 0 {
			return false
		}
	}
	return true
}

// ConvPartBytes returns, for each projection, the bytes that a rank of tp keeps of
// it, with drafts tokens of speculation. The parts lie behind one another where
// the convolution is stored by dimension (layout DS), which is what transfers
// between unequal tp need.
func (s State) ConvPartBytes(tp, drafts int) []int64 {
	bytes := make([]int64, 0, len(s.ConvParts))
	for i, width := range s.ConvParts {
		if s.Kind == Mamba2 && i > 0 && s.Groups > 0 && s.Groups%tp != 0 {
			// vLLM makes one group per rank of groups that don't divide
			// (MambaStateShapeCalculator.extra_groups_for_head_shards).
			width = width / s.Groups * tp
		}
		bytes = append(bytes, mulSat(int64(ceilDiv(width, tp)), int64(s.ConvRows+drafts), elementBytes))
	}
	return bytes
}

// MatrixBytes is what a rank of tp keeps of the matrices, in bytes.
func (s State) MatrixBytes(tp int) int64 {
	return mulSat(int64(ceilDiv(s.Heads, tp)), int64(s.Rows), int64(s.Columns), int64(s.ValueBytes))
}

// Bytes is the size of one layer's state of one sequence on a rank of tp, before
// padding: convolution, then matrices (vLLM's MambaSpec.page_size_bytes of the
// shapes of mamba2_state_shape, gated_delta_net_state_shape and kda_state_shape).
func (s State) Bytes(tp, drafts int) int64 {
	sum := s.MatrixBytes(max(tp, 1))
	for _, part := range s.ConvPartBytes(max(tp, 1), drafts) {
		sum = addSat(sum, part)
	}
	return sum
}

// stateSlots is the number of states that one sequence occupies in vLLM: with prefix
// caching the running one and the one of the last block boundary, else one; and one per
// draft token (MambaSpec.max_memory_usage_bytes). With prefix caching Mamba2 keeps one
// more, which takes the state at the end of a cached prompt out of the middle of a step. A
// gated delta net does so only with FlashInfer, which is not on AMD GPUs, and KDA only with
// the fused kernel, which vLLM does not prefer there: neither counts.
func (c Cache) stateSlots(k StateKind) int {
	drafts := max(c.DraftTokens, 0)
	switch {
	case c.NoPrefixCaching:
		return 1 + drafts
	case k == Mamba2 && Supports(c.Version, featureMambaCheckpoints) != Lacks:
		return 3 + drafts
	}
	return 2 + drafts
}
