package engine

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// PairOf puts two instances together for kvlayout's rules, with the geometry that
// its catalog has for the model. The sentences say what of the two can't be one
// pool, beyond layouts: those are for the rules.
func PairOf(prefill, decode Instance) (kvlayout.Pair, []string) {
	p := kvlayout.Pair{
		Engine: decode.Engine, Mover: decode.Mover, Mode: decode.Mode,
		Prefill: prefill.Side(), Decode: decode.Side(),
	}
	if prefill.Version == decode.Version {
		p.Version = decode.Version
	}
	p.Geometry, p.HasGeometry = kvlayout.Lookup(decode.Model)
	var out []string
	differ := func(what, why string, a, b any) {
		if a != b {
			out = append(out, fmt.Sprintf("%s is %v for prefill and %v for decode: %s", what, a, b, why))
		}
	}
	for _, side := range []struct {
		role kvlayout.Role
		in   Instance
	}{{kvlayout.Prefill, prefill}, {kvlayout.Decode, decode}} {
		if side.in.Role != "" && side.in.Role != side.role {
			out = append(out, fmt.Sprintf("the command line for %s starts a %s instance", side.role, side.in.Role))
		}
	}
	differ("the engine", "their caches and protocols are not the same", prefill.Engine, decode.Engine)
	if prefill.Model != "" && decode.Model != "" {
		differ("the model", "a cache is of use to the model that made it", prefill.Model, decode.Model)
		differ("the revision of the model", "a cache is of use to the model that made it", prefill.Revision, decode.Revision)
	}
	if prefill.Connector != "" && decode.Connector != "" {
		differ("the connector", "it has to be the same program on both sides", prefill.Connector, decode.Connector)
		differ("the mode", "one side would wait for what the other one never does", prefill.Mode, decode.Mode)
		differ("the backend", "both ends of a transfer use one", prefill.Backend, decode.Backend)
	}
	return p, out
}
