package cli

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// better ranks candidates: those whose weights fit first, then those that hold the load,
// then those whose memory is known, then by what they hold and what a prompt costs.
func better(a, b Candidate) int {
	first := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	return cmp.Or(
		first(a.Weights == 0, b.Weights == 0), first(a.Holds, b.Holds), first(!a.OtherShare, !b.OtherShare),
		cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.PromptBytes, b.PromptBytes),
	)
}

func (o Options) adviseText(a Advice) error {
	p := o.page()
	p.printf("%s  %s, %s of %s\n", p.paint(bold, a.Name), a.Model, count(a.Now.Replicas, "decode replica"), count(a.Now.Decode.TP*a.Now.Decode.DP, "GPU"))
	p.printf("load: %s requests at a time, %s tokens in and %s out: %s tokens in flight\n\n",
		grouped(a.Load.Concurrency), grouped(a.Load.In), grouped(a.Load.Out), grouped(a.Tokens))
	p.now(a)
	rows := [][]string{{"", "layout", "decode holds", "requests", "times the load", "a prompt writes", "mover", ""}}
	for i, c := range a.Candidates {
		rows = append(rows, []string{
			strconv.Itoa(i + 1), c.Layout, grouped(c.Tokens), grouped(c.Requests), factor(c.Tokens, a.Tokens), grouped(c.PromptBytes), c.Mover, remark(c),
		})
	}
	p.prefillLine(a)
	if len(a.Candidates) > 0 {
		p.printf("\n")
		p.table("  ", rows)
	}
	p.footnotes(a)
	return p.err
}

// now says whether the layout of the manifest holds the load, and what would.
func (p *page) now(a Advice) {
	word, colour := "holds", green
	if !a.Now.Holds {
		word, colour = "cannot hold", red
	}
	p.printf("%s decode %s the load: %s tokens, %s of %s requests at their full length\n",
		layoutText(a.Now.Decode), p.paint(colour, word), grouped(a.Now.Tokens), grouped(min(a.Now.Requests, int64(a.Load.Concurrency))), grouped(a.Load.Concurrency))
	if len(a.Candidates) == 0 {
		p.printf("no other layout on these GPUs is admitted\n")
		return
	}
	top := a.Candidates[0]
	switch {
	case top.Weights > 0:
		p.printf("no layout on these GPUs has room for the weights\n")
	case !top.Holds:
		p.printf("no layout on these GPUs holds it: %s comes closest with %s tokens", p.paint(bold, top.Layout), grouped(top.Tokens))
		if n := replicasFor(top, a.Load); n > 0 {
			p.printf(", and would with %d decode replicas", n)
		}
		p.printf("\n")
	case top.Layout == a.Now.Layout:
		p.printf("no other layout on these GPUs holds more\n")
	default:
		p.printf("%s holds %s tokens, %s as many, and uses %d%% of them\n", p.paint(bold, top.Layout), grouped(top.Tokens),
			factor(top.Tokens, a.Now.Tokens), a.Tokens*100/max(top.Tokens, 1))
	}
}

// replicasFor is how many decode replicas hold the load; 0 where one holds no request.
func replicasFor(c Candidate, l Load) int64 {
	each := c.Requests / int64(max(c.Replicas, 1))
	if each < 1 {
		return 0
	}
	return (int64(l.Concurrency) + each - 1) / each
}

func (p *page) footnotes(a Advice) {
	var share bool
	var heaviest int64
	missing := map[string][]string{} // the ranks that a reason is of
	var reasons []string
	for i, c := range a.Candidates {
		share = share || c.OtherShare
		heaviest = max(heaviest, c.Weights)
		if c.Unavailable == "" {
			continue
		}
		if missing[c.Unavailable] == nil {
			reasons = append(reasons, c.Unavailable)
		}
		missing[c.Unavailable] = append(missing[c.Unavailable], strconv.Itoa(i+1))
	}
	if share || len(reasons) > 0 || heaviest > 0 {
		p.printf("\n")
	}
	if share {
		p.printf("  %s at another tp the weights take another share of a GPU, so that the memory for KV cache differs\n", p.paint(dim, "(tp)"))
	}
	for _, reason := range reasons {
		p.printf("  %s of %s: this version can't run it yet: %s\n", p.paint(dim, "(mover)"), strings.Join(missing[reason], ", "), reason)
	}
	if heaviest > 0 {
		p.printf("  %s the weights alone take up to %s GB of a GPU, and the largest has %s\n", p.paint(dim, "(weights)"),
			grouped(heaviest/1e9), grouped(int64(mostGPUMemory/1e9)))
	}
	if len(a.Refused) > 0 {
		p.printf("\n  %s\n", p.paint(dim, "not admitted:"))
	}
	for _, c := range a.Refused {
		for _, b := range c.Problems {
			if b.Severity == kvlayout.Refuse {
				p.printf("  %s  %s: %s\n", c.Layout, b.Rule, b.Message)
				break
			}
		}
	}
}

func remark(c Candidate) string {
	var parts []string
	if c.Weights > 0 {
		parts = append(parts, "(weights)")
	}
	if c.OtherShare {
		parts = append(parts, "(tp)")
	}
	if c.Unavailable != "" {
		parts = append(parts, "(mover)")
	}
	for _, b := range c.Problems {
		parts = append(parts, b.Rule)
	}
	return strings.Join(parts, " ")
}

// factor is a / b with one digit, rounded down: 3.9x, and what is too little for that as
// <0.1x.
func factor(a, b int64) string {
	switch {
	case b < 1:
		return ""
	case a > 0 && a < (b+9)/10:
		return "<0.1x"
	}
	return fmt.Sprintf("%.1fx", math.Floor(10*float64(a)/float64(b))/10)
}
