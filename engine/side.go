package engine

import (
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// ConvLayout is the variable that says how vLLM lays the state of convolutions out, and
// ConvByDimension the value of it with which its connectors move one: unset, it is the
// other way round.
const (
	ConvLayout      = "VLLM_SSM_CONV_STATE_LAYOUT"
	ConvByDimension = "DS"
	convByRow       = "SD"
)

// Side is the instance as the rules see it: of a pool and of a command line alike. The
// Simulator takes arguments of its own, so that of it only what the operator renders
// counts.
func (i Instance) Side() kvlayout.Side {
	s := kvlayout.Side{
		Layout: i.Layout, BlockSize: i.BlockSize, KVType: i.KVType, Model: i.Model,
		MaxLength: i.MaxLength, KVMemory: i.KVMemory,
	}
	if i.Engine == kvlayout.Simulator {
		return s
	}
	s.Revision, s.Version = i.Revision, i.Version
	s.EP, s.PCP, s.Nodes, s.AllToAll = i.Experts, i.PCP, i.Nodes, i.AllToAll
	s.Attention, s.ModelType = i.Attention, i.ModelType
	s.Speculation, s.OwnDrafts, s.DraftTokens = i.speculation(), i.ownDrafts(), i.Speculation.Tokens
	s.ConvLayout, s.MambaAlign = i.convLayout(), i.StatesAtBlocks
	s.KVFormat = i.KVFormat
	s.NoHybrid, s.NoPrefixCaching = i.HybridCacheOff || i.chunksOff(), i.PrefixCache == Off
	s.BatchTokens, s.KVBlocks = i.BatchTokens, int64(i.KVBlocks)
	s.WindowRatio, s.StateRatio, s.States, s.Sequences = i.WindowRatio, i.StateRatio, i.States, i.Sequences
	return s
}

// Cache is how the instance caches its model.
func (i Instance) Cache() kvlayout.Cache { return i.Side().Cache(i.Engine) }

// chunksOff says that the environment turns vLLM's hybrid manager off for a model with
// chunked attention; for others the variable does nothing.
func (i Instance) chunksOff() bool {
	m, known := KnownModel(i.Model, i.Served)
	if i.Engine != kvlayout.VLLM || !known || !slices.ContainsFunc(m.Groups, func(g kvlayout.LayerGroup) bool { return g.Kind == kvlayout.ChunkedLocal }) {
		return false
	}
	for _, e := range slices.Backward(i.Env) {
		if e.Name == "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE" {
			return e.Field == "" && e.Value == "0"
		}
	}
	return false
}

// speculation names the method. vLLM finds out by the model where it is not said, and
// takes a model that it does not know as one for a draft; SGLang does not speculate
// without a method.
func (i Instance) speculation() string {
	switch s := i.Speculation; {
	case s.Method != "" || s.Model == "" || i.Engine == kvlayout.SGLang:
		return s.Method
	case strings.Contains(strings.ToLower(s.Model), "dspark"):
		return "dspark"
	}
	return "draft_model"
}

// ownDrafts says that the model's own draft layers speculate: vLLM's methods that
// end in mtp, and SGLang's NEXTN and EAGLE without a draft model.
func (i Instance) ownDrafts() bool {
	s := i.Speculation
	if i.Engine == kvlayout.SGLang {
		return s.Model == "" && (strings.EqualFold(s.Method, "NEXTN") || strings.EqualFold(s.Method, "EAGLE"))
	}
	return strings.HasSuffix(s.Method, "mtp")
}

// convLayout is "" where the variable is set to what is not known here.
func (i Instance) convLayout() string {
	if i.Engine != kvlayout.VLLM {
		return ""
	}
	for _, e := range slices.Backward(i.Env) {
		switch {
		case e.Name != ConvLayout:
		case e.Field != "" || strings.Contains(e.Value, "$"):
			return ""
		case e.Value != "":
			return e.Value
		default:
			return convByRow
		}
	}
	return convByRow
}

// StateEnv is what the operator sets for the recurrent states of a model: vLLM's
// connectors move them in one order only, which is not its own choice. It is nothing
// for models that are known to have none.
func StateEnv(kind kvlayout.Engine, model string) []EnvVar {
	if m, known := kvlayout.LookupModel(model); kind != kvlayout.VLLM || known && !m.HasState() {
		return nil
	}
	return []EnvVar{{Name: ConvLayout, Value: ConvByDimension}}
}
