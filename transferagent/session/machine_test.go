package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/fault"
	"github.com/pdpool/pdpool/transferagent/fault/faultplan"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// side of one machine, for tests without a script.
func up(t *testing.T, sh shape, change func(*session.Config)) session.Machine {
	t.Helper()
	cfg := sh.config()
	if change != nil {
		change(&cfg)
	}
	m := newMachine(cfg, sh.role)
	step(t, m, session.EngineReady{Ranks: sh.ranks(100)})
	return m
}

func step(t *testing.T, m session.Machine, ev session.Event) session.Ready {
	t.Helper()
	if err := m.Step(start, ev); err != nil {
		t.Fatalf("%T: %v", ev, err)
	}
	return m.Ready()
}

func fanIn() (p, d shape) {
	p = shape{tp: 2, dp: 1, dcp: 1, il: 1, block: 4, blocks: 16, pairing: "k", kind: kvlayout.GQA, kvHeads: 2, layers: 1, role: kvlayout.Prefill, host: "p", epoch: 11}
	d = p
	d.tp, d.role, d.host, d.epoch = 1, kvlayout.Decode, "d", 21
	return p, d
}

func TestFirstWriterEnds(t *testing.T) {
	p, d := fanIn()
	m := up(t, d, func(c *session.Config) { c.FirstWriterEnds = true })
	step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
		Transfer: "a", Blocks: []int32{1}, Tokens: 4, Peer: kvproto.Peer{Host: "p", Handshake: 1, Notify: 2},
	}})
	step(t, m, session.Handshaken{Peer: p.peer(), Metadata: p.metadata(1)})
	r := step(t, m, session.PeerMessage{Message: &moriio.WriteDone{Transfer: "a", PDPool: &moriio.Report{Epoch: 11, WriterTP: 1}}})
	if len(r.Notices) != 2 {
		t.Fatalf("the worker and the scheduler are not told at the first of two writers: %+v", r.Notices)
	}
}

// TestPlanIsReplaced: with copies off nothing is posted and everything looks well,
// which is what the check of the rows has to find.
func TestPlanIsReplaced(t *testing.T) {
	p, d := fanIn()
	f, err := fault.Parse([]string{fault.CopiesOff})
	if err != nil {
		t.Fatal(err)
	}
	m := up(t, p, func(c *session.Config) { c.Plan = faultplan.Break(kvlayout.WritePlan, f) })
	step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: "a", Blocks: []int32{1}, Tokens: 4}})
	step(t, m, session.PeerMessage{Message: &moriio.RemoteBlocks{Transfer: "a", Blocks: []int32{2}, PDPool: &moriio.Allocation{
		Epoch: 21, PeerEpoch: 11, Host: "d", Handshake: 1, Notify: 2, Tokens: 4,
	}}})
	step(t, m, session.Handshaken{Peer: d.peer(), Metadata: d.metadata(1)})
	step(t, m, session.EngineMessage{Conn: worker(0, 0), Message: kvproto.Sealed{Transfer: "a"}})
	r := step(t, m, session.EngineMessage{Conn: worker(0, 1), Message: kvproto.Sealed{Transfer: "a"}})
	if len(r.Copies) != 0 || len(r.Messages) != 1 || len(r.Notices) != 3 {
		t.Fatalf("with copies off: %+v", r)
	}
}

