package session_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// deep is a pair of the size of a large model: 8 ranks of 61 layers on both sides,
// tokens dealt one by one.
func deep(blocks int) (p, d shape) {
	p = shape{tp: 8, dp: 1, dcp: 1, il: 1, block: 16, blocks: blocks, pairing: "k", kind: kvlayout.MLA, layers: 61, role: kvlayout.Prefill, host: "p", epoch: 11}
	d = p
	d.dcp, d.role, d.host, d.epoch = 8, kvlayout.Decode, "d", 21
	return p, d
}

// allocated is what f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// heap is what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func counted(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// ask is decode's word where it wants a transfer.
func (s shape) ask(id string, tokens int) *moriio.RemoteBlocks {
	return &moriio.RemoteBlocks{
		Transfer: id, Blocks: counted(tokens / s.block / s.dcp), PDPool: &moriio.Allocation{
			Epoch: s.epoch, PeerEpoch: 11, Host: s.host, Handshake: 1, Notify: 2, Tokens: tokens,
		},
	}
}

// asks has decode at host d ask prefill for a transfer, and answers the handshake.
func asks(t *testing.T, m session.Machine, d shape, id string, tokens int) session.Ready {
	t.Helper()
	r := step(t, m, session.PeerMessage{Message: d.ask(id, tokens)})
	for _, at := range r.Dials {
		r = step(t, m, session.Handshaken{Peer: at, Metadata: d.metadata(1)})
	}
	return r
}

func holds(t *testing.T, m session.Machine, p shape, id string, tokens int) {
	t.Helper()
	step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: id, Blocks: counted(tokens / p.block), Tokens: tokens}})
}

// TestLongPromptsArePlannedAsTheyMove: what one event makes is bounded, however much is
// complete by it, and all of it moves in the end.
func TestLongPromptsArePlannedAsTheyMove(t *testing.T) {
	const tokens = 128 << 10
	p, d := deep(tokens / 16)
	m := up(t, p, nil)
	holds(t, m, p, "a", tokens)
	asks(t, m, d, "a", tokens)
	var open []session.CopyOrder
	most := int64(0)
	stepped := func(ev session.Event) {
		t.Helper()
		most = max(most, allocated(func() { open = append(open, step(t, m, ev).Copies...) }))
	}
	orders, bytes := 0, map[int]int64{}
	for tp := range p.tp {
		stepped(session.EngineMessage{Conn: worker(0, tp), Message: kvproto.Sealed{Transfer: "a"}})
	}
	for len(open) > 0 {
		pieces := 0
		for _, o := range open {
			pieces += len(o.Copies)
		}
		if pieces > 1<<15+tokens/16 {
			t.Fatalf("%d pieces in %d orders are open", pieces, len(open))
		}
		o := open[0]
		open = slices.Delete(open, 0, 1)
		orders++
		for _, c := range o.Copies {
			bytes[o.ReaderTP] += c.Length * int64(c.Count)
		}
		stepped(session.Copied{ID: o.ID})
	}
	row := kvlayout.RowBytes(p.geometry(), kvlayout.BF16)
	for tp := range d.tp {
		if want := int64(tokens/d.dcp*p.layers) * row; bytes[tp] != want {
			t.Errorf("rank %d got %d bytes, not %d", tp, bytes[tp], want)
		}
	}
	if v, _ := m.Transfer("a"); v.State != session.Ended || orders != d.tp*p.layers {
		t.Errorf("after %d orders: %+v", orders, v)
	}
	if most > 8<<20 {
		t.Errorf("one event makes %d bytes", most)
	}
	t.Logf("one event makes up to %d bytes", most)
}

