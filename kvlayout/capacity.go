package kvlayout

// Capacity is how much an engine instance (a replica) holds.
type Capacity struct {
	Pool   Pool  `json:"pool"`
	Blocks int64 `json:"blocks"` // of each rank
	// BytesPerToken is what a further token of a long sequence costs on one rank, in
	// bytes; with DCP a rank's share.
	BytesPerToken int64 `json:"bytesPerTokenPerRank"`
	// Tokens is the KV cache of the replica in tokens, over its DP ranks.
	Tokens int64 `json:"tokensPerReplica"`

	// States is the number of recurrent states of each rank that SGLang keeps apart; 0
	// for vLLM, whose states take blocks.
	States int64 `json:"statesPerRank,omitempty"`

	ranks int64 // DP ranks
}

// Capacity returns what the replica holds with memory bytes of KV cache per rank.
// The error is a *PoolError.
func (m Model) Capacity(c Cache, memory int64) (Capacity, error) {
	p, err := m.Pool(c)
	if err != nil {
		return Capacity{}, err
	}
	held := m.capacity(c, p, p.Blocks(memory))
	held.States = p.states.of(memory)
	return held, nil
}

// CapacityOfBlocks is Capacity from the number of blocks per rank, as the engine
// logs or overrides it.
func (m Model) CapacityOfBlocks(c Cache, blocks int64) (Capacity, error) {
	p, err := m.Pool(c)
	if err != nil {
		return Capacity{}, err
	}
	held := m.capacity(c, p, blocks)
	held.States = p.states.beside(mulSat(blocks, p.BlockBytes))
	return held, nil
}

func (m Model) capacity(c Cache, p Pool, blocks int64) Capacity {
	ranks := int64(c.Layout.Defaulted().DP)
	return Capacity{
		Pool: p, Blocks: blocks, BytesPerToken: m.TokenBytes(c),
		Tokens: mulSat(p.Tokens(blocks), ranks), ranks: ranks,
	}
}

// Requests is the number of sequences of length tokens that the replica holds at
// once.
func (c Capacity) Requests(length int) int64 {
	n := c.Pool.Requests(c.Blocks, length)
	if c.Pool.states.bytes > 0 {
		n = min(n, c.States/c.Pool.states.each)
	}
	return mulSat(n, max(c.ranks, 1))
}

// Memory is what the blocks, and states kept apart, take of each rank, in bytes.
func (c Capacity) Memory() int64 {
	return addSat(mulSat(c.Blocks, c.Pool.BlockBytes), c.Pool.states.memory(c.States))
}

// Layouts returns the layouts of one instance on gpus GPUs that the model's heads
// allow and an engine starts with, without pipeline stages: TP times DP is the
// number of GPUs (for SGLang, whose DP ranks lie inside TP, TP is), models without
// experts take no DP, and DCP divides TP. DCP above 1 is listed with interleave 1
// and only where it can deal tokens: MLA, or more ranks than KV heads, and no
// windows. They are ordered by DP, then DCP.
//
// With Capacity they say what another layout would give. A rank's KV memory is the
// same only where the weights' share is, that is, at equal TP times EP.
func (m Model) Layouts(e Engine, gpus int) []Layout {
	var all []Layout
	if gpus < 1 || gpus > maxDegree {
		return nil
	}
	for dp := 1; dp <= gpus; dp++ {
		attentionTP := gpus / dp
		if gpus%dp != 0 || (dp > 1 && m.Experts == 0) || !m.FitsTP(attentionTP) {
			continue
		}
		l := Layout{TP: attentionTP, PP: 1, DP: dp, DPLocal: dp, DCP: 1, Interleave: 1}
		if e == SGLang {
			l.TP = gpus
		}
		for dcp := 1; dcp <= attentionTP; dcp++ {
			if attentionTP%dcp == 0 && m.dealsTo(attentionTP, dcp) {
				l.DCP = dcp
				all = append(all, l)
			}
		}
	}
	return all
}

// dealsTo says whether dcp of tp ranks can share a sequence (rule dcp-gqa for
// head-sharded layers).
func (m Model) dealsTo(tp, dcp int) bool {
	if dcp == 1 {
		return true
	}
	if m.Windowed() {
		return false
	}
	for _, g := range m.Groups {
		if g.Kind == Recurrent || g.Attention.Kind == MLA {
			continue
		}
		if !dealsCopies(tp, dcp, g.Attention.KVHeads, m.AttentionHeads) {
			return false
		}
	}
	return true
}

// dealsCopies says whether two or more dcp ranks can share the tokens of KV heads, which
// takes that each of them holds a copy of the same head, and as many of its query heads.
func dealsCopies(tp, dcp, kvHeads, queryHeads int) bool {
	return dcp <= tp/kvHeads && queryHeads/kvHeads%dcp == 0
}
