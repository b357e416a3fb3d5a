package engine

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// PairRules are what two instances have to agree on to be one pool, beyond what
// kvlayout's rules say of layouts. A pool can't break them: its instances are
// rendered from one spec.
func PairRules() []kvlayout.RuleInfo {
	rule := func(id, description, reason string) kvlayout.RuleInfo {
		return kvlayout.RuleInfo{ID: id, Scope: kvlayout.PairScope, Severity: kvlayout.Refuse, Description: description, Reason: reason}
	}
	return []kvlayout.RuleInfo{
		rule("role-said", "a command line starts an instance of the role that it is given for", "each role does another half of a transfer"),
		rule("engine-same", "both sides run the same engine", "their caches and protocols are not the same"),
		rule("connector-same", "both sides have the same connector", "it has to be the same program on both sides"),
		rule("mode-same", "both sides have the same transfer mode", "one side would wait for what the other one never does"),
		rule("backend-same", "both sides move bytes by the same backend", "both ends of a transfer use one"),
	}
}

// PairOf puts two instances together for kvlayout's rules, with the geometry that
// its catalog has for the model. The problems are of PairRules.
func PairOf(prefill, decode Instance) (kvlayout.Pair, []kvlayout.Problem) {
	p := kvlayout.Pair{
		Engine: decode.Engine, Mover: decode.Mover, Mode: decode.Mode, Version: kvlayout.Older(prefill.Version, decode.Version),
		Prefill: prefill.Side(), Decode: decode.Side(),
	}
	if prefill.Backend == decode.Backend {
		p.Backend = kvlayout.Backend(decode.Backend)
	}
	p.Geometry.Model = decode.Model
	if m, ok := KnownModel(decode.Model, decode.Served); ok {
		p.Model = &m
		if g, ok := m.Geometry(); ok {
			p.Geometry, p.HasGeometry = g, true
		}
	}
	return p, apart(prefill, decode)
}

// KnownModel is the model of kvlayout's catalog that is loaded by a name, or by a path
// and served under its name, as is often done.
func KnownModel(name, served string) (kvlayout.Model, bool) {
	if m, ok := kvlayout.LookupModel(name); ok {
		return m, true
	}
	return kvlayout.LookupModel(served)
}

// apart is why two instances can't be one pool.
func apart(prefill, decode Instance) []kvlayout.Problem {
	reasons := map[string]string{}
	for _, r := range PairRules() {
		reasons[r.ID] = r.Reason
	}
	var out []kvlayout.Problem
	refuse := func(rule, field, message, fix string) {
		out = append(out, kvlayout.Problem{Rule: rule, Severity: kvlayout.Refuse, Field: field, Message: message, Reason: reasons[rule], Fix: fix})
	}
	for _, side := range []struct {
		role kvlayout.Role
		in   Instance
	}{{kvlayout.Prefill, prefill}, {kvlayout.Decode, decode}} {
		if side.in.Role != "" && side.in.Role != side.role {
			refuse("role-said", string(side.role)+".args", fmt.Sprintf("the command line for %s starts a %s instance", side.role, side.in.Role),
				"give the command line that starts "+string(side.role))
		}
	}
	differ := func(rule, field, what string, a, b any) {
		if a != b {
			refuse(rule, field, fmt.Sprintf("the %s is %v for prefill and %v for decode", what, a, b), "let both command lines say the same "+what)
		}
	}
	differ("engine-same", "engine.type", "engine", prefill.Engine, decode.Engine)
	if prefill.Connector != "" && decode.Connector != "" {
		differ("connector-same", "transfer.mover", "connector", prefill.Connector, decode.Connector)
		differ("mode-same", "transfer.mode", "mode", prefill.Mode, decode.Mode)
		differ("backend-same", "transfer.backend", "backend", prefill.Backend, decode.Backend)
	}
	return out
}
