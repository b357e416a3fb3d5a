package session

import (
	"errors"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// refusal is why this pod does not pair with a peer, nil when it does. Both sides
// decide by the same rules.
func (m *machine) refusal(at Peer, peer *moriio.Agent) *ending {
	self := &m.cfg.Self
	if peer == nil {
		return endingf(RulePeerKind, "%s is no PDPool transfer agent", at)
	}
	switch {
	case peer.Role == self.Role || (peer.Role != kvlayout.Prefill && peer.Role != kvlayout.Decode):
		return endingf(RulePeerKind, "%s has role %q, a %s pairs with the other one", at, peer.Role, self.Role)
	case peer.Pairing != self.Pairing:
		return endingf(RulePairing, "%s has pairing key %q, this pod has %q", at, peer.Pairing, self.Pairing)
	case peer.Mover != self.Mover:
		return endingf(RulePeerKind, "%s moves bytes by %q, this pod by %q", at, peer.Mover, self.Mover)
	case peer.Model != self.Model:
		return endingf(RulePeerKind, "%s serves %q, this pod %q", at, peer.Model, self.Model)
	}
	prefill, decode := self, peer
	if self.Role == kvlayout.Decode {
		prefill, decode = peer, self
	}
	if why := m.incompatible(prefill, decode); why != nil {
		return why
	}
	return m.misshapen(at, peer)
}

// misshapen refuses ranks that the peer's own layout does not have, or whose memory
// is not one region per layer of the model: as many as that are kept, and no more.
func (m *machine) misshapen(at Peer, peer *moriio.Agent) *ending {
	layout := peer.Layout.Defaulted()
	if most := layout.DPLocal * layout.TP; len(peer.Ranks) > most {
		return endingf(RulePeerRanks, "%s names %d ranks, its layout has %d", at, len(peer.Ranks), most)
	}
	for _, r := range peer.Ranks {
		if n := len(r.Regions); n != m.cfg.Geometry.Layers {
			return endingf(RuleRegions, "%s has %d regions at dp %d tp %d, the model has %d layers", at, n, r.DP, r.TP, m.cfg.Geometry.Layers)
		}
	}
	return nil
}

func (m *machine) incompatible(prefill, decode *moriio.Agent) *ending {
	pair := kvlayout.Pair{
		Engine:      m.cfg.Engine,
		Mover:       kvlayout.MoverAgent,
		Mode:        kvlayout.Write,
		Geometry:    m.cfg.Geometry,
		HasGeometry: true,
		Prefill:     pairSide(prefill),
		Decode:      pairSide(decode),
	}
	for _, p := range kvlayout.Compatible(pair) {
		if p.Severity != kvlayout.Refuse {
			continue
		}
		said := strings.Join([]string{p.Message, p.Reason, p.Fix}, "; ")
		return endingf(p.Rule, "%s", said)
	}
	return nil
}

func pairSide(a *moriio.Agent) kvlayout.Side {
	return kvlayout.Side{Layout: a.Layout, BlockSize: a.Block, KVType: a.KVType}
}

// planRefusal is the ending for a plan that can't be made.
func planRefusal(err error) *ending {
	rule := RuleRegions
	if refused, ok := errors.AsType[*kvlayout.PlanError](err); ok {
		switch refused.Fault {
		case kvlayout.FaultTargetShort, kvlayout.FaultSourceShort:
			rule = RuleAllocationShort
		case kvlayout.FaultBlockID:
			rule = RuleBlockRange
		default:
			// All others say that the memories do not fit.
		}
	}
	return endingf(rule, "%s", err.Error())
}

// place is the placement of decode's tokens.
func place(decode *moriio.Agent) kvlayout.Placement {
	l := decode.Layout.Defaulted()
	return kvlayout.Placement{DCP: l.DCP, Interleave: l.Interleave, BlockTokens: decode.Block}
}