// What decode has let go takes the place of nobody's ask, with blocks or without.
func TestReleasedAsksLeaveRoom(t *testing.T) {
	p, d := fanIn()
	m := up(t, p, func(c *session.Config) { c.Limits.Early = 8 })
	ask := func(id string) error {
		return m.Step(start, session.PeerMessage{Message: &moriio.RemoteBlocks{Transfer: id, Blocks: []int32{2}, PDPool: &moriio.Allocation{
			Epoch: d.epoch, PeerEpoch: p.epoch, Host: "d", Handshake: 1, Notify: 2, Tokens: 4,
		}}})
	}
	release := func(id string) {
		step(t, m, session.PeerMessage{Message: &moriio.Release{Transfer: id, PDPool: &moriio.Released{Epoch: d.epoch, Rule: session.RuleAborted, Text: "gone"}}})
	}
	for i := range 20 {
		id := fmt.Sprintf("left-%d", i)
		if err := ask(id); err != nil {
			t.Fatal(err)
		}
		if m.Asked() != 1 {
			t.Fatalf("%d transfers are asked for", m.Asked())
		}
		release(id)
		release(fmt.Sprintf("unseen-%d", i))
	}
	for i := range 8 {
		if err := ask(fmt.Sprintf("good-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("one-more"); err == nil || m.Asked() != 8 {
		t.Fatalf("error %v with %d transfers asked for", err, m.Asked())
	}
	// The engine hears of what was released when it comes to it; the oldest words without
	// blocks have made room for newer ones.
	for id, want := range map[string]bool{"left-0": true, "left-19": true, "unseen-19": true, "unseen-12": true, "unseen-11": false} {
		r := step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: id, Blocks: []int32{1}, Tokens: 4}})
		if told := len(r.Notices) > 0; told != want {
			t.Errorf("%s: the engine is told of the release: %v", id, r.Notices)
		}
	}
}

// TestRememberedTransfers: the newest 4096 are known; using one keeps it.
func TestRememberedTransfers(t *testing.T) {
	p, _ := fanIn()
	m := up(t, p, nil)
	abort := func(i int) {
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Abort{Transfer: fmt.Sprint(i)}})
	}
	for i := range session.Remembered {
		abort(i)
	}
	abort(0)
	for i := range 2 {
		abort(session.Remembered + i)
	}
	for id, known := range map[string]bool{"0": true, "1": false, "2": false, "3": true, fmt.Sprint(session.Remembered + 1): true} {
		if _, ok := m.Transfer(id); ok != known {
			t.Errorf("transfer %s is known: %t", id, ok)
		}
	}
}

// TestDeadlineIsNotPolled: an idle machine wants no Tick.
func TestDeadlineIsNotPolled(t *testing.T) {
	p, d := fanIn()
	for _, sh := range []shape{p, d} {
		m := up(t, sh, nil)
		if at, ok := m.Deadline(); ok {
			t.Errorf("an idle %s wants a tick at %s", sh.role, at)
		}
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Expect{Transfer: "a", Tokens: 4}})
		if _, ok := m.Deadline(); !ok {
			t.Errorf("a %s that waits has no deadline", sh.role)
		}
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Abort{Transfer: "a"}})
		if at, ok := m.Deadline(); ok {
			t.Errorf("an idle %s wants a tick at %s", sh.role, at)
		}
	}
}

// TestPeersAreBounded: metadata of unused peers makes room, that of used ones stays.
func TestPeersAreBounded(t *testing.T) {
	p, d := fanIn()
	m := up(t, d, func(c *session.Config) { c.Limits.Peers = 3 })
	now := start
	ask := func(id, host string) session.Ready {
		t.Helper()
		now = now.Add(time.Millisecond)
		if err := m.Step(now, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
			Transfer: id, Blocks: []int32{1}, Tokens: 4, Peer: kvproto.Peer{Host: host, Handshake: 1, Notify: 2},
		}}); err != nil {
			t.Fatal(err)
		}
		r := m.Ready()
		for _, at := range r.Dials {
			step(t, m, session.Handshaken{Peer: at, Metadata: p.metadata(1)})
		}
		return r
	}
	if r := ask("live", "used"); len(r.Dials) != 1 {
		t.Fatalf("the first transfer dials %v", r.Dials)
	}
	for i := range 10 {
		id := fmt.Sprint(i)
		ask(id, "host"+id)
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Abort{Transfer: id}})
		step(t, m, session.Revoked{Transfer: id})
	}
	if r := ask("again", "used"); len(r.Dials) != 0 {
		t.Error("a peer with a live transfer was forgotten")
	}
	if r := ask("newest", "host9"); len(r.Dials) != 0 {
		t.Error("the newest peer was forgotten")
	}
	if r := ask("oldest", "host0"); len(r.Dials) != 1 {
		t.Error("the oldest peer was kept")
	}
}

