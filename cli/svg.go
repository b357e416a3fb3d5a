package cli

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Measures of the picture, in pixels.
const (
	svgMargin  = 32
	svgColumn  = 128 // from a rank to the next
	svgBox     = 112 // width of a rank
	svgCell    = 10
	svgPitch   = 12 // from a cell to the next
	svgAcross  = 8  // cells of a row
	svgTop     = 96 // where prefill's ranks begin
	svgHead    = 44 // of a rank, above its cells
	svgBetween = 132
	svgFoot    = 58 // of two lines of legend
	svgLeast   = 6  // columns that the picture is wide at least
	maxColumns = 64
)

// svgStyle works on light and dark pages alike, by the reader's own choice.
const svgStyle = `
  text { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2933; font-size: 12px }
  .title { font-size: 17px; font-weight: 600 }
  .soft { fill: #616e7c }
  .small { font-size: 11px }
  .mid { text-anchor: middle }
  .num { font-variant-numeric: tabular-nums; font-size: 11px; text-anchor: middle }
  .page { fill: #ffffff; stroke: #d9dee4 }
  .rank { fill: #f5f7fa; stroke: #cbd2d9 }
  .gap { fill: none; stroke: #cbd2d9; stroke-width: 0.75 }
  .flow { fill: none; stroke-width: 1.75 }
  .tag { fill: #ffffff; stroke: #d9dee4 }
  .state { fill: #9aa5b1 }
  .no { fill: #c0392b }
  .word { fill: #ffffff; font-weight: 600 }
  .refused { stroke: #c0392b; stroke-width: 1.5 }
  .stopped { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb }
    .soft { fill: #9aa5b1 }
    .page { fill: #161b22; stroke: #30363d }
    .rank { fill: #1f262e; stroke: #3d4650 }
    .gap { stroke: #3d4650 }
    .tag { fill: #161b22; stroke: #30363d }
    .state { fill: #616e7c }
    .refused { stroke: #e5534b }
  }
`

var svgPalette = []string{"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#3fa7a0", "#d4a72c", "#9c755f"}

// picture draws a plan: ranks as columns, prefill above decode, token groups as
// colours, arrows for what is written.
type picture struct {
	out     io.Writer
	err     error
	plan    Plan
	columns int
	decodeY int
	place   kvlayout.Placement // of decode
	cells   int                // token groups of the prompt
	shown   int                // those of them in a rank's cells
	height  int                // of a rank
}

func (o Options) planSVG(plan Plan) error {
	prefill, decode := plan.Prefill.Layout.Defaulted(), plan.Decode.Layout.Defaulted()
	if n := max(prefill.TP, decode.TP); n > maxColumns {
		return fmt.Errorf("a picture has at most %d ranks side by side, not %d", maxColumns, n)
	}
	p := &picture{out: o.Out, plan: plan, columns: max(prefill.TP, decode.TP, svgLeast)}
	block := max(plan.Transfer.BlockTokens, plan.Decode.BlockSize, 1)
	p.place = kvlayout.Placement{DCP: decode.DCP, Interleave: decode.Interleave, BlockTokens: block}
	if decode.DCP == 1 {
		p.place.Interleave = block // a cell is a block then
	}
	p.shown = svgAcross * max(2, (2*decode.DCP+svgAcross-1)/svgAcross)
	p.height = svgHead + p.shown/svgAcross*svgPitch + 8
	if plan.state != "" {
		p.height += svgPitch
	}
	group := max(p.place.Interleave, 1)
	p.cells = (plan.Transfer.Tokens + group - 1) / group
	p.shown = min(p.shown, p.cells)
	p.decodeY = svgTop + p.height + svgBetween
	p.draw(prefill, decode)
	return p.err
}

func (p *picture) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

func (p *picture) text(class string, x, y int, text string) {
	p.printf("<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, html.EscapeString(drawn(text)))
}

func (p *picture) draw(prefill, decode kvlayout.Layout) {
	width := 2*svgMargin + p.columns*svgColumn
	height := p.decodeY + p.height + svgFoot
	if p.plan.state != "" {
		height += 16
	}
	t := p.plan.Transfer
	title := fmt.Sprintf("%s: %s \u2192 %s", p.plan.Name, layoutText(prefill), layoutText(decode))
	p.printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title\">\n",
		width, height, width, height)
	p.printf("<title id=\"title\">%s</title>\n<style>%s</style>\n", html.EscapeString(drawn(title)), svgStyle)
	class := "page"
	if !p.plan.Admitted {
		class += " refused"
	}
	p.printf("<rect class=\"%s\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", class, width-1, height-1)
	p.text("title", svgMargin, 40, title)
	p.refusal(width)
	subtitle := fmt.Sprintf("%s: a new prompt of %s tokens writes %s bytes (%s)", p.plan.Model, grouped(t.Tokens), grouped(t.Bytes), size(t.Bytes))
	if t.Unknown != "" {
		subtitle = t.Unknown
	}
	p.text("soft", svgMargin, 62, subtitle)
	p.flows(prefill.TP, decode.TP)
	for rank := range prefill.TP {
		p.rank(kvlayout.Prefill, prefill, rank, prefill.TP, svgTop)
	}
	for rank := range decode.TP {
		p.rank(kvlayout.Decode, decode, rank, decode.TP, p.decodeY)
	}
	p.legend(prefill, decode, p.decodeY+p.height+30)
	p.printf("</svg>\n")
}

