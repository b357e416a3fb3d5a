package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pdpool/pdpool/kvlayout"
)

// Colours of a terminal (SGR).
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "32"
	yellow = "33"
)

// page writes lines, coloured where the terminal takes that. The first error of the
// writer ends it. What is given to its formats comes from anywhere, so it is written
// as legible has it, but for what is verbatim.
type page struct {
	out    io.Writer
	colour bool
	err    error
}

func (o Options) page() *page { return &page{out: o.Out, colour: o.Colour} }

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, legibles(args)...)
	}
}

// paint colours a text.
func (p *page) paint(colour, text string) verbatim {
	text = legible(text)
	if !p.colour || colour == plain {
		return verbatim(text)
	}
	return verbatim("\x1b[" + colour + "m" + text + "\x1b[0m")
}

// table writes rows with aligned columns, those of numbers to the right; the first
// row is the heading.
func (p *page) table(indent string, rows [][]string) {
	columns := len(rows[0])
	widths, numbers := make([]int, columns), make([]bool, columns)
	for i := range columns {
		numbers[i] = true
		for r, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			numbers[i] = numbers[i] && (r == 0 || row[i] == "" || isNumber(row[i]))
		}
	}
	for r, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numbers[i] {
				line.WriteString(gap + cell + "  ")
			} else {
				line.WriteString(cell + gap + "  ")
			}
		}
		colour := plain
		if r == 0 {
			colour = dim
		}
		p.printf("%s%s\n", indent, p.paint(colour, strings.TrimRight(line.String(), " ")))
	}
}

// isNumber says that a cell is what grouped writes, or a factor such as 3.9x.
func isNumber(cell string) bool {
	return strings.Trim(cell, "<0123456789,.x") == ""
}

// grouped is a number with commas: 1,447,424.
func grouped[T int | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

// size is bytes for people: 274.5 MiB.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, unit := float64(bytes), 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[unit]
}

// count is a number with its noun: "1 pool", "2 pools"; the plural is given where it is
// no "s".
func count(n int, noun string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case len(plural) > 0:
		return grouped(n) + " " + plural[0]
	}
	return grouped(n) + " " + noun + "s"
}

// layoutLabel is a layout and what else divides the ranks of an instance.
type layoutLabel struct {
	kvlayout.Layout
	ep, pcp int             // ep is -1 where all ranks share the experts
	unread  map[string]bool // degrees that are not known, by their names in the spec
}

// String has the degrees that are not 1, and always tp.
func (l layoutLabel) String() string {
	set := l.Defaulted()
	var out []string
	add := func(label, name string, n, standard int) {
		switch {
		case l.unread[name]:
			out = append(out, label+"?")
		case n != standard:
			out = append(out, label+strconv.Itoa(n))
		}
	}
	add("TP", "tp", set.TP, 0)
	add("PP", "pp", set.PP, 1)
	add("DP", "dp", set.DP, 1)
	add("DPL", "dpLocal", set.DPLocal, set.DP)
	add("PCP", "", max(l.pcp, 1), 1)
	add("DCP", "dcp", set.DCP, 1)
	if set.DCP > 1 {
		add("I", "interleave", set.Interleave, 0)
	}
	if l.ep < 0 {
		out = append(out, "EP")
	} else {
		add("EP", "", max(l.ep, 1), 1)
	}
	return strings.Join(out, " ")
}

func layoutText(l kvlayout.Layout) string { return layoutLabel{Layout: l}.String() }

func pairLayout(p, d kvlayout.Layout) string { return layoutText(p) + " -> " + layoutText(d) }