// TestNeededPeers: a peer is needed from the first that a transfer has to do with it to
// the transfer's end, also by an ask ahead of the own engine.
func TestNeededPeers(t *testing.T) {
	p, d := fanIn()
	prefill, decode := up(t, p, nil), up(t, d, nil)
	needs := func(what string, m session.Machine, at session.Peer, want bool) {
		t.Helper()
		if m.Needs(at) != want || m.Needs(session.Peer{Host: "other", Handshake: 1, Notify: 2}) {
			t.Errorf("%s: needed is %v", what, !want)
		}
	}
	ask := session.PeerMessage{Message: &moriio.RemoteBlocks{Transfer: "a", Blocks: []int32{1}, PDPool: &moriio.Allocation{
		Epoch: d.epoch, PeerEpoch: p.epoch, Host: d.host, Handshake: 1, Notify: 2, Tokens: 4,
	}}}
	needs("before anything", prefill, d.peer(), false)
	step(t, prefill, ask)
	needs("asked ahead", prefill, d.peer(), true)
	step(t, prefill, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: "a", Blocks: []int32{1}, Tokens: 4}})
	needs("held", prefill, d.peer(), true)
	step(t, prefill, session.Handshaken{Peer: d.peer(), Metadata: d.metadata(1)})
	step(t, prefill, session.PeerMessage{Message: &moriio.Release{Transfer: "a", PDPool: &moriio.Released{Epoch: d.epoch, Rule: "aborted"}}})
	needs("released", prefill, d.peer(), false)
	step(t, decode, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
		Transfer: "a", Blocks: []int32{1}, Tokens: 4, Peer: kvproto.Peer{Host: p.host, Handshake: 1, Notify: 2},
	}})
	needs("asked for", decode, p.peer(), true)
	step(t, decode, session.Handshaken{Peer: p.peer(), Err: errors.New("no answer")})
	needs("failed", decode, p.peer(), false)
}

// TestRestlessConnections: decode's blocks are not quiet for a connection that comes back
// until the transfers of the one before have been revoked.
func TestRestlessConnections(t *testing.T) {
	p, d := fanIn()
	m := up(t, d, nil)
	step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
		Transfer: "a", Blocks: []int32{1}, Tokens: 4, Peer: kvproto.Peer{Host: p.host, Handshake: 1, Notify: 2},
	}})
	step(t, m, session.Handshaken{Peer: p.peer(), Metadata: p.metadata(1)})
	restless := func(what string, want bool) {
		t.Helper()
		if m.Restless(scheduler(0)) != want || m.Restless(worker(0, 0)) {
			t.Errorf("%s: the scheduler's is restless: %v", what, !want)
		}
	}
	restless("under way", false)
	step(t, m, session.EngineGone{Conn: scheduler(0)})
	restless("lost", true)
	step(t, m, session.Revoked{Transfer: "a"})
	restless("revoked", false)
}

// TestLongTextsAreCut: nothing that a peer says makes a message that an engine or
// peer would refuse.
func TestLongTextsAreCut(t *testing.T) {
	p, _ := fanIn()
	m := up(t, p, nil)
	step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: "a", Blocks: []int32{1}, Tokens: 4}})
	r := step(t, m, session.PeerMessage{Message: &moriio.Release{Transfer: "a", PDPool: &moriio.Released{
		Epoch: 21, Rule: "aborted", Text: strings.Repeat("ü", kvproto.MaxText),
	}}})
	failed, ok := r.Notices[len(r.Notices)-1].Message.(kvproto.Failed)
	if !ok || len(failed.Text) != kvproto.MaxText {
		t.Fatalf("a text of %d bytes reaches the engine", len(failed.Text))
	}
}

