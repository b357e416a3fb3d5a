package transferagent

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport/mem"
)

// heap is what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Both agents of a pair keep little of 64 prompts whose every layer waits for a peer
// that takes nothing. Their engines' memory is not on the heap.
func TestTransfersInFlightTakeLittleMemory(t *testing.T) {
	deep := kvlayout.Geometry{Model: "deep", Kind: kvlayout.MLA, Layers: 61, AttentionHeads: 8, KVHeads: 1, HeadValues: 8}
	n := mem.NewNetwork(1)
	pp := startPod(t, podConfig(t, kvlayout.Prefill, deep, kvlayout.Layout{TP: 8}), memMover(t, n, "prefill"))
	dp := startPod(t, podConfig(t, kvlayout.Decode, deep, kvlayout.Layout{TP: 8, DCP: 8, Interleave: 1}), memMover(t, n, "decode"))
	p := &pair{prefill: pp.connect(), decode: dp.connect()}
	p.serves(t, "tx-before", 1)
	n.Freeze("prefill", "decode")
	before := heap()
	const transfers = 64
	var all []prompt
	for i := range transfers {
		r := p.prompt(fmt.Sprintf("tx-%d", i), 0, testBlocks*p.prefill.pod.cfg.Block)
		all = append(all, r)
		p.start(t, r)
		for _, w := range p.prefill.workers {
			send(t, w.client, kvproto.Sealed{Transfer: r.id})
		}
		eventually(t, func() error {
			if v, err := p.prefill.pod.look(r.id); err != nil || v.State != session.Moving {
				return fmt.Errorf("prefill has %+v, %w", v, err)
			}
			return nil
		})
	}
	const most = 16 << 20
	if grown := heap() - before; grown > most {
		t.Errorf("%d transfers in flight keep %d bytes, more than %d", transfers, grown, most)
	}
	n.Thaw("prefill", "decode")
	for _, r := range all {
		expect(t, p.decode.sched, kvproto.Done{Transfer: r.id})
	}
	eventually(t, func() error {
		if _, body := p.prefill.pod.get("/debug/transfers"); strings.Contains(body, "tx-") {
			return fmt.Errorf("live: %.300s", body)
		}
		return nil
	})
	if grown := heap() - before; grown > most/4 {
		t.Errorf("%d transfers that have ended leave %d bytes", transfers, grown)
	}
}

func TestOrdersOfAFlowSharePlans(t *testing.T) {
	l := &loop{plans: map[flowKey]*plan{}}
	copies := func(source, target int64, more ...kvlayout.Copy) []kvlayout.Copy {
		return append([]kvlayout.Copy{
			{Src: source, SrcStride: 4, Dst: target, DstStride: 2, Length: 2, Count: 3},
			{Src: source + 100, SrcStride: 4, Dst: target + 6, DstStride: 2, Length: 2, Count: 1},
		}, more...)
	}
	extra := kvlayout.Copy{Src: 7, Dst: 8, Length: 1, Count: 1}
	orders := []session.CopyOrder{
		{ID: 1, Transfer: "a", Copies: copies(0, 0)},
		{ID: 2, Transfer: "a", Copies: copies(1000, 50)},
		{ID: 3, Transfer: "a", Copies: copies(0, 0, extra)}, // another shape
		{ID: 4, Transfer: "a", Copies: copies(5, 6, kvlayout.Copy{Src: 12, Dst: 14, Length: 1, Count: 1})},
		{ID: 5, Transfer: "a", Copies: copies(5, 6, kvlayout.Copy{Src: 12, Dst: 15, Length: 1, Count: 1})}, // moved unevenly
		{ID: 6, Transfer: "a", ReaderTP: 1, Copies: copies(0, 0)},
		{ID: 7, Transfer: "a"},
		{ID: 8, Transfer: "a", Copies: copies(-5, 3)},
	}
	var waiting []packed
	for _, o := range orders {
		waiting = append(waiting, l.pack(o))
	}
	for i, p := range waiting {
		if got := p.open(); fmt.Sprint(got) != fmt.Sprint(orders[i]) {
			t.Errorf("order %d became %+v", orders[i].ID, got)
		}
	}
	for _, same := range [][2]int{{0, 1}, {2, 3}} {
		if waiting[same[0]].plan != waiting[same[1]].plan {
			t.Errorf("orders %d and %d have plans of their own", orders[same[0]].ID, orders[same[1]].ID)
		}
	}
	for _, p := range waiting {
		l.unpack(p)
	}
	if len(l.plans) != 0 {
		t.Errorf("%d plans are left", len(l.plans))
	}
}
