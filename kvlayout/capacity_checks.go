package kvlayout

import (
	"fmt"
	"slices"
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
	fd := finding{field: string(role) + ".maxLength", message: held.lacking(length, role), fix: "raise engine.kvCacheMemory"}
	most := v.longestHeld(role)
	if v.side(role.other()).MaxLength == length { // of the model, for both
		fd.field, most = "model.maxLength", min(most, v.longestHeld(role.other()))
	}
	if most > 0 {
		fd.ways = []way{{set(fd.field, most)}}
	}
	if dcp, _ := v.widerDCP(); role == Decode && dcp > 1 {
		fd.ways = append(fd.ways, v.dealWays(set("decode.layout.dcp", dcp))...)
	}
	if len(fd.ways) > 0 {
		fd.fix = ", or " + fd.fix
	}
	return []finding{fd}
}

// longestHeld is the longest sequence that a replica of the side holds, at most the longest
// that it takes, in tokens.
func (v *view) longestHeld(role Role) int {
	most := v.side(role).MaxLength
	held, known := v.capacity(role, v.layout(role))
	if !known {
		return most
	}
	return sort.Search(most, func(n int) bool { return held.Requests(n+1) < 1 })
}

// dealWays are changes that give decode its DCP, as they are, with the interleave that an
// indexer takes, and with the agent, which deals where the engine does not.
func (v *view) dealWays(deal ...Change) []way {
	whole := append(slices.Clone(deal), set("decode.layout.interleave", max(v.blockTokens(Decode), 1)))
	ways := []way{deal, whole}
	if v.vllmConnector() {
		ways = append(ways, append(slices.Clone(deal), useAgent), append(slices.Clone(whole), useAgent))
	}
	return ways
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
	fd := finding{
		field: "decode.layout", message: fmt.Sprintf("%d requests of %d and %d tokens are %d tokens in flight, and decode holds %d",
			load.Concurrency, load.Input, load.Output, need, have),
		fix: fmt.Sprintf("raise decode.replicas to %d", ceilDiv64(need, max(held.Tokens, 1))),
	}
	if dcp, tokens := v.widerDCP(); dcp > 1 && tokens > held.Tokens {
		deal := []Change{set("decode.layout.dcp", dcp)}
		if mulSat(tokens, replicas) < need {
			deal = slices.Insert(deal, 0, set("decode.replicas", int(ceilDiv64(need, tokens))))
		}
		fd.message += fmt.Sprintf(", or %d with dcp %d", mulSat(tokens, replicas), dcp)
		fd.ways, fd.fix = v.dealWays(deal...), ", or "+fd.fix
	}
	return []finding{fd}
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
