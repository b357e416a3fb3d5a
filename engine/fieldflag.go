package engine

import (
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// FieldFlag is the flag by which a command line of the engine says what a field of a
// PDPool's spec says, such as layout.dcp or engine.blockSize, without the role in
// front: with its dashes, as the engine's help spells it. "" where no flag does.
func FieldFlag(kind kvlayout.Engine, field string) string {
	for _, k := range dialectOf(kind).flags {
		if f := k.owner.field; f != "" && (field == f || strings.HasPrefix(field, f+".")) || k.degree == field && field != "" {
			return "--" + k.name
		}
	}
	return ""
}
