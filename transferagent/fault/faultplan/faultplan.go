// Package faultplan puts faults into the plans of copies. It is apart from the
// names of the faults, so that an engine can take those without the layouts of
// the agent.
package faultplan

import (
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/fault"
)

// Planner makes the copies of one layer from one writer to one reader, as
// kvlayout.WritePlan does.
type Planner = func(dst []kvlayout.Copy, s kvlayout.WriteSpec) ([]kvlayout.Copy, error)

// Break returns next with the faults put in. Specs that next refuses are refused
// with its error.
//
//   - copies-off: nothing is copied.
//   - interleave-off: a reader gets the rows of the DCP rank before it, so each
//     group lands one rank further.
//   - all-to-rank-0: the reader of DCP rank 0 gets the rows of the other ranks on
//     top of each other, the others get none.
//
// Where the tokens are not dealt (a target without DCP, or equal DCP) there is no
// other rank for a group to land on; nothing is copied then, since a fault that
// changes nothing would pass for a check that sees it. The same holds for
// all-to-rank-0 on a prompt so short that all of it belongs to rank 0.
func Break(next Planner, f fault.Faults) Planner {
	switch f.Plan() {
	case fault.CopiesOff:
		return checked(next, func(dst []kvlayout.Copy, _ kvlayout.WriteSpec) ([]kvlayout.Copy, error) { return dst, nil })
	case fault.InterleaveOff:
		return checked(next, func(dst []kvlayout.Copy, s kvlayout.WriteSpec) ([]kvlayout.Copy, error) {
			if !dealt(s) {
				return dst, nil
			}
			s.TargetRank = (s.TargetRank + s.Placement.DCP - 1) % s.Placement.DCP
			return next(dst, s)
		})
	case fault.AllToRank0:
		return checked(next, func(dst []kvlayout.Copy, s kvlayout.WriteSpec) ([]kvlayout.Copy, error) {
			if !dealt(s) || s.TargetRank != 0 {
				return dst, nil
			}
			for other := 1; other < s.Placement.DCP; other++ {
				s.TargetRank = other
				var err error
				if dst, err = next(dst, s); err != nil {
					return dst, err
				}
			}
			return dst, nil
		})
	}
	return next
}

// checked plans by broken what next can plan, and returns dst as it was on errors.
func checked(next, broken Planner) Planner {
	return func(dst []kvlayout.Copy, s kvlayout.WriteSpec) ([]kvlayout.Copy, error) {
		mark := len(dst)
		if _, err := next(nil, s); err != nil {
			return dst, err
		}
		out, err := broken(dst, s)
		if err != nil {
			return out[:mark], err
		}
		return out, nil
	}
}

// dealt reports whether the tokens of the spec are dealt to several DCP ranks.
func dealt(s kvlayout.WriteSpec) bool { return s.Placement.DCP > 1 && s.SourceDCP <= 1 }
