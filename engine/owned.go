package engine

import (
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// OwnedFlag is a flag or variable of the user's that the operator renders itself.
// A parser takes the last of a repeated flag, so that the two sides of a pair
// would disagree without an error.
type OwnedFlag struct {
	// Env says that it is a variable: Index is then its place among the names.
	Env   bool
	Index int
	// Name is the full name: "tensor-parallel-size", "VLLM_PORT".
	Name string
	// Spelled is what the user typed: "-tp", "--kv_transfer_config.kv_role".
	Spelled string

	owner owner
}

// Fix is the change to make, as the end of a sentence. The role is the one whose
// arguments hold the flag, "" for those of both.
func (o OwnedFlag) Fix(r kvlayout.Role) string {
	switch {
	case o.owner.field == "":
		return "remove it: " + o.owner.why
	case !o.owner.perRole:
		return "use spec." + o.owner.field + " instead"
	case r == "":
		return "use spec.prefill." + o.owner.field + " and spec.decode." + o.owner.field + " instead"
	}
	return "use spec." + string(r) + "." + o.owner.field + " instead"
}

// Owned lists what in a user's arguments for an engine and names of environment
// variables the operator renders, in any spelling: short, underscored, abbreviated,
// with "=", by dotted keys.
func Owned(kind kvlayout.Engine, args, env []string) []OwnedFlag {
	var out []OwnedFlag
	d := dialectOf(kind)
	flags, _ := ParseArgsOf(kind, args)
	for _, f := range flags.List {
		k, ok := d.lookup(f.Name)
		if !f.Known || !ok || !k.owner.owned() {
			continue
		}
		out = append(out, OwnedFlag{Index: f.Index, Name: f.Name, Spelled: f.Spelled, owner: k.owner})
	}
	for i, name := range env {
		o, ok := d.env[name]
		if !ok && strings.HasPrefix(name, "PDPOOL_") {
			o, ok = never("the operator has the names that begin with PDPOOL_"), true
		}
		if ok {
			out = append(out, OwnedFlag{Env: true, Index: i, Name: name, Spelled: name, owner: o})
		}
	}
	return out
}
