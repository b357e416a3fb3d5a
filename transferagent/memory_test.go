package transferagent

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// heap is what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// done awaits the good ends of transfers, in whatever order.
func (e *engine) done(transfers int) {
	e.t.Helper()
	for range transfers {
		select {
		case m := <-e.sched.Messages():
			if _, done := m.(kvproto.Done); !done {
				e.t.Fatalf("the engine is told %+v", m)
			}
		case <-time.After(within):
			e.t.Fatal("no answer")
		}
	}
}

// Both agents of a pair keep little of 64 prompts whose every layer waits for a peer
// that takes nothing. Their engines' memory is not on the heap.
func TestTransfersInFlightTakeLittleMemory(t *testing.T) {
	deep := kvlayout.Geometry{Model: "deep", Kind: kvlayout.MLA, Layers: 61, AttentionHeads: 8, KVHeads: 1, HeadValues: 8}
	n := memNetwork(1)
	pp := startPod(t, podConfig(t, kvlayout.Prefill, deep, kvlayout.Layout{TP: 8}), memMover(t, n, "prefill"))
	dp := startPod(t, podConfig(t, kvlayout.Decode, deep, kvlayout.Layout{TP: 8, DCP: 8, Interleave: 1}), memMover(t, n, "decode"))
	p := &pair{prefill: pp.connect(), decode: dp.connect()}
	p.serves(t, "tx-before", 1)
	n.Freeze("prefill", "decode")
	before := heap()
	const transfers = 64
	for i := range transfers {
		r := p.prompt(fmt.Sprintf("tx-%d", i), 0, testBlocks*p.prefill.pod.cfg.Block)
		p.start(t, r)
		for _, w := range p.prefill.workers {
			send(t, w.client, kvproto.Sealed{Transfer: r.id})
		}
		p.prefill.pod.moves(r.id)
	}
	const most = 8 << 20
	grown := heap() - before
	t.Logf("%d transfers in flight keep %d bytes", transfers, grown)
	if grown > most {
		t.Errorf("%d transfers in flight keep %d bytes, more than %d", transfers, grown, most)
	}
	n.Thaw("prefill", "decode")
	p.decode.done(transfers)
	eventually(t, func() error {
		if _, body := p.prefill.pod.get("/debug/transfers"); strings.Contains(body, "tx-") {
			return fmt.Errorf("live: %.300s", body)
		}
		return nil
	})
	if grown := heap() - before; grown > most/2 {
		t.Errorf("%d transfers that have ended leave %d bytes", transfers, grown)
	}
}
