package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// setupOfPair is a pair of command lines as the arithmetic sees it.
func setupOfPair(c commandPair) setup {
	s := setup{
		name: cmp.Or(c.decode.Served, c.prefill.Served, "(no model)"), loads: cmp.Or(c.decode.Model, c.prefill.Model),
		engine: c.pair.Engine, version: c.pair.Version, cost: c.transfer(),
		verdict: c.verdict,
	}
	if s.known = c.pair.Model != nil; s.known {
		s.model = *c.pair.Model
	}
	s.prefill, s.decode = c.prefill.caching(s), c.decode.caching(s)
	s.with = func(prefill, decode kvlayout.Layout) relaid {
		with := c
		with.prefill.layOut(prefill, &with.pair.Prefill)
		with.decode.layOut(decode, &with.pair.Decode)
		if !c.moverGiven {
			with.pair.Mover = kvlayout.MoverAuto // another layout may have another connector
		}
		out := relaid{setup: setupOfPair(with), problems: kvlayout.Compatible(with.pair)}
		if out.engine == kvlayout.VLLM && out.cost.Mover == string(kvlayout.MoverAgent) {
			out.unavailable = fmt.Sprintf("%s can't be run with mover Agent (%s)", out.engine, out.cost.Reason)
		}
		return out
	}
	return s
}

// layOut gives a command line another layout.
func (s *startedSide) layOut(l kvlayout.Layout, in *kvlayout.Side) {
	before := s.Layout.Defaulted()
	if l == before {
		return
	}
	if l.DP == before.DP {
		l.DPLocal = s.Layout.DPLocal
	}
	s.Layout, in.Layout = l, l
}

// caching is a command line as the arithmetic sees it.
func (s startedSide) caching(of setup) caching {
	l := s.Layout.Defaulted()
	c := caching{
		layout: l, kvType: cmp.Or(s.KVType, kvlayout.Auto), maxLength: s.MaxLength, image: s.Image,
		replicas: max(s.Copies, 1), experts: s.Experts != 0, cache: s.Cache(), memory: s.KVMemory,
	}
	ranks := l.TP * l.PP * max(s.PCP, 1)
	if s.Engine != kvlayout.SGLang { // whose data parallel ranks lie inside tp
		ranks *= l.DP
	}
	c.pods = max(s.Nodes, 1)
	if s.Engine != kvlayout.SGLang && l.DPLocal > 0 {
		c.pods = max(c.pods, (l.DP+l.DPLocal-1)/l.DPLocal)
	}
	c.gpus = (ranks + c.pods - 1) / c.pods
	if c.memory == 0 {
		c.blocks = int64(s.KVBlocks)
	}
	c.blockSize = s.BlockSize
	if p, err := of.model.Pool(c.cache); c.blockSize == 0 && of.known && err == nil {
		c.blockSize = p.BlockTokens
	}
	return c
}

// transfer is who moves the bytes of the pair and why.
func (c commandPair) transfer() Cost {
	mover, reason := kvlayout.ResolveMover(c.pair)
	switch {
	case c.moverGiven && strings.HasPrefix(reason, "transfer.mover is "):
		reason = "--mover asks for it"
	case strings.HasPrefix(reason, "transfer.mover is "):
		reason = "the command lines have its connector"
	}
	out := Cost{Mode: string(cmp.Or(c.pair.Mode, kvlayout.Write)), Mover: string(mover), Reason: reason, Backend: string(c.pair.Backend)}
	if mover == kvlayout.MoverAgent {
		out.Backend = "" // the agents choose it by where they run
	}
	return out
}

// standIn is a pool that takes the GPUs that the command lines take.
func (c commandPair) standIn() *v1alpha1.PDPool {
	role := func(s startedSide) v1alpha1.RoleSpec {
		of := s.caching(setup{})
		return v1alpha1.RoleSpec{
			Replicas: new(int32(of.replicas)),
			Layout:   v1alpha1.LayoutSpec{TP: int32(of.gpus), DP: int32(of.pods), DPLocal: 1},
		}
	}
	pool := &v1alpha1.PDPool{}
	pool.Name = "command-lines"
	pool.Spec.Model.Name = cmp.Or(c.decode.Model, "unknown")
	pool.Spec.Engine.Type = v1alpha1.EngineType(c.pair.Engine)
	pool.Spec.Prefill, pool.Spec.Decode = role(c.prefill), role(c.decode)
	return pool
}

// onGPUs gives the pair other GPUs: half of the instances are prefill.
func (c *commandPair) onGPUs(text string) error {
	if text == "" {
		return nil
	}
	instances, gpus, err := parseGPUs(text)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		side *startedSide
		in   *kvlayout.Side
		n    int
	}{{&c.prefill, &c.pair.Prefill, instances / 2}, {&c.decode, &c.pair.Decode, instances - instances/2}} {
		of := s.side.caching(setup{})
		if of.pods*of.gpus != gpus {
			s.side.Layout = kvlayout.Layout{TP: gpus}
			s.side.Nodes, s.side.PCP = 0, 0
			s.in.Layout, s.in.Nodes, s.in.PCP = s.side.Layout, 0, 0
		}
		s.side.Copies = s.n
	}
	return nil
}
