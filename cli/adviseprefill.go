package cli

import (
	"cmp"
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// varyPrefill tries other prefill layouts on the same GPUs where that of the manifest is
// what stands in the way.
func (a *Advice) varyPrefill(s setup, decode []kvlayout.Layout, memory int64) {
	why := s.prefillLacks(s.prefill, a.Load)
	if why == "" && len(a.Candidates) == 0 {
		why = "with " + layoutText(s.prefill.layout) + " every decode layout is refused"
	}
	if why == "" {
		return
	}
	var layouts []kvlayout.Layout
	for _, l := range s.model.Layouts(s.engine, s.prefill.pods*s.prefill.gpus) {
		with := s.with(l, s.decode.layout).prefill
		with.memory = s.prefillMemory()
		if l.DCP == 1 && s.prefillLacks(with, a.Load) == "" {
			layouts = append(layouts, l)
		}
	}
	varied := Advice{Load: a.Load}
	if varied.try(s, layouts, decode, memory); len(varied.Candidates) == 0 {
		a.PrefillLacks = why
		return
	}
	a.Candidates, a.Refused, a.PrefillVaries = varied.Candidates, varied.Refused, why
}

// prefillMemory is that of a GPU with the layout of the manifest; 0 where it is not known.
func (s setup) prefillMemory() int64 {
	held, err := s.prefill.capacity(s.model)
	if err != nil {
		return 0
	}
	return held.Memory()
}

// prefillLacks says why prefill can't take a prompt of the load; "" where it can, or where
// that is not known. It holds a prompt until decode has it, so that it needs room for one.
func (s setup) prefillLacks(c caching, load Load) string {
	if w := weightsOf(s.loads); w.beyond(c) {
		return fmt.Sprintf("with %s the weights alone take %s GB of a GPU", layoutText(c.layout), grouped(w.share(c)/1e9))
	}
	held, err := c.capacity(s.model)
	if err != nil || held.Requests(load.In) > 0 {
		return ""
	}
	tokens, of := held.Tokens, ""
	if dp := int64(c.layout.DP); dp > 1 {
		tokens, of = tokens/dp, " in a data parallel rank"
	}
	return fmt.Sprintf("%s holds %s tokens of KV cache%s and a prompt of the load has %s", layoutText(c.layout), grouped(tokens), of, grouped(load.In))
}

// rather ranks what prefill layouts make of one decode layout: those that are admitted and
// can be run first, then by warnings, then by what a prompt writes.
func rather(a, b Candidate) int {
	rank := func(c Candidate) int {
		switch {
		case c.refused():
			return 2
		case c.Unavailable != "":
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.Problems), len(b.Problems)), cmp.Compare(a.PromptBytes, b.PromptBytes))
}

// prefillLine says what becomes of prefill.
func (p *page) prefillLine(a Advice) {
	switch {
	case a.PrefillVaries != "":
		p.printf("prefill varies too, as %s\n", a.PrefillVaries)
	case a.PrefillLacks != "":
		p.printf("%s, and no other prefill layout on its GPUs does better\n", a.PrefillLacks)
	default:
		p.printf("prefill stays %s: what decode holds does not depend on it\n", layoutText(a.Now.Prefill))
	}
}
