package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// choices turns fuzz input into decisions. Numbers are mostly small, so that
// events meet the transfers, ranks and orders that exist.
type choices struct{ data []byte }

func (c *choices) byte() byte {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return b
}

func (c *choices) upTo(n int) int { return int(c.byte()) % n }

// number is small, or now and then wild.
func (c *choices) number() int {
	switch b := c.byte(); {
	case b < 200:
		return int(b) % 5
	case b < 220:
		return -int(b)
	case b < 240:
		return int(b) << 20
	default:
		return int(b) << 40
	}
}

func (c *choices) id() string {
	switch b := c.byte(); {
	case b < 240:
		return string(rune('a' + b%4))
	case b < 245:
		return ""
	default:
		return strings.Repeat("x", 300)
	}
}

func (c *choices) epoch() uint64 { return uint64(11 + 10*c.upTo(2) + c.upTo(2)) }

func (c *choices) peer() session.Peer {
	return session.Peer{Host: string(rune('p' - 12*(c.byte()%2))), Handshake: 1, Notify: 2 + c.upTo(2)}
}

func (c *choices) conn() session.Conn {
	kinds := []string{kvproto.Scheduler, kvproto.Scheduler, kvproto.Worker, kvproto.Worker, "other"}
	return session.Conn{Kind: kinds[c.upTo(len(kinds))], DP: c.upTo(2), TP: c.upTo(3)}
}

func (c *choices) blocks() []int32 {
	ids := make([]int32, c.upTo(4))
	for i := range ids {
		ids[i] = int32(c.number())
	}
	return ids
}

func (c *choices) err() error {
	if c.upTo(3) == 0 {
		return errors.New("broken")
	}
	return nil
}

func (c *choices) engineMessage() kvproto.Message {
	id := c.id()
	switch c.upTo(8) {
	case 0:
		return kvproto.Expect{Transfer: id, Tokens: c.number(), Hash: []byte{c.byte() % 2}}
	case 1:
		return kvproto.Hold{Transfer: id, Blocks: c.blocks(), Tokens: c.number()}
	case 2:
		return kvproto.Save{Transfer: id, Layer: c.number()}
	case 3:
		return kvproto.Sealed{Transfer: id}
	case 4:
		return kvproto.Abort{Transfer: id}
	case 5:
		p := c.peer()
		return kvproto.Receive{
			Transfer: id, Blocks: c.blocks(), FirstToken: c.number(), Tokens: c.number(),
			Peer: kvproto.Peer{Host: p.Host, Handshake: p.Handshake, Notify: p.Notify, DP: c.number()},
		}
	case 6:
		return kvproto.Ready{}
	}
	return nil
}

func (c *choices) peerMessage() any {
	id := c.id()
	report := func() *moriio.Report {
		if c.upTo(8) == 0 {
			return nil
		}
		r := &moriio.Report{Epoch: c.epoch(), WriterDP: c.upTo(2), WriterTP: c.number(), ReaderTP: c.number(), Bytes: int64(c.number())}
		if c.upTo(4) == 0 {
			r.WriterTP, r.ReaderTP = session.AllRanks, session.AllRanks
		}
		return r
	}
	switch c.upTo(6) {
	case 0:
		m := &moriio.RemoteBlocks{Transfer: id, Blocks: c.blocks(), DecodeRank: c.upTo(3)}
		if p := c.peer(); c.upTo(8) > 0 {
			m.PDPool = &moriio.Allocation{
				Epoch: c.epoch(), PeerEpoch: 11, Host: p.Host, Handshake: p.Handshake, Notify: p.Notify,
				PrefillDP: c.upTo(2), FirstToken: c.number(), Tokens: c.number(),
			}
		}
		return m
	case 1:
		return &moriio.WriteDone{Transfer: id, PDPool: report()}
	case 2:
		return &moriio.WriteFailed{Transfer: id, PDPool: report()}
	case 3:
		m := &moriio.Release{Transfer: id}
		if c.upTo(8) > 0 {
			m.PDPool = &moriio.Released{Epoch: c.epoch(), Rule: []string{"", "aborted"}[c.upTo(2)]}
		}
		return m
	case 4:
		return nil
	}
	return "garbage"
}

