package enginesim

import (
	"slices"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// flow is one transfer.
type flow struct {
	id      string
	hold    *kvproto.Hold
	receive *kvproto.Receive
	saves   map[int]int // layers by writer
	sealed  map[int]bool
	copied  map[int]bool // by writer
	begun   bool         // prefill has named it
	lost    map[int]bool // writers whose connections have ended since, or were down then
	over    bool
	failed  *kvproto.Failed // told to each side once it has said Hold or Receive
}

// begin notes which workers a transfer has when prefill names it.
func (f *fabric) begin(t *flow) {
	if t.begun {
		return
	}
	t.begun = true
	for who := range f.prefill.layout.TP {
		t.lost[who] = f.prefill.conns[who] == nil
	}
}

func (f *fabric) flow(id string) *flow {
	t := f.flows[id]
	if t == nil {
		t = &flow{id: id, saves: map[int]int{}, sealed: map[int]bool{}, copied: map[int]bool{}, lost: map[int]bool{}}
		f.flows[id] = t
	}
	return t
}

// fail ends a flow badly on both sides.
func (f *fabric) fail(t *flow, rule, text string) {
	if t.over {
		return
	}
	t.over = true
	t.failed = &kvproto.Failed{Transfer: t.id, Rule: rule, Text: text}
	if t.hold != nil {
		f.prefill.tellAll(*t.failed)
	}
	if t.receive != nil {
		f.decode.tellAll(*t.failed)
	}
}

// advance copies what is there, and ends the flow when all is.
func (f *fabric) advance(t *flow) {
	if t.over || f.frozen || t.hold == nil || t.receive == nil || !f.ready(t) {
		return
	}
	if !f.told() {
		f.fail(t, "engine-gone", "the connection of a prefill worker was lost before it was ready")
		return
	}
	writers := f.writers()
	for w := range f.prefill.layout.TP {
		if t.sealed[w] && !t.copied[w] && !t.lost[w] {
			t.copied[w] = true
			f.copyAll(t, w, writers)
		}
	}
	over, missing := f.complete(t, writers)
	switch {
	case !over:
		return
	case missing:
		f.fail(t, "engine-gone", "the connection of a prefill worker was lost")
		return
	}
	t.over = true
	f.decode.tellAll(kvproto.Done{Transfer: t.id})
	f.prefill.tellAll(kvproto.Done{Transfer: t.id})
	f.prefill.tell(-1, kvproto.Released{Transfer: t.id})
}

// ready says whether all are ready, or never will be.
func (f *fabric) ready(t *flow) bool {
	for w := range f.prefill.layout.TP {
		if !f.prefill.ready[w] && !t.lost[w] {
			return false
		}
	}
	return len(f.decode.ready) == f.decode.layout.TP
}

// told says whether the regions of all writers are known, also of those that are
// lost now.
func (f *fabric) told() bool {
	for w := range f.prefill.layout.TP {
		if len(f.prefill.regions[w]) == 0 {
			return false
		}
	}
	return true
}

// complete says whether all writers of all readers have written or never will, and
// whether one of them has not.
func (f *fabric) complete(t *flow, writers map[int][]int) (over, missing bool) {
	early := slices.Contains(f.decode.faults, "first-writer-ends")
	for _, list := range writers {
		for i, w := range list {
			switch {
			case t.copied[w] || early && i > 0:
			case t.lost[w]:
				missing = true
			default:
				return false, false
			}
		}
	}
	return true, missing
}

// copyAll moves what a writer has for all its readers.
func (f *fabric) copyAll(t *flow, w int, writers map[int][]int) {
	for reader := range f.decode.layout.TP {
		if slices.Contains(writers[reader], w) && !slices.Contains(f.prefill.faults, "copies-off") {
			f.copy(t, w, reader, writers[reader])
		}
	}
}

// writers lists the prefill ranks that have what a decode rank keeps, one per
// head.
func (f *fabric) writers() map[int][]int {
	out := map[int][]int{}
	for reader := range f.decode.layout.TP {
		for _, head := range f.decode.heads(reader) {
			w := f.writer(reader, head)
			if !slices.Contains(out[reader], w) {
				out[reader] = append(out[reader], w)
			}
		}
	}
	return out
}

func (f *fabric) writer(reader, head int) int {
	var able []int
	for w := range f.prefill.layout.TP {
		if slices.Contains(f.prefill.heads(w), head) && (f.prefill.layout.DCP == 1 || f.prefill.layout.dcpRank(w) == f.decode.layout.dcpRank(reader)) {
			able = append(able, w)
		}
	}
	return able[reader%len(able)]
}

func (s *side) heads(tp int) []int {
	var out []int
	r := s.regions[tp][0]
	for h := r.HeadFirst; h < r.HeadFirst+r.HeadCount; h++ {
		out = append(out, h)
	}
	return out
}

// copy moves all rows that a writer has for a reader.
func (f *fabric) copy(t *flow, writer, reader int, writers []int) {
	p, d := f.prefill, f.decode
	whole := p.layout.Block * p.layout.DCP
	tokens := (t.hold.Tokens + whole - 1) / whole * whole
	from, to := deal(p.layout, tokens), deal(d.layout, tokens)
	want := d.layout.dcpRank(reader)
	if slices.Contains(p.faults, "interleave-off") {
		want = (want + d.layout.DCP - 1) % d.layout.DCP
	}
	target := d.memory[reader]
	if slices.Contains(p.faults, "all-to-rank-0") {
		target = d.memory[0]
	}
	for layer := range p.regions[writer] {
		src, dst := p.regions[writer][layer], d.regions[reader][layer]
		for _, head := range d.heads(reader) {
			if f.writer(reader, head) != writer || !slices.Contains(writers, writer) {
				continue
			}
			for pos := range tokens {
				if to[pos].rank != want {
					continue
				}
				a := offset(src, t.hold.Blocks[from[pos].block], head, from[pos].slot)
				b := offset(dst, t.receive.Blocks[to[pos].block], head, to[pos].slot)
				copy(target[b:b+dst.RowBytes], p.memory[writer][a:a+src.RowBytes])
			}
		}
	}
}

func offset(r kvproto.Region, block int32, head, at int) int64 {
	return r.Offset + int64(block)*r.BlockStride + int64(head-r.HeadFirst)*r.HeadStride + int64(at)*r.TokenStride
}

// named is the transfer of an engine's message.
func named(m kvproto.Message) string {
	switch m := m.(type) {
	case kvproto.Expect:
		return m.Transfer
	case kvproto.Hold:
		return m.Transfer
	case kvproto.Save:
		return m.Transfer
	case kvproto.Sealed:
		return m.Transfer
	}
	return ""
}
