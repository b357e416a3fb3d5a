package cli

import (
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// complete adds to a pair what its command lines say beyond layouts.
func complete(pair *kvlayout.Pair, prefill, decode engine.Instance) {
	// A path is often served under the name of the model in it.
	for _, name := range []string{decode.Model, decode.Served} {
		if m, ok := kvlayout.LookupModel(name); ok && pair.Model == nil {
			pair.Model = &m
		}
	}
	if pair.Backend == "" && prefill.Backend == decode.Backend {
		pair.Backend = kvlayout.Backend(decode.Backend)
	}
	for _, s := range []struct {
		side *kvlayout.Side
		in   engine.Instance
	}{{&pair.Prefill, prefill}, {&pair.Decode, decode}} {
		facts := sideOf(s.in)
		// What the engine package says of a side counts before what is read here.
		facts.Layout, facts.BlockSize = s.side.Layout, s.side.BlockSize
		facts.KVType, facts.DevicesPerNode = s.side.KVType, s.side.DevicesPerNode
		*s.side = facts
	}
}

// sideOf is all that the rules need to know of an instance.
func sideOf(in engine.Instance) kvlayout.Side {
	cache := in.Cache()
	s := in.Side()
	s.Model, s.Revision, s.Version = in.Model, in.Revision, in.Version
	s.EP, s.PCP, s.Nodes = in.Experts, in.PCP, in.Nodes
	s.Attention = in.Attention
	s.Speculation, s.OwnDrafts = speculation(in.Speculation), cache.OwnDrafts
	s.ConvLayout, _ = in.Variable("VLLM_SSM_CONV_STATE_LAYOUT")
	s.NoHybrid, s.NoPrefixCaching = in.HybridCacheOff, in.PrefixCache == engine.Off
	s.BatchTokens, s.MaxLength = in.BatchTokens, in.MaxLength
	s.KVMemory, s.KVBlocks = in.KVMemory, int64(in.KVBlocks)
	s.MambaAlign = flagValue(in, "mamba-cache-mode") == "align"
	return s
}

// speculation names the method; one that names a model alone uses a draft model.
func speculation(s engine.Speculation) string {
	if s.Method == "" && s.Model != "" {
		return "draft_model"
	}
	return s.Method
}

// flagValue is the value of a flag that no field of an instance stands for.
func flagValue(in engine.Instance, name string) string {
	flags, _ := engine.ParseArgsOf(in.Engine, in.Rest)
	f, ok := flags.Last(name)
	if !ok || len(f.Values) == 0 {
		return ""
	}
	return f.Values[0]
}
