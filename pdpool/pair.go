package pdpool

import (
	"slices"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// Pair is what the rules look at: what instances know of each other when they pair,
// and what the model, the images and the user's arguments say beyond that.
func (r *Resolved) Pair() kvlayout.Pair {
	p := kvlayout.Pair{
		Engine: r.Engine, Version: r.Version, Mover: r.Mover, Mode: r.Mode,
		Geometry: r.Geometry, HasGeometry: r.HasGeometry, Model: r.KnownModel,
	}
	p.Geometry.Model = r.Model
	if b := kvlayout.Backend(r.Backend); b == kvlayout.RDMA || b == kvlayout.XGMI {
		p.Backend = b
	}
	for _, s := range []struct {
		into *kvlayout.Side
		of   *Side
	}{{&p.Prefill, &r.Prefill}, {&p.Decode, &r.Decode}} {
		side := r.Instance(s.of.Role).Side()
		side.DevicesPerNode, side.Replicas = r.DevicesPerNode, s.of.Replicas
		*s.into = side
	}
	return p
}

// Instance is what an instance of a role is started as: what the spec says, and the
// user's arguments and variables where they are the user's to say.
func (r *Resolved) Instance(role kvlayout.Role) engine.Instance {
	s := r.Side(role)
	in := s.said
	in.Engine, in.Role, in.Model, in.Served, in.Image = r.Engine, role, r.Model, r.Served, s.Image
	in.Layout, in.BlockSize, in.KVType, in.MaxLength, in.KVMemory = s.Layout, s.BlockSize, s.KVType, s.MaxLength, r.KVMemory
	in.Version = r.versionOf(s)
	return in
}

// versionOf is the engine's version on a side: what the spec says, else its image.
func (r *Resolved) versionOf(s *Side) string {
	switch {
	case r.Engine == kvlayout.Simulator:
		return ""
	case r.versionGiven:
		return r.Version
	}
	return engine.VersionOf(r.Engine, s.Image)
}

// read is what a role's arguments and environment say.
func (r *Resolved) read(s *Side) engine.Instance {
	env := slices.Clone(engine.StateEnv(r.Engine, r.Model))
	if r.Engine == kvlayout.Simulator || len(s.Args)+len(s.Env) == 0 {
		return engine.Instance{Env: env}
	}
	for _, e := range s.Env {
		v := engine.EnvVar{Name: e.Name, Value: e.Value}
		if e.ValueFrom != nil {
			v.Field = "elsewhere"
		}
		env = append(env, v)
	}
	in, _ := engine.Launch{Engine: r.Engine, Version: r.versionOf(s), Args: words(s.Args), Env: env}.Read()
	return in
}
