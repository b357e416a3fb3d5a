package cli

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// verbatim is text that is written as it is: it is the program's own, or escaped.
type verbatim string

// legible is text of anybody's as one line that a terminal shows and does not obey: what
// controls it, breaks lines or reorders them is escaped as in a Go string.
func legible(s string) string {
	if strings.IndexFunc(s, unfit) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unfit(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Legible is text for a terminal, as all that commands print. Of lines, it keeps those
// that are indented, which nobody takes for another message.
func Legible(s string) string {
	lines := strings.Split(s, "\n  ")
	for i := range lines {
		lines[i] = legible(lines[i])
	}
	return strings.Join(lines, "\n  ")
}

// unfit says that a character is more than a mark on the line where it stands.
func unfit(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// legibles are the arguments of a format, all text of them legible.
func legibles(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case nil:
		case verbatim:
			out[i] = string(v)
		case string:
			out[i] = legible(v)
		default:
			out[i] = a
			if r := reflect.ValueOf(a); !r.CanInt() && !r.CanUint() && !r.CanFloat() {
				out[i] = legible(fmt.Sprint(a))
			}
		}
	}
	return out
}

// comment writes the lines of a format as a comment of YAML, which the arguments cannot
// leave.
func (p *page) comment(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, legibles(args)...), "\n") {
		p.printf("# %s\n", verbatim(line))
	}
}

// drawn is text that XML can hold, on one line.
func drawn(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), r == '\uFFFE', r == '\uFFFF', unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

// jsonLegible escapes in JSON what its encoder leaves of that which a terminal obeys.
func jsonLegible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && unfit(r) { // all such are of 16 bits
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (o Options) write(text string) error {
	_, err := io.WriteString(o.Out, text)
	return err
}