// TestEngineReadyIsChecked: ranks that the layout does not have are refused whole.
func TestEngineReadyIsChecked(t *testing.T) {
	p, _ := fanIn()
	good := p.ranks(1)
	for name, ranks := range map[string][]moriio.AgentRank{
		"none":            nil,
		"half a group":    good[:1],
		"a rank twice":    {good[0], good[0]},
		"another dp":      {good[0], {DP: 1, TP: 1, Memory: 2, Regions: good[1].Regions}},
		"another tp":      {good[0], {DP: 0, TP: 2, Memory: 2, Regions: good[1].Regions}},
		"no region":       {good[0], {DP: 0, TP: 1, Memory: 2}},
		"two of a region": {good[0], {DP: 0, TP: 1, Memory: 2, Regions: append(good[1].Regions[:1:1], good[1].Regions[0])}},
	} {
		m := newMachine(p.config(), p.role)
		if err := m.Step(start, session.EngineReady{Ranks: ranks}); err == nil {
			t.Errorf("%s was taken", name)
		}
		if err := m.Step(start, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Abort{Transfer: "a"}}); err == nil {
			t.Errorf("after %s the engine counts as up", name)
		}
	}
}

// TestMetadataIsKeptAsFarAsItServes: of a peer that is refused nothing but why, and
// ranks and regions beyond its layout and the model are refused.
func TestMetadataIsKeptAsFarAsItServes(t *testing.T) {
	p, d := fanIn()
	for _, c := range []struct {
		rule   string
		kept   int // at prefill
		change func(*moriio.Agent)
	}{
		{"", 1, func(*moriio.Agent) {}},
		{session.RulePairing, 0, func(a *moriio.Agent) { a.Pairing = "other" }},
		{session.RulePeerRanks, 0, func(a *moriio.Agent) { a.Ranks = append(a.Ranks, a.Ranks[0]) }},
		{session.RuleRegions, 0, func(a *moriio.Agent) {
			a.Ranks[0].Regions = append(a.Ranks[0].Regions, a.Ranks[0].Regions...)
		}},
		{session.RuleRegions, 0, func(a *moriio.Agent) { a.Ranks[0].Regions = nil }},
	} {
		m := up(t, p, nil)
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Hold{Transfer: "a", Blocks: []int32{1}, Tokens: 4}})
		step(t, m, session.PeerMessage{Message: &moriio.RemoteBlocks{Transfer: "a", Blocks: []int32{2}, PDPool: &moriio.Allocation{
			Epoch: 21, PeerEpoch: 11, Host: "d", Handshake: 1, Notify: 2, Tokens: 4,
		}}})
		said := d.metadata(1)
		c.change(said.PDPool)
		step(t, m, session.Handshaken{Peer: d.peer(), Metadata: said})
		if v, _ := m.Transfer("a"); v.Rule != c.rule || session.KeptRegions(m) != c.kept {
			t.Errorf("prefill ends by %q, not %q, and keeps %d regions, not %d", v.Rule, c.rule, session.KeptRegions(m), c.kept)
		}
		m = up(t, d, nil)
		step(t, m, session.EngineMessage{Conn: scheduler(0), Message: kvproto.Receive{
			Transfer: "a", Blocks: []int32{1}, Tokens: 4, Peer: kvproto.Peer{Host: "p", Handshake: 1, Notify: 2},
		}})
		said = p.metadata(1)
		c.change(said.PDPool)
		step(t, m, session.Handshaken{Peer: p.peer(), Metadata: said})
		if v, _ := m.Transfer("a"); v.Rule != c.rule || session.KeptRegions(m) != 0 {
			t.Errorf("decode ends by %q, not %q, and keeps %d regions", v.Rule, c.rule, session.KeptRegions(m))
		}
	}
}
