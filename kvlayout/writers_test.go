package kvlayout

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func mla() Geometry {
	return Geometry{Kind: MLA, Layers: 2, AttentionHeads: 128, KVHeads: 1, HeadValues: 4}
}

func gqa(kvHeads int) Geometry {
	return Geometry{Kind: GQA, Layers: 2, AttentionHeads: 8 * kvHeads, KVHeads: kvHeads, HeadValues: 2}
}

// mapping writes the writers of all decode ranks as "d0<p0[0-1]; d1<p0[2-3]".
func mapping(g Geometry, p, d Layout) string {
	var parts []string
	for rank := range d.Defaulted().TP {
		part := fmt.Sprintf("d%d<", rank)
		for i, w := range Writers(g, p, d, rank) {
			if i > 0 {
				part += ","
			}
			part += fmt.Sprintf("p%d[%s]", w.Rank, w.Heads)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func TestWriters(t *testing.T) {
	for _, c := range []struct {
		name string
		g    Geometry
		p, d Layout
		want string
	}{
		// The mapping of vLLM 0.33's MoRIIO connector.
		{"tp 2 to 4, 8 heads", gqa(8), Layout{TP: 2}, Layout{TP: 4}, "d0<p0[0-1]; d1<p0[2-3]; d2<p1[4-5]; d3<p1[6-7]"},
		{"tp 4 to 2, 8 heads", gqa(8), Layout{TP: 4}, Layout{TP: 2}, "d0<p0[0-1],p1[2-3]; d1<p2[4-5],p3[6-7]"},
		{"tp 8 to 2, 4 heads", gqa(4), Layout{TP: 8}, Layout{TP: 2}, "d0<p0[0],p2[1]; d1<p4[2],p6[3]"},
		{"tp 8 to 4, MLA", mla(), Layout{TP: 8}, Layout{TP: 4}, "d0<p0[0]; d1<p2[0]; d2<p4[0]; d3<p6[0]"},
		{
			"tp 4 to 8, MLA", mla(),
			Layout{TP: 4},
			Layout{TP: 8},
			"d0<p0[0]; d1<p0[0]; d2<p1[0]; d3<p1[0]; d4<p2[0]; d5<p2[0]; d6<p3[0]; d7<p3[0]",
		},
		{"equal tp", gqa(8), Layout{TP: 2}, Layout{TP: 2}, "d0<p0[0-3]; d1<p1[4-7]"},
		{"replicated heads on both sides", gqa(2), Layout{TP: 8}, Layout{TP: 4}, "d0<p0[0]; d1<p2[0]; d2<p4[1]; d3<p6[1]"},
		{"data parallel decode", mla(), Layout{TP: 8}, Layout{TP: 1, DP: 8}, "d0<p0[0]"},

		// DCP.
		{"decode dcp", mla(), Layout{TP: 4}, Layout{TP: 4, DCP: 4}, "d0<p0[0]; d1<p1[0]; d2<p2[0]; d3<p3[0]"},
		{"equal dcp and tp", mla(), Layout{TP: 4, DCP: 2}, Layout{TP: 4, DCP: 2}, "d0<p0[0]; d1<p1[0]; d2<p2[0]; d3<p3[0]"},
		{
			"equal dcp pairs by dcp rank, not by tp", mla(),
			Layout{TP: 8, DCP: 4},
			Layout{TP: 4, DCP: 4},
			"d0<p0[0]; d1<p5[0]; d2<p6[0]; d3<p7[0]",
		},
		{
			"equal dcp, more decode ranks", mla(),
			Layout{TP: 4, DCP: 4},
			Layout{TP: 8, DCP: 4},
			"d0<p0[0]; d1<p1[0]; d2<p2[0]; d3<p3[0]; d4<p0[0]; d5<p1[0]; d6<p2[0]; d7<p3[0]",
		},
		{
			"equal dcp among the copies of a head", gqa(2),
			Layout{TP: 8, DCP: 4},
			Layout{TP: 8, DCP: 4},
			"d0<p0[0]; d1<p1[0]; d2<p2[0]; d3<p3[0]; d4<p4[1]; d5<p5[1]; d6<p6[1]; d7<p7[1]",
		},

		// No multiples.
		{
			"tp 3 to 4, MLA", mla(),
			Layout{TP: 3},
			Layout{TP: 4},
			"d0<p0[0]; d1<p0[0]; d2<p1[0]; d3<p2[0]",
		},
		{"heads cut across", gqa(6), Layout{TP: 2}, Layout{TP: 3}, "d0<p0[0-1]; d1<p0[2],p1[3]; d2<p1[4-5]"},
		{"no such prefill", mla(), Layout{TP: -1}, Layout{TP: 2}, "d0<; d1<"},
	} {
		if got := mapping(c.g, c.p, c.d); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if ws := Writers(mla(), Layout{TP: 2}, Layout{TP: 2}, 2); ws != nil {
		t.Errorf("decode rank 2 of 2 has writers %v", ws)
	}
}

// layoutPairs calls f with many geometries and layouts that fit together.
func layoutPairs(f func(g Geometry, p, d Layout)) {
	for _, g := range []Geometry{mla(), gqa(1), gqa(2), gqa(4), gqa(8)} {
		for _, tps := range [][2]int{{1, 1}, {1, 4}, {2, 8}, {4, 4}, {8, 2}, {8, 8}, {16, 4}, {3, 4}, {6, 4}} {
			for _, dcp := range []int{1, 2, 4} {
				for _, dealt := range []bool{false, true} {
					p, d := Layout{TP: tps[0], DCP: dcp}, Layout{TP: tps[1], DCP: dcp}
					if dealt {
						p.DCP = 1
					}
					pair := Pair{Mover: MoverAgent, Geometry: g, HasGeometry: true, Prefill: Side{Layout: p}, Decode: Side{Layout: d}}
					if !Refused(Compatible(pair)) {
						f(g, p, d)
					}
				}
			}
		}
	}
}

func TestWritersCoverEveryHeadOnce(t *testing.T) {
	pairs := 0
	layoutPairs(func(g Geometry, p, d Layout) {
		pairs++
		for rank := range d.TP {
			seen := map[int]int{}
			for _, w := range Writers(g, p, d, rank) {
				if !HeadsOf(g, p, w.Rank).contains(w.Heads) {
					t.Errorf("%+v to %+v: p%d does not hold heads %s", p, d, w.Rank, w.Heads)
				}
				if p.DCP > 1 && DCPRank(w.Rank, p) != DCPRank(rank, d) {
					t.Errorf("%+v to %+v: p%d writes to d%d of another DCP rank", p, d, w.Rank, rank)
				}
				for h := range w.Heads.Count {
					seen[w.Heads.First+h]++
				}
			}
			own := HeadsOf(g, d, rank)
			for h := range own.Count {
				if seen[own.First+h] != 1 {
					t.Errorf("%+v to %+v, %d heads: head %d of d%d is written %d times", p, d, g.KVHeads, own.First+h, rank, seen[own.First+h])
				}
			}
			if len(seen) != own.Count {
				t.Errorf("%+v to %+v: d%d gets %d heads, holds %d", p, d, rank, len(seen), own.Count)
			}
		}
	})
	if pairs < 50 {
		t.Fatalf("only %d pairs of layouts", pairs)
	}
}

func TestReadersAreTheInverseOfWriters(t *testing.T) {
	layoutPairs(func(g Geometry, p, d Layout) {
		type edge struct {
			writer, reader int
			heads          HeadRange
		}
		fromWriters, fromReaders := map[edge]bool{}, map[edge]bool{}
		for rank := range d.TP {
			for _, w := range Writers(g, p, d, rank) {
				fromWriters[edge{w.Rank, rank, w.Heads}] = true
			}
		}
		for rank := range p.TP {
			last := -1
			for _, r := range Readers(g, p, d, rank) {
				fromReaders[edge{rank, r.Rank, r.Heads}] = true
				if r.Rank < last {
					t.Errorf("%+v to %+v: readers of p%d are out of order", p, d, rank)
				}
				last = r.Rank
			}
		}
		if !reflect.DeepEqual(fromWriters, fromReaders) {
			t.Errorf("%+v to %+v: writers %v, readers %v", p, d, fromWriters, fromReaders)
		}
	})
}

func TestHeadsOf(t *testing.T) {
	for _, c := range []struct {
		g    Geometry
		tp   int
		want string
	}{
		{mla(), 3, "0 0 0"},
		{gqa(8), 2, "0-3 4-7"},
		{gqa(8), 8, "0 1 2 3 4 5 6 7"},
		{gqa(2), 8, "0 0 0 0 1 1 1 1"},
	} {
		var got []string
		for rank := range c.tp {
			got = append(got, HeadsOf(c.g, Layout{TP: c.tp}, rank).String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s of %d heads over tp %d: %s, want %s", c.g.Kind, c.g.KVHeads, c.tp, s, c.want)
		}
	}
	for _, none := range []HeadRange{
		HeadsOf(mla(), Layout{TP: 2}, 2), HeadsOf(mla(), Layout{TP: 2}, -1),
		HeadsOf(Geometry{Kind: GQA}, Layout{TP: 2}, 0), HeadsOf(mla(), Layout{TP: -1}, 0),
	} {
		if none.Count != 0 || none.String() != "none" {
			t.Errorf("a rank that does not exist holds heads %s", none)
		}
	}
}