// refusal says that the plan is none that will be, and by which rules.
func (p *picture) refusal(width int) {
	var rules []string
	for _, b := range p.plan.Problems {
		if refuses(b) && !slices.Contains(rules, b.Rule) {
			rules = append(rules, b.Rule)
		}
	}
	if len(rules) == 0 {
		return
	}
	p.printf("<rect class=\"no\" x=\"%d\" y=\"24\" width=\"76\" height=\"22\" rx=\"11\"/>\n", width-svgMargin-76)
	p.text("mid word", width-svgMargin-38, 39, "refused")
	p.text("soft small", svgMargin, 80, "refused by "+strings.Join(rules, ", ")+": what is drawn would not run")
}

// x is the middle of a rank's column; the shorter row is centred.
func (p *picture) x(rank, ranks int) int {
	return svgMargin + (p.columns-ranks)*svgColumn/2 + rank*svgColumn + svgColumn/2
}

func (p *picture) rank(role kvlayout.Role, l kvlayout.Layout, rank, ranks, y int) {
	left := p.x(rank, ranks) - svgBox/2
	p.printf("<rect class=\"rank\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", left, y, svgBox, p.height)
	p.text("mid", left+svgBox/2, y+18, fmt.Sprintf("%s %d", role, rank))
	p.text("soft small mid", left+svgBox/2, y+34, p.holds(l, rank))
	own := kvlayout.DCPRank(rank, l)
	x0 := left + (svgBox-svgAcross*svgPitch+svgPitch-svgCell)/2
	for g := range p.shown {
		x, top := x0+g%svgAcross*svgPitch, y+svgHead+g/svgAcross*svgPitch
		if l.DCP > 1 && g%l.DCP != own {
			p.printf("<rect class=\"gap\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n", x, top, svgCell, svgCell)
			continue
		}
		p.printf("<rect fill=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n", p.colour(g), x, top, svgCell, svgCell)
	}
	if p.plan.state != "" {
		p.printf("<rect class=\"state\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n",
			x0, y+p.height-svgPitch-6, svgAcross*svgPitch-svgPitch+svgCell, svgCell)
	}
}

// holds says what a rank has of each token.
func (p *picture) holds(l kvlayout.Layout, rank int) string {
	g := p.plan.geometry
	if g == nil {
		return ""
	}
	has := "whole latent"
	if g.Kind != kvlayout.MLA {
		heads := kvlayout.HeadsOf(*g, l, rank)
		has = "KV heads " + heads.String()
		if heads.Count == 1 {
			has = "KV head " + heads.String()
		}
	}
	if p.plan.state == "" {
		return has
	}
	_, short, _ := strings.Cut(has, " ") // there is no room for more
	return short + " + state"
}

// colour is that of a token group: of the decode rank that has it, or without DCP of
// its place in the sequence.
func (p *picture) colour(group int) string {
	n := p.place.DCP
	switch {
	case n == 1:
		return svgPalette[group%4]
	case n <= len(svgPalette):
		return svgPalette[group%n]
	}
	return fmt.Sprintf("hsl(%d 50%% 55%%)", group%n*360/n)
}

func (p *picture) legend(prefill, decode kvlayout.Layout, y int) {
	cell := fmt.Sprintf("A cell is a block of %s tokens; without DCP every rank has all of them.", grouped(p.place.BlockTokens))
	if decode.DCP > 1 {
		run := "one token"
		if n := p.place.Interleave; n > 1 {
			run = grouped(n) + " tokens in a row"
		}
		cell = fmt.Sprintf("A cell is %s; its colour is the decode DCP rank that has it. Blocks hold %s on each rank.",
			run, count(p.place.BlockTokens, "token"))
	}
	if p.shown < p.cells {
		cell += fmt.Sprintf(" The first %d of %s are drawn.", p.shown, grouped(p.cells))
	}
	p.text("soft small", svgMargin, y, cell)
	var more []string
	if p.plan.state != "" {
		more = append(more, fmt.Sprintf("The bar is the %s state, which no token adds to: each rank has its heads of it.", p.plan.state))
	}
	if prefill.DP > 1 || decode.DP > 1 {
		more = append(more, "One data parallel rank of each side is shown.")
	}
	if !p.plan.alike && p.plan.Caches != "" {
		more = append(more, "The model has "+p.plan.Caches+".")
	}
	for i, line := range more {
		p.text("soft small", svgMargin, y+16*(i+1), line)
	}
}
