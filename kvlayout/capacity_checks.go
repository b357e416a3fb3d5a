package kvlayout

import (
	"fmt"
	"sort"
)

// capacity is what a replica of the side holds, and whether that is known.
func (v *view) capacity(role Role, l Layout) (Capacity, bool) {
	s := v.side(role)
	m, ok := v.model()
	if !ok || (s.KVMemory < 1 && s.KVBlocks < 1) {
		return Capacity{}, false
	}
	c := v.cache(role)
	c.Layout = l
	var held Capacity
	var err error
	if s.KVBlocks > 0 {
		held, err = m.CapacityOfBlocks(c, s.KVBlocks)
	} else {
		held, err = m.Capacity(c, s.KVMemory)
	}
	return held, err == nil
}

func capacityLength(v *view, role Role) []finding {
	length := v.side(role).MaxLength
	held, known := v.capacity(role, v.layout(role))
	if v.Engine == Simulator || !known || length < 1 || held.Requests(length) > 0 { // it starts with any cache
		return nil
	}
	fix := fmt.Sprintf("lower model.maxLength (or %s.maxLength where that is set)", role)
	if n := sort.Search(length, func(n int) bool { return held.Requests(n+1) < 1 }); n > 0 {
		fix = fmt.Sprintf("lower model.maxLength (or %s.maxLength where that is set) to %d", role, n)
	}
	fix += ", or raise engine.kvCacheMemory"
	if dcp, _ := v.widerDCP(); role == Decode && dcp > 1 {
		fix += fmt.Sprintf(" or decode.layout.dcp to %d", dcp)
	}
	return []finding{{field: "model.maxLength", message: held.lacking(length, role), fix: fix}}
}

// lacking says what a sequence of length tokens takes that the replica has not.
func (c Capacity) lacking(length int, role Role) string {
	need := c.Pool.RequestBlocks(length)
	message := fmt.Sprintf("a sequence of %d tokens takes %d blocks of a rank of %s, which has %d", length, need, role, c.Blocks)
	switch states := c.Pool.states; {
	case c.Blocks < need:
	case states.bytes > 0 && c.States < states.each:
		message = fmt.Sprintf("a sequence takes %d recurrent states of a rank of %s, which has %d", states.each, role, c.States)
	default:
		message += ", one of them vLLM's null block, which no sequence gets"
	}
	return message
}

func capacityInflight(v *view) []finding {
	load := v.Load
	held, known := v.capacity(Decode, v.decode)
	if !known || load.Concurrency < 1 || load.Input+load.Output < 1 {
		return nil
	}
	replicas := int64(max(v.Decode.Replicas, 1))
	need := mulSat(int64(load.Concurrency), addSat(int64(load.Input), int64(load.Output)))
	have := mulSat(held.Tokens, replicas)
	if need <= have {
		return nil
	}
	fix := fmt.Sprintf("raise decode.replicas to %d", ceilDiv64(need, max(held.Tokens, 1)))
	switch dcp, tokens := v.widerDCP(); {
	case dcp == 0 || tokens <= held.Tokens:
	case mulSat(tokens, replicas) >= need:
		fix = fmt.Sprintf("set decode.layout.dcp to %d, which holds %d tokens, or %s", dcp, mulSat(tokens, replicas), fix)
	default:
		fix = fmt.Sprintf("%s, or to %d with decode.layout.dcp %d", fix, ceilDiv64(need, tokens), dcp)
	}
	return []finding{{
		field: "decode.layout", message: fmt.Sprintf("%d requests of %d and %d tokens are %d tokens in flight, and decode holds %d",
			load.Concurrency, load.Input, load.Output, need, have),
		fix: fix,
	}}
}

// widerDCP is the largest dcp of decode's TP group that the model allows, and the
// tokens that a replica then holds.
func (v *view) widerDCP() (dcp int, tokens int64) {
	m, ok := v.model()
	l := v.decode
	if !ok || l.DCP > 1 || l.TP > maxDegree || v.prefill.DCP > 1 || v.headSharded() {
		return 0, 0
	}
	l.DCP = largest(v.attentionTP(Decode), func(n int) bool { return v.attentionTP(Decode)%n == 0 && m.dealsTo(l.TP, n) })
	held, ok := v.capacity(Decode, l)
	if !ok || l.DCP == 1 {
		return 0, 0
	}
	return l.DCP, held.Tokens
}