// TestPromptsInFlightKeepLittle: 64 prompts of which nothing moves.
func TestPromptsInFlightKeepLittle(t *testing.T) {
	const tokens, transfers = 8 << 10, 64
	p, d := deep(tokens / 16)
	m := up(t, p, nil)
	before := heap()
	var open []session.CopyOrder
	for i := range transfers {
		id := fmt.Sprint(i)
		holds(t, m, p, id, tokens)
		open = append(open, asks(t, m, d, id, tokens).Copies...)
		for tp := range p.tp {
			open = append(open, step(t, m, session.EngineMessage{Conn: worker(0, tp), Message: kvproto.Sealed{Transfer: id}}).Copies...)
		}
	}
	kept := heap() - before
	t.Logf("%d transfers keep %d bytes, %d orders are open", transfers, kept, len(open))
	if kept > 4<<20 {
		t.Errorf("%d transfers keep %d bytes, %d orders are open", transfers, kept, len(open))
	}
	for len(open) > 0 {
		o := open[0]
		open = append(open[1:], step(t, m, session.Copied{ID: o.ID}).Copies...)
	}
	if left := session.Leftovers(m, false); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestSlowPeersLeaveRoom: however many peers take nothing, another one gets what is its.
func TestSlowPeersLeaveRoom(t *testing.T) {
	const tokens = 1 << 10
	p, d := deep(tokens / 16)
	m := up(t, p, func(c *session.Config) { c.Limits.LivePieces = 1 })
	for i := range 5 {
		id := fmt.Sprint(i)
		d.host = "d" + id
		holds(t, m, p, id, tokens)
		asks(t, m, d, id, tokens)
		r := step(t, m, session.EngineMessage{Conn: worker(0, 0), Message: kvproto.Sealed{Transfer: id}})
		if len(r.Copies) != 1 || r.Copies[0].Peer.Host != d.host {
			t.Fatalf("%d orders for %s", len(r.Copies), d.host)
		}
		if v, _ := m.Transfer(id); v.State != session.Moving {
			t.Errorf("transfer %s is %+v", id, v)
		}
		if i == 4 {
			for moved := 1; moved < p.layers; moved++ {
				if r = step(t, m, session.Copied{ID: r.Copies[0].ID}); len(r.Copies) != 1 {
					t.Fatalf("%d orders after %d layers", len(r.Copies), moved)
				}
			}
		}
	}
}

// TestWaitingForRoomHasADeadline: a transfer of which nothing is open yet ends as one
// whose copies do not end.
func TestWaitingForRoomHasADeadline(t *testing.T) {
	const tokens = 1 << 10
	p, d := deep(tokens / 16)
	m := up(t, p, func(c *session.Config) { c.Limits.Orders = 1 })
	for i := range 2 {
		id := fmt.Sprint(i)
		holds(t, m, p, id, tokens)
		asks(t, m, d, id, tokens)
		for tp := range p.tp {
			step(t, m, session.EngineMessage{Conn: worker(0, tp), Message: kvproto.Sealed{Transfer: id}})
		}
	}
	if err := m.Step(start.Add(timeouts.Transfer), session.Tick{}); err != nil {
		t.Fatal(err)
	}
	for id, state := range map[string]session.State{"0": session.Failing, "1": session.Broken} {
		if v, _ := m.Transfer(id); v.Rule != session.RuleTransferDeadline || v.State != state {
			t.Errorf("transfer %s is %+v", id, v)
		}
	}
}

// TestWaitingForRoomBeginsWithTheWait: prefill may be ready long before decode names its
// blocks. What waits for room then has all of its time yet.
func TestWaitingForRoomBeginsWithTheWait(t *testing.T) {
	const tokens = 1 << 10
	p, d := deep(tokens / 16)
	m := up(t, p, func(c *session.Config) { c.Limits.Orders = 1 })
	at := func(after time.Duration, ev session.Event) []session.CopyOrder {
		t.Helper()
		if err := m.Step(start.Add(after), ev); err != nil {
			t.Fatal(err)
		}
		return m.Ready().Copies
	}
	seal := func(after time.Duration, id string) {
		t.Helper()
		at(after, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: id, Blocks: counted(tokens / p.block), Tokens: tokens}})
		for tp := range p.tp {
			at(after, session.EngineMessage{Conn: worker(0, tp), Message: kvproto.Sealed{Transfer: id}})
		}
	}
	const late = 50 * time.Second // less than timeouts.Defer, more than timeouts.Transfer
	seal(0, "early")
	seal(late, "busy")
	at(late, session.PeerMessage{Message: d.ask("busy", tokens)})
	open := at(late, session.Handshaken{Peer: d.peer(), Metadata: d.metadata(1)})
	open = append(open, at(late, session.PeerMessage{Message: d.ask("early", tokens)})...)
	if v, _ := m.Transfer("early"); v.State != session.Moving {
		t.Fatalf("while another one is copied it is %+v", v)
	}
	at(late+timeouts.Transfer-1, session.Tick{})
	for len(open) > 0 {
		open = append(open[1:], at(late+timeouts.Transfer-1, session.Copied{ID: open[0].ID})...)
	}
	if v, _ := m.Transfer("early"); v.State != session.Ended {
		t.Errorf("in the end it is %+v", v)
	}
}

