package cli

import (
	"slices"
	"strings"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// gap is a field of a side whose value could not be read. Without a role it is one of
// both sides, and without a field it may be any.
type gap struct {
	role  kvlayout.Role
	field string
}

// found are the problems that the rules find whatever stands in the gaps: those that
// a value in a gap could mend, or has brought about, are not told.
func found(pair kvlayout.Pair, gaps []gap) []kvlayout.Problem {
	if slices.ContainsFunc(gaps, func(g gap) bool { return g.field == "" }) {
		return nil
	}
	problems := kvlayout.Compatible(pair)
	for _, g := range gaps {
		for _, fill := range g.fillings() {
			if len(problems) == 0 {
				return nil
			}
			with := pair
			fill(&with)
			others := kvlayout.Compatible(with)
			problems = slices.DeleteFunc(problems, func(p kvlayout.Problem) bool { return !slices.Contains(others, p) })
		}
	}
	return problems
}

// fillings put values into the gap that differ in what rules ask of them.
func (g gap) fillings() []func(*kvlayout.Pair) {
	switch head, rest, _ := strings.Cut(g.field, "."); {
	case head == "layout":
		return g.numbers([]int{1, 2, 3, 8, 64}, func(s *kvlayout.Side, n int) {
			if at := degree(&s.Layout, rest); at != nil {
				*at = n
			}
		})
	case head == "transfer":
		return transfers(rest)
	case g.field == "engine.blockSize":
		return g.numbers([]int{0, 1, 16, 64, 2048}, func(s *kvlayout.Side, n int) { s.BlockSize = n })
	case g.field == "model.maxLength":
		return g.numbers([]int{0, 1, 1 << 20}, func(s *kvlayout.Side, n int) { s.MaxLength = n })
	case g.field == "engine.kvCacheMemory":
		return g.numbers([]int{0, 1 << 30, 1 << 40}, func(s *kvlayout.Side, n int) { s.KVMemory = int64(n) })
	case g.field == "engine.kvCacheType":
		types := []kvlayout.KVType{"", kvlayout.Auto, kvlayout.BF16, kvlayout.FP16, kvlayout.FP8}
		return g.numbers([]int{0, 1, 2, 3, 4}, func(s *kvlayout.Side, n int) { s.KVType = types[n] })
	case g.field == "model.name":
		return models()
	}
	return nil
}

// models are one that nobody knows and one with a geometry, of both sides.
func models() []func(*kvlayout.Pair) {
	known := kvlayout.Models()[:1]
	return []func(*kvlayout.Pair){
		func(p *kvlayout.Pair) {
			p.Model, p.Geometry, p.HasGeometry = nil, kvlayout.Geometry{}, false
			p.Prefill.Model, p.Decode.Model = "", ""
		},
		func(p *kvlayout.Pair) {
			p.Model, p.Prefill.Model, p.Decode.Model = &known[0], known[0].Name, known[0].Name
			p.Geometry, p.HasGeometry = known[0].Geometry()
		},
	}
}

// numbers fill a field of the sides that the gap is on.
func (g gap) numbers(values []int, set func(*kvlayout.Side, int)) []func(*kvlayout.Pair) {
	out := make([]func(*kvlayout.Pair), 0, len(values))
	for _, n := range values {
		out = append(out, func(p *kvlayout.Pair) {
			if g.role != kvlayout.Decode {
				set(&p.Prefill, n)
			}
			if g.role != kvlayout.Prefill {
				set(&p.Decode, n)
			}
		})
	}
	return out
}

// transfers are the ways of a transfer, of which one part may be known.
func transfers(part string) []func(*kvlayout.Pair) {
	var out []func(*kvlayout.Pair)
	for _, mode := range []kvlayout.Mode{kvlayout.Write, kvlayout.Read} {
		for _, mover := range []kvlayout.Mover{kvlayout.MoverEngine, kvlayout.MoverAgent} {
			for _, backend := range []kvlayout.Backend{"", kvlayout.RDMA, kvlayout.XGMI} {
				out = append(out, func(p *kvlayout.Pair) {
					if part == "" || part == "mode" {
						p.Mode = mode
					}
					if part == "" || part == "backend" {
						p.Backend = backend
					}
					if part == "" {
						p.Mover = mover
					}
				})
			}
		}
	}
	return out
}

// degree is the field of a layout that the spec calls name.
func degree(l *kvlayout.Layout, name string) *int {
	return map[string]*int{
		"tp": &l.TP, "pp": &l.PP, "dp": &l.DP, "dpLocal": &l.DPLocal, "dcp": &l.DCP, "interleave": &l.Interleave,
	}[name]
}

// gapsOf are what the notes on a pair of command lines say was not read.
func (c commandPair) gapsOf() []gap {
	var out []gap
	for _, n := range c.notes {
		if n.Kind == engine.Unread {
			out = append(out, gap{n.role, n.Field})
		}
	}
	return out
}

// apartDespite leaves out of why the command lines are no pair what a gap decides.
func apartDespite(apart []kvlayout.Problem, gaps []gap) []kvlayout.Problem {
	return slices.DeleteFunc(slices.Clone(apart), func(p kvlayout.Problem) bool {
		return slices.ContainsFunc(gaps, func(g gap) bool {
			return g.field == "" || g.field == "transfer" && (p.Rule == "role-said" || strings.HasPrefix(p.Field, "transfer.")) || g.field == p.Field
		})
	})
}

// label is a side in short. A degree that could not be read is "?", and so is a tp that
// is not said where flags were not read that may say it.
func (c commandPair) label(s startedSide, gaps []gap) string {
	side := s.Side()
	l := layoutLabel{Layout: s.Layout, ep: side.EP, pcp: side.PCP, unread: map[string]bool{}}
	for _, g := range gaps {
		switch name, ok := strings.CutPrefix(g.field, "layout."); {
		case g.role != "" && g.role != s.role:
		case ok:
			l.unread[name] = true
		case g.field == "" && s.Layout.TP == 0:
			l.unread["tp"] = true
		}
	}
	return l.String()
}
