package kvlayout

import (
	"slices"
	"strconv"
	"strings"
)

// Change gives a field of a pool a value, such as decode.layout.dcp the value 4.
type Change struct {
	Field string `json:"field"`
	Value string `json:"value"`
}

func (c Change) String() string { return c.Field + " to " + c.Value }

// way is one way to fix a problem: changes that are made together.
type way []Change

func (w way) String() string {
	parts := make([]string, 0, len(w))
	for _, c := range w {
		parts = append(parts, c.String())
	}
	return strings.Join(parts, " and ")
}

func set(field string, value int) Change { return Change{field, strconv.Itoa(value)} }

// useAgent and others change who moves the bytes, and how.
var (
	useAgent = Change{"transfer.mover", string(MoverAgent)}
	useWrite = Change{"transfer.mode", string(Write)}
)

// dcpWays are a role's dcp at n, both sides' at n, and none on either.
func (v *view) dcpWays(role Role, n int) []way {
	field, other := layoutField(role, "dcp"), layoutField(role.other(), "dcp")
	return []way{{set(field, n)}, {set(field, n), set(other, n)}, {set(field, 1), set(other, 1)}}
}

// tpWays are a role's tp at n or, as other rules may not take it, below, with the DCP
// that it has and without.
func (v *view) tpWays(role Role, n int) []way {
	if n < 1 {
		return nil
	}
	ways := v.tpWay(role, n)
	tries := 3
	for a := v.mostTP((n - 1) / v.tpFor(role, 1)); a > 0 && tries > 0; a-- {
		if v.tpFits(a) {
			ways = append(ways, v.tpWay(role, v.tpFor(role, a))...)
			tries--
		}
	}
	return ways
}

// tpWay is a role's tp at n alone, without DCP, and with the other side's at as much.
func (v *view) tpWay(role Role, n int) []way {
	own := set(tpField(role), n)
	return []way{
		{own},
		{own, set(layoutField(role, "dcp"), 1)},
		{own, set(tpField(role.other()), v.tpFor(role.other(), v.attentionOf(role, n)))},
	}
}

// attentionOf is the attention tp of a role's tp, at least 1.
func (v *view) attentionOf(role Role, tp int) int { return max(tp/(v.tpFor(role, 1)), 1) }

// equalTP are decode's tp at prefill's, and prefill's at decode's.
func (v *view) equalTP() []way {
	p, d, _ := v.unequalTP()
	here, there := v.tpFor(Decode, p), v.tpFor(Prefill, d)
	return []way{
		{set(tpField(Decode), here)},
		{set(tpField(Decode), here), set("decode.layout.dcp", 1)},
		{set(tpField(Prefill), there)},
	}
}

// mostWays is how many ways out a problem names.
const mostWays = 2

// chooseFixes ends each problem that has ways out with those that waysOut finds, or with
// what else its Fix says, or with the first of all. The first is its Set. Before are all
// problems of the pair. What is told for several refusals agrees, where that can be: all
// of it may be done at once.
func chooseFixes(p Pair, problems, before []Problem) {
	told := plan{p: p, before: before, after: p}
	chosen := make([][]way, len(problems))
	for i := range problems {
		of := &problems[i]
		ways := of.ways
		of.ways = nil
		if ways == nil {
			continue
		}
		all := *ways
		if p.NoAgent {
			all = slices.DeleteFunc(slices.Clone(all), func(w way) bool { return slices.Contains(w, useAgent) })
		}
		chosen[i] = told.agreeing(*of, waysOut(p, before, *of, all))
		clause, more := strings.CutPrefix(of.Fix, ", or ")
		switch {
		case len(chosen[i]) > 0:
		case more, len(all) == 0:
			of.Fix = clause
		default:
			of.told(all[:1])
		}
	}
	for i, good := range chosen {
		if len(good) > 0 {
			problems[i].told(told.settled(problems[i], good))
		}
	}
}

// plan is what has been told to change so far for refusals of a pair.
type plan struct {
	p      Pair
	before []Problem // of p
	made   []way
	after  Pair      // p with them
	left   []Problem // of after, as the last look found them
}

// agreeing puts first the way out that agrees with what is told already, and takes it into
// the plan. Where none does, it may be one together with a change that is told already.
func (t *plan) agreeing(of Problem, good []way) []way {
	if of.Severity != Refuse || len(good) == 0 {
		return good
	}
	if len(t.made) > 0 {
		_, _, t.left = resolve(t.after)
		if at := slices.IndexFunc(good, func(w way) bool { return leadsOut(t.after, t.left, of, w) }); at >= 0 {
			first := good[at]
			good = slices.Insert(slices.Delete(slices.Clone(good), at, at+1), 0, first)
		} else if joint := t.together(of); joint != nil {
			good = []way{joint}
		}
	}
	t.made = append(t.made, good[0])
	good[0].apply(&t.after)
	return good
}

// together is a way out of what is left of a problem in the changed pair, if anything,
// with what is told already that it needs to be one of the pair as it is; nil for none.
func (t *plan) together(of Problem) way {
	further := []way{nil}
	if at := slices.IndexFunc(t.left, func(l Problem) bool { return l.Rule == of.Rule && l.Field == of.Field }); at >= 0 {
		if t.left[at].ways == nil {
			return nil
		}
		further = *t.left[at].ways
	}
	for _, w := range further {
		if w != nil && !leadsOut(t.after, t.left, of, w) {
			continue
		}
		for _, made := range append([]way{nil}, t.made...) {
			if joint := made.before(w); leadsOut(t.p, t.before, of, joint) {
				return joint
			}
		}
	}
	return nil
}

