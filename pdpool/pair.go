package pdpool

import (
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// convLayout is the variable that says how vLLM lays the state of convolutions out.
const convLayout = "VLLM_SSM_CONV_STATE_LAYOUT"

// Pair is what the rules look at: what instances know of each other when they pair,
// and what the model, the images and the user's arguments say beyond that.
func (r *Resolved) Pair() kvlayout.Pair {
	p := r.wire()
	p.Model = r.KnownModel
	if b := kvlayout.Backend(r.Backend); b == kvlayout.RDMA || b == kvlayout.XGMI {
		p.Backend = b
	}
	r.tell(&p.Prefill, &r.Prefill)
	r.tell(&p.Decode, &r.Decode)
	return p
}

// tell adds to a side what its launch says. The Simulator takes arguments of its own,
// and starts however little its cache holds.
func (r *Resolved) tell(to *kvlayout.Side, s *Side) {
	if r.Engine == kvlayout.Simulator {
		return
	}
	to.MaxLength, to.KVMemory, to.Replicas = s.MaxLength, r.KVMemory, s.Replicas
	if !r.versionGiven {
		to.Version = engine.VersionOfEngine(r.Engine, s.Image)
	}
	in := &s.said
	to.Revision, to.EP, to.PCP, to.KVBlocks = in.Revision, in.Experts, in.PCP, int64(in.KVBlocks)
	to.Attention, to.Speculation, to.BatchTokens = in.Attention, in.Speculation.Method, in.BatchTokens
	cache := in.Cache()
	to.OwnDrafts, to.NoHybrid, to.NoPrefixCaching = cache.OwnDrafts, cache.NoHybrid, cache.NoPrefixCaching
	to.ConvLayout, _ = in.Variable(convLayout)
}

// read is what a role's arguments and environment say; nothing where there are none.
func (r *Resolved) read(s *Side) engine.Instance {
	if r.Engine == kvlayout.Simulator || len(s.Args)+len(s.Env) == 0 {
		return engine.Instance{Engine: r.Engine}
	}
	env := make([]engine.EnvVar, 0, len(s.Env))
	for _, e := range s.Env {
		if e.ValueFrom == nil {
			env = append(env, engine.EnvVar{Name: e.Name, Value: e.Value})
		}
	}
	in, _ := engine.Launch{Engine: r.Engine, Version: r.Version, Args: s.Args, Env: env}.Read()
	return in
}
