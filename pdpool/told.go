package pdpool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pdpool/pdpool/kvlayout"
)

// Bounds of an answer. A manifest may break a rule at each of thousands of places, and
// whoever is told of them all reads none.
const (
	maxTold     = 50   // problems of one severity, and of one part of a manifest
	maxSpelled  = 64   // bytes of what a user wrote, in a sentence
	maxValue    = 128  // bytes of a field's value beside a sentence
	maxPath     = 512  // bytes
	maxSentence = 1024 // bytes
)

// clip cuts a text to so many bytes, between characters, and marks the cut.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	const more = "…"
	cut := limit - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// brief is a problem whose texts have bounds, whatever the manifest holds.
func brief(p kvlayout.Problem) kvlayout.Problem {
	p.Field, p.Message, p.Fix = clip(p.Field, maxPath), clip(p.Message, maxSentence), clip(p.Fix, maxSentence)
	return p
}

// firstOf are the problems that an answer has room for. The last says how many there are
// beside them.
func firstOf(problems []kvlayout.Problem) []kvlayout.Problem {
	if len(problems) <= maxTold {
		return problems
	}
	last := problems[maxTold-1]
	last.Message = fmt.Sprintf("this and %d more problems are left out", len(problems)-maxTold)
	last.Reason, last.Fix = "an answer has room for few", "mend those that are told first"
	return append(problems[:maxTold-1:maxTold-1], last)
}