// settled gives the first way the values that its fields have in the end, where that is a
// way out too, alone or with what else was set with them.
func (t *plan) settled(of Problem, good []way) []way {
	if of.Severity != Refuse {
		return good
	}
	last := t.last(good[0])
	joint := last
	for _, made := range t.made {
		if slices.ContainsFunc(last, func(c Change) bool { return slices.Contains(made, c) && !slices.Contains(good[0], c) }) {
			joint = joint.before(t.last(made))
		}
	}
	switch {
	case slices.Equal(last, good[0]):
		return good
	case leadsOut(t.p, t.before, of, last):
		joint = last
	case !joint.ends(t.p, of): // what it uncovers, the other problem's way does too
		return good
	}
	return append([]way{joint}, slices.DeleteFunc(slices.Clone(good[1:]), func(w way) bool { return w.partOf(joint) })...)
}

// last is the way with the values that its fields have in the end.
func (t *plan) last(w way) way {
	w = slices.Clone(w)
	for i, c := range w {
		for _, made := range t.made {
			if at := slices.IndexFunc(made, func(m Change) bool { return m.Field == c.Field }); at >= 0 {
				w[i] = made[at]
			}
		}
	}
	return w
}

func (w way) partOf(other way) bool {
	return !slices.ContainsFunc(w, func(c Change) bool { return !slices.Contains(other, c) })
}

// before is both ways, the later one where they set the same field.
func (w way) before(next way) way {
	first := slices.DeleteFunc(slices.Clone(w), func(c Change) bool { return next.sets(c.Field) })
	return append(first, next...)
}

func (w way) sets(field string) bool {
	return slices.ContainsFunc(w, func(c Change) bool { return c.Field == field })
}

// waysOut are the first of the ways that lead to no further refusal, each of other fields.
func waysOut(p Pair, before []Problem, of Problem, ways []way) []way {
	if len(ways) == 1 && of.Fix == "" {
		return ways // There is no choice.
	}
	var good []way
	for _, w := range ways {
		if w = w.changing(p); len(good) < mostWays && len(w) > 0 && !w.superfluous(good) && leadsOut(p, before, of, w) {
			good = append(good, w)
		}
	}
	return good
}

// told puts the ways before what else the problem's Fix says.
func (p *Problem) told(ways []way) {
	texts, sets := make([]string, 0, len(ways)), make([]string, 0, len(ways[0]))
	for _, w := range ways {
		texts = append(texts, w.String())
	}
	for _, c := range ways[0] {
		sets = append(sets, c.Field+"="+c.Value)
	}
	p.Fix, p.Set = "set "+strings.Join(texts, ", or ")+p.Fix, strings.Join(sets, ",")
}

// changing is the way without what the pair has already.
func (w way) changing(p Pair) way {
	p.Prefill.Layout, p.Decode.Layout = p.Prefill.Layout.Defaulted(), p.Decode.Layout.Defaulted()
	return slices.DeleteFunc(slices.Clone(w), func(c Change) bool {
		q := p
		return c.apply(&q) && q == p
	})
}

// superfluous says whether one of the ways sets no other fields than w, or all that w sets
// as w does.
func (w way) superfluous(beside []way) bool {
	return slices.ContainsFunc(beside, func(o way) bool {
		return w.partOf(o) || !slices.ContainsFunc(o, func(c Change) bool { return !w.sets(c.Field) })
	})
}

// leadsOut says whether the pair is rid of a problem by a change, and gets no refusal in
// its place.
func leadsOut(p Pair, before []Problem, of Problem, w way) bool {
	problems, ok := w.leaves(p, of)
	return ok && !slices.ContainsFunc(problems, func(after Problem) bool {
		return after.Severity == Refuse && !slices.ContainsFunc(before, func(o Problem) bool {
			return o.Severity == Refuse && o.Rule == after.Rule && o.Field == after.Field
		})
	})
}

// ends says whether the pair is rid of a problem by a change, whatever takes its place.
func (w way) ends(p Pair, of Problem) bool {
	_, ok := w.leaves(p, of)
	return ok
}

// leaves are the problems of the changed pair, and whether one of before is not among them.
func (w way) leaves(p Pair, of Problem) ([]Problem, bool) {
	if !w.apply(&p) {
		return nil, false
	}
	_, _, problems := resolve(p)
	return problems, !slices.ContainsFunc(problems, func(after Problem) bool {
		return after.Rule == of.Rule && after.Field == of.Field && after.Severity == of.Severity
	})
}

// apply makes the changes, up to the first that is not of what a pair has.
func (w way) apply(p *Pair) bool {
	for _, c := range w {
		if !c.apply(p) {
			return false
		}
	}
	return true
}

// apply makes the change, if it is of what a pair has.
func (c Change) apply(p *Pair) bool {
	switch c.Field {
	case "transfer.mover":
		p.Mover = Mover(c.Value)
		return true
	case "transfer.mode":
		p.Mode = Mode(c.Value)
		return true
	case "model.maxLength":
		for _, role := range []Role{Prefill, Decode} {
			if !(Change{string(role) + ".maxLength", c.Value}).apply(p) {
				return false
			}
		}
		return true
	}
	role, field, _ := strings.Cut(c.Field, ".")
	side := &p.Prefill
	if role == string(Decode) {
		side = &p.Decode
	}
	l := &side.Layout
	into, ok := map[string]*int{
		"layout.tp": &l.TP, "layout.dp": &l.DP, "layout.dpLocal": &l.DPLocal, "layout.dcp": &l.DCP, "layout.interleave": &l.Interleave,
		"blockSize": &side.BlockSize, "maxLength": &side.MaxLength, "replicas": &side.Replicas,
	}[field]
	n, err := strconv.Atoi(c.Value)
	if ok && err == nil {
		*into = n
	}
	return ok && err == nil
}