// metadata is the other side's, with some of it changed.
func (c *choices) metadata(other shape) *moriio.Metadata {
	m := other.metadata(300)
	a := m.PDPool
	a.Epoch = c.epoch()
	switch c.upTo(12) {
	case 0:
		m.PDPool = nil
	case 1:
		a.Ranks = a.Ranks[:c.upTo(len(a.Ranks))]
	case 2:
		a.Layout = kvlayout.Layout{TP: c.number(), DP: c.number(), DCP: c.number(), Interleave: c.number()}
	case 3:
		a.Block = c.number()
	case 4:
		a.Ranks[0].Regions = a.Ranks[0].Regions[:c.upTo(2)]
	case 5:
		r := &a.Ranks[0].Regions[0]
		*r = kvlayout.Region{
			Layer: c.number(), Offset: int64(c.number()), BlockStride: int64(c.number()), Blocks: c.number(), BlockTokens: c.number(),
			Heads: kvlayout.HeadRange{First: c.number(), Count: c.number()}, HeadStride: int64(c.number()), TokenStride: int64(c.number()), RowBytes: int64(c.number()),
		}
	case 6:
		a.DPStart = c.number()
	}
	return m
}

func (c *choices) event(other shape, self shape, lastOrder session.CopyID) session.Event {
	switch c.upTo(12) {
	case 0, 1, 2, 3:
		return session.EngineMessage{Conn: c.conn(), Message: c.engineMessage()}
	case 4, 5:
		return session.PeerMessage{Message: c.peerMessage()}
	case 6:
		ev := session.Handshaken{Peer: c.peer(), Err: c.err()}
		if c.upTo(6) > 0 {
			ev.Metadata = c.metadata(other)
		}
		return ev
	case 7:
		return session.PeerGone{Peer: c.peer()}
	case 8:
		return session.Copied{ID: lastOrder - session.CopyID(c.upTo(3)), Moved: int64(c.number()), Err: c.err()}
	case 9:
		return session.Revoked{Transfer: c.id()}
	case 10:
		if c.upTo(3) == 0 {
			return session.EngineGone{Conn: c.conn()}
		}
		ranks := self.ranks(100 + uint32(c.upTo(2)))
		return session.EngineReady{Ranks: ranks[:len(ranks)-c.upTo(2)]}
	}
	return session.Tick{}
}

// FuzzMachines feeds machines with arbitrary events: none may crash one, and each
// error has a reason.
func FuzzMachines(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Add([]byte{0, 10, 0, 0, 0, 1, 1, 0, 3, 1, 4, 0, 0, 2, 1, 0, 1, 0, 6, 0, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, prefill := range []bool{true, false} {
			c := &choices{data: data}
			shapes := simPairs[c.upTo(len(simPairs))]
			p, d := shapes[0], shapes[1]
			p.role, p.host, p.epoch = kvlayout.Prefill, "p", 11
			d.role, d.host, d.epoch = kvlayout.Decode, "d", 21
			self, other := p, d
			if !prefill {
				self, other = d, p
			}
			drive(t, c, self, other)
		}
	})
}

func drive(t *testing.T, c *choices, self, other shape) {
	cfg := self.config()
	cfg.Limits = session.Limits{Transfers: 3, Early: 2, Blocks: 3, Peers: 2}
	m := newMachine(cfg, self.role)
	now := start
	if err := m.Step(now, session.EngineReady{Ranks: self.ranks(100)}); err != nil {
		t.Fatal(err)
	}
	var last session.CopyID
	for range 400 {
		if len(c.data) == 0 {
			break
		}
		now = now.Add(time.Duration(c.upTo(16)) * time.Second)
		err := m.Step(now, c.event(other, self, last))
		var wrong *session.EventError
		if err != nil && (!errors.As(err, &wrong) || wrong.Reason == "" || wrong.Text == "") {
			t.Fatalf("error %T %v", err, err)
		}
		for _, o := range m.Ready().Copies {
			if o.ID <= last || len(o.Copies) == 0 {
				t.Fatalf("copy order %d after %d, with %d copies", o.ID, last, len(o.Copies))
			}
			last = o.ID
		}
		if due, ok := m.Deadline(); ok && !due.After(now) {
			t.Fatalf("the deadline %s has passed at %s", due, now)
		}
		if n := len(m.Transfers()); n > 3 {
			t.Fatalf("%d transfers are live", n)
		}
	}
}