// TestTransfersEndOnce: what becomes of one transfer may make room for another and end it,
// while all of them are looked at.
func TestTransfersEndOnce(t *testing.T) {
	p, d := fanIn()
	other := d
	other.host, other.epoch = "e", 22
	m := up(t, p, func(c *session.Config) { c.Limits.LivePieces = 2 })
	seal := func(id string, tp int) []session.CopyOrder {
		t.Helper()
		return step(t, m, session.EngineMessage{Conn: worker(0, tp), Message: kvproto.Sealed{Transfer: id}}).Copies
	}
	holds(t, m, p, "elsewhere", 4)
	asks(t, m, other, "elsewhere", 4)
	open := seal("elsewhere", 0)
	holds(t, m, p, "first", 4)
	asks(t, m, d, "first", 4)
	if len(open) != 1 || len(seal("first", 0)) != 1 || len(seal("first", 1)) != 0 {
		t.Fatal("there is no room for just one order with each peer")
	}
	holds(t, m, p, "second", 4)
	nothing := d.ask("second", 4)
	nothing.PDPool.FirstToken = 4
	step(t, m, session.PeerMessage{Message: nothing})
	seal("second", 0)
	seal("second", 1)
	step(t, m, session.Copied{ID: open[0].ID})
	r := step(t, m, session.EngineGone{Conn: worker(0, 1)})
	ended := map[string]int{}
	for _, e := range r.Ended {
		ended[e.ID]++
	}
	if ended["second"] != 1 {
		t.Errorf("the second one ends %d times: %+v", ended["second"], r)
	}
}

// TestPeersShareShapes: the pods of a pool have their layers in the same places.
func TestPeersShareShapes(t *testing.T) {
	const peers = 256
	p, d := deep(64)
	m := up(t, p, nil)
	before := heap()
	for i := range peers {
		id := fmt.Sprint(i)
		d.host, d.epoch = "d"+id, uint64(1000+i)
		holds(t, m, p, id, 1024)
		asks(t, m, d, id, 1024)
		step(t, m, session.PeerMessage{Message: &moriio.Release{Transfer: id, PDPool: &moriio.Released{Epoch: d.epoch}}})
	}
	kept := (heap() - before) / peers
	t.Logf("a peer keeps %d bytes", kept)
	if n := session.KeptRegions(m); n != p.layers || kept > 6<<10 {
		t.Errorf("%d peers keep %d regions, and %d bytes each", peers, n, kept)
	}
}

// TestLiveBlocksAreBounded: the lists of blocks of all live transfers, on both sides.
func TestLiveBlocksAreBounded(t *testing.T) {
	p, d := fanIn()
	few := func(c *session.Config) { c.Limits.LiveBlocks = 3 }
	hold := func(m session.Machine, id string, blocks int) {
		t.Helper()
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: id, Blocks: counted(blocks), Tokens: 4}})
	}
	rule := func(m session.Machine, id, want string) {
		t.Helper()
		if v, _ := m.Transfer(id); v.Rule != want {
			t.Errorf("transfer %s is %+v", id, v)
		}
	}
	m := up(t, p, few)
	hold(m, "a", 2)
	hold(m, "b", 2)
	rule(m, "a", "")
	rule(m, "b", session.RuleBlocksLimit)
	d.dcp = 1
	r := asks(t, m, d, "a", 8) // two more
	rule(m, "a", session.RuleBlocksLimit)
	if _, failed := r.Messages[0].Message.(*moriio.WriteFailed); !failed || len(r.Messages) != 1 {
		t.Errorf("decode is told %+v", r.Messages)
	}
	hold(m, "c", 3)
	rule(m, "c", "")

	m = up(t, d, few)
	receive := func(id string, blocks int) {
		t.Helper()
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
			Transfer: id, Blocks: counted(blocks), Tokens: 4, Peer: kvproto.Peer{Host: "p", Handshake: 1, Notify: 2},
		}})
	}
	receive("a", 2)
	receive("b", 2)
	rule(m, "a", "")
	rule(m, "b", session.RuleBlocksLimit)
	// Prefill that was asked has the list.
	step(t, m, session.Handshaken{Peer: p.peer(), Metadata: p.metadata(1)})
	receive("c", 3)
	rule(m, "c", "")
	if at, ok := m.Deadline(); !ok || at.Sub(start) > time.Hour {
		t.Errorf("the next deadline is %v", at)
	}
}
