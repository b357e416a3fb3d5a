package cli

import "fmt"

// flows draws an arrow per writer and reader, and on each what it carries.
func (p *picture) flows(writers, readers int) {
	from, to := map[int]int{}, map[int]int{}
	for _, f := range p.plan.Transfer.Writers {
		from[f.Writer]++
		to[f.Reader]++
	}
	tips := p.tips()
	var tags []tag
	gone, come := map[int]int{}, map[int]int{}
	for _, f := range p.plan.Transfer.Writers {
		a := arrow{
			x1: p.x(f.Writer, writers) + spread(gone[f.Writer], from[f.Writer]), y1: svgTop + p.height + 2,
			x2: p.x(f.Reader, readers) + spread(come[f.Reader], to[f.Reader]), y2: p.decodeY - 3,
		}
		gone[f.Writer]++
		come[f.Reader]++
		colour := p.arrowColour(f.Reader)
		class := "flow"
		if !p.plan.Admitted {
			class += " stopped"
		}
		p.printf("<path class=\"%s\" stroke=\"%s\" marker-end=\"url(#tip%d)\" d=\"%s\"/>\n", class, colour, tips[colour], a.path())
		at := 60
		if writers > readers {
			at = 40 // where the arrows lie further apart
		}
		x, y := a.at(at)
		t := tag{x: x, y: y, text: size(f.Bytes)}
		if f.States > 0 {
			t.under = "state " + size(f.States)
		}
		tags = append(tags, t)
	}
	for _, t := range tags {
		t.draw(p)
	}
}

// tips draws the heads of arrows, one of each colour, and returns their numbers.
func (p *picture) tips() map[string]int {
	tips := map[string]int{}
	for _, f := range p.plan.Transfer.Writers {
		colour := p.arrowColour(f.Reader)
		if _, ok := tips[colour]; ok {
			continue
		}
		n := len(tips)
		tips[colour] = n
		p.printf("<defs><marker id=\"tip%d\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"+
			"<path d=\"M0 0.5 L8 4 L0 7.5 Z\" fill=\"%s\"/></marker></defs>\n", n, colour)
	}
	return tips
}

// arrowColour is the colour of the reader's tokens; without DCP all are alike, and with
// a state most of the bytes are of no token.
func (p *picture) arrowColour(reader int) string {
	if p.place.DCP == 1 || p.plan.state != "" {
		return "#7b8794"
	}
	return p.colour(reader % p.place.DCP)
}

// spread keeps arrows at one rank apart: the i-th of n.
func spread(i, n int) int {
	step := min(26, svgBox/max(n, 1))
	return (2*i - n + 1) * step / 2
}

// arrow is a curve that leaves downwards and arrives so.
type arrow struct{ x1, y1, x2, y2 int }

func (a arrow) path() string {
	bend := (a.y2 - a.y1) / 2
	return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", a.x1, a.y1, a.x1, a.y1+bend, a.x2, a.y2-bend, a.x2, a.y2)
}

// at is the point of the curve at a percentage of its parameter.
func (a arrow) at(percent int) (x, y int) {
	bend := float64(a.y2-a.y1) / 2
	t := float64(percent) / 100
	u := 1 - t
	point := func(p0, p1, p2, p3 float64) int {
		return int(u*u*u*p0 + 3*u*u*t*p1 + 3*u*t*t*p2 + t*t*t*p3 + 0.5)
	}
	x1, y1, x2, y2 := float64(a.x1), float64(a.y1), float64(a.x2), float64(a.y2)
	return point(x1, x1, x2, x2), point(y1, y1+bend, y2-bend, y2)
}

// tag is a text with ground under it.
type tag struct {
	x, y  int
	text  string
	under string // in a second line
}

func (t tag) draw(p *picture) {
	width := 7*len(t.text) + 10
	p.printf("<rect class=\"tag\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"18\" rx=\"9\"/>\n", t.x-width/2, t.y-9, width)
	p.text("num", t.x, t.y+4, t.text)
	if t.under != "" {
		width = 6*len(t.under) + 10
		p.printf("<rect class=\"tag\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"16\" rx=\"8\"/>\n", t.x-width/2, t.y+12, width)
		p.text("soft num", t.x, t.y+24, t.under)
	}
}
