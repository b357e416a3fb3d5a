package session_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/session"
)

// TestScripts plays testdata/*.txt: each line of a block is an event for the
// prefill machine (p) or the decode machine (d), and what the machine wants done is
// recorded below. Messages between the two wait until "deliver"; copies and revokes
// until "copied" and "revoked". Run with -rewrite to record anew.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newScript()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "setup":
					return s.setup(t, d)
				case "run":
					return s.run(d.Input)
				}
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
				return ""
			})
		})
	}
}

// side is one machine of a script, and what waits for it.
type side struct {
	name    string
	shape   shape
	base    uint32 // of its memory ids
	machine session.Machine
	dials   []session.Peer
	orders  []session.CopyOrder
	inbox   []any // messages from the other side
}

type script struct {
	now  time.Time
	p, d *side
	out  strings.Builder
}

func newScript() *script {
	common := shape{tp: 1, dp: 1, dcp: 1, il: 1, block: 4, blocks: 16, pairing: "k", kind: kvlayout.MLA, kvHeads: 1, layers: 2}
	p, d := common, common
	p.role, p.host, p.epoch = kvlayout.Prefill, "p", 11
	d.role, d.host, d.epoch = kvlayout.Decode, "d", 21
	return &script{now: start, p: &side{name: "p", shape: p, base: 100}, d: &side{name: "d", shape: d, base: 200}}
}

// setup changes the shapes, makes both machines and brings both engines up.
func (s *script) setup(t *testing.T, d *datadriven.TestData) string {
	limits := session.Limits{}
	p, sd := &s.p.shape, &s.d.shape
	numbers := map[string][2]*int{
		"tp": {&p.tp, &sd.tp}, "dp": {&p.dp, &sd.dp}, "dcp": {&p.dcp, &sd.dcp}, "interleave": {&p.il, &sd.il},
		"block": {&p.block, &sd.block}, "layers": {&p.layers, &sd.layers}, "gqa": {&p.kvHeads, &sd.kvHeads},
		"transfers": {&limits.Transfers, &limits.Transfers}, "early": {&limits.Early, &limits.Early}, "blocks": {&limits.Blocks, &limits.Blocks},
	}
	for _, arg := range d.CmdArgs {
		both, ok := numbers[arg.Key]
		if !ok {
			d.Fatalf(t, "unknown argument %q", arg.Key)
		}
		// One value is for both sides, two are for prefill and decode.
		for i, into := range both {
			n, err := strconv.Atoi(arg.Vals[min(i, len(arg.Vals)-1)])
			if err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
			*into = n
		}
		if arg.Key == "gqa" {
			p.kind, sd.kind = kvlayout.GQA, kvlayout.GQA
		}
	}
	for _, x := range []*side{s.p, s.d} {
		cfg := x.shape.config()
		cfg.Limits = limits
		x.machine = newMachine(cfg, x.shape.role)
		if err := x.machine.Step(s.now, session.EngineReady{Ranks: x.shape.ranks(x.base)}); err != nil {
			d.Fatalf(t, "%s: %v", x.name, err)
		}
	}
	return ""
}

func (s *script) run(input string) string {
	s.out.Reset()
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		fmt.Fprintf(&s.out, "> %s\n", line)
		if err := s.command(strings.Fields(line)); err != nil {
			fmt.Fprintf(&s.out, "SCRIPT ERROR: %v\n", err)
		}
	}
	return s.out.String()
}

func (s *script) command(words []string) error {
	if words[0] == "tick" {
		return s.tick(words[1:])
	}
	self, other := s.p, s.d
	if words[0] == "d" {
		self, other = s.d, s.p
	}
	if len(words) < 2 || words[0] != self.name {
		return errors.New("a line begins with p, d or tick")
	}
	a, err := parseArgs(words[2:])
	if err != nil {
		return err
	}
	switch words[1] {
	case "deliver":
		return s.deliver(self, a)
	case "drop":
		fmt.Fprintf(&s.out, "  dropped %d\n", len(self.inbox))
		self.inbox = nil
		return nil
	case "handshake":
		return s.handshake(self, other, a)
	case "copied":
		return s.copied(self, a)
	case "restart":
		s.restart(self)
		return nil
	case "state":
		s.state(self, a.id)
		return nil
	}
	ev, err := event(words[1], a, self, other)
	if err == nil {
		s.step(self, ev)
	}
	return err
}

// event is the machine's event of a line that is nothing more than that.
func event(name string, a args, self, other *side) (session.Event, error) {
	switch name {
	case "revoked":
		return session.Revoked{Transfer: a.id}, nil
	case "peergone":
		return session.PeerGone{Peer: other.shape.peer()}, nil
	case "ready":
		self.base += uint32(a.int("memory"))
		return session.EngineReady{Ranks: self.shape.ranks(self.base)}, nil
	case "gone":
		return session.EngineGone{Conn: a.conn()}, nil
	}
	m, err := engineMessage(name, a, other.shape)
	if err != nil {
		return nil, err
	}
	return session.EngineMessage{Conn: a.connOf(m), Message: m}, nil
}

// step feeds one machine and shows what it wants done.
func (s *script) step(x *side, ev session.Event) {
	if err := x.machine.Step(s.now, ev); err != nil {
		var wrong *session.EventError
		if !errors.As(err, &wrong) {
			fmt.Fprintf(&s.out, "  SCRIPT ERROR: an untyped error: %v\n", err)
			return
		}
		fmt.Fprintf(&s.out, "  error %s: %s\n", wrong.Reason, wrong.Text)
	}
	s.drain(x)
}

func (s *script) drain(x *side) {
	r := x.machine.Ready()
	for _, n := range r.Notices {
		fmt.Fprintf(&s.out, "  tell %s %s\n", connText(n.Conn), noticeText(n.Message))
	}
	for _, m := range r.Messages {
		fmt.Fprintf(&s.out, "  send %s %s\n", m.Peer.Host, messageText(m.Message))
		to := s.p
		if m.Peer.Host == "d" {
			to = s.d
		}
		to.inbox = append(to.inbox, m.Message)
	}
	for _, p := range r.Dials {
		fmt.Fprintf(&s.out, "  dial %s\n", p.Host)
	}
	for _, o := range r.Copies {
		fmt.Fprintf(&s.out, "  copy %s\n", orderText(o))
	}
	for _, id := range r.Revokes {
		fmt.Fprintf(&s.out, "  revoke %s\n", id)
	}
	x.dials = append(x.dials, r.Dials...)
	x.orders = append(x.orders, r.Copies...)
}

// tick lets time pass and steps both machines at their deadlines on the way.
func (s *script) tick(words []string) error {
	by, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	until := s.now.Add(by)
	for {
		var next *side
		at := until
		for _, x := range []*side{s.p, s.d} {
			if due, ok := x.machine.Deadline(); ok && !due.After(at) && (next == nil || due.Before(at)) {
				next, at = x, due
			}
		}
		if next == nil {
			s.now = until
			return nil
		}
		s.now = at
		fmt.Fprintf(&s.out, " %s at %s\n", next.name, at.Sub(start))
		s.step(next, session.Tick{})
		if due, ok := next.machine.Deadline(); ok && !due.After(at) {
			return fmt.Errorf("%s has a deadline at %s that a tick does not clear", next.name, due.Sub(start))
		}
	}
}

// deliver hands over what waits for a side: all of it, n messages, or the "last" one;
// twice with "twice".
func (s *script) deliver(x *side, a args) error {
	n := len(x.inbox)
	if a.has("n") {
		n = min(n, a.int("n"))
	}
	now, rest := x.inbox[:n], x.inbox[n:]
	if a.has("last") {
		rest, now = x.inbox[:len(x.inbox)-1], x.inbox[len(x.inbox)-1:]
	}
	x.inbox = rest
	for _, m := range now {
		alter(m, a)
		s.step(x, session.PeerMessage{Message: m})
		if a.has("twice") {
			fmt.Fprintln(&s.out, " again")
			s.step(x, session.PeerMessage{Message: m})
		}
	}
	return nil
}

func (s *script) handshake(x, other *side, a args) error {
	if len(x.dials) == 0 {
		return errors.New("nobody dials")
	}
	ev := session.Handshaken{Peer: x.dials[0], Metadata: other.shape.metadata(other.base)}
	x.dials = x.dials[1:]
	switch {
	case a.has("fail"):
		ev.Metadata, ev.Err = nil, errors.New(a.values["fail"])
	case a.has("stock"):
		ev.Metadata.PDPool = nil
	case a.has("noranks"):
		ev.Metadata.PDPool.Ranks = nil
	case a.has("pairing"):
		ev.Metadata.PDPool.Pairing = a.values["pairing"]
	case a.has("dcp"):
		ev.Metadata.PDPool.Layout.DCP = a.int("dcp")
	case a.has("role"):
		ev.Metadata.PDPool.Role = x.shape.role
	case a.has("epoch"):
		ev.Metadata.PDPool.Epoch = uint64(a.int("epoch"))
	}
	s.step(x, ev)
	return nil
}

// copied answers copy orders: one by its number, or all open ones.
func (s *script) copied(x *side, a args) error {
	if a.id == "all" {
		open := x.orders
		x.orders = nil
		for _, o := range open {
			s.step(x, session.Copied{ID: o.ID, Moved: kvlayout.PlanBytes(o.Copies)})
		}
		return nil
	}
	id, err := strconv.Atoi(a.id)
	if err != nil {
		return err
	}
	ev := session.Copied{ID: session.CopyID(id)}
	for i, o := range x.orders {
		if o.ID == ev.ID {
			ev.Moved = kvlayout.PlanBytes(o.Copies)
			x.orders = append(x.orders[:i:i], x.orders[i+1:]...)
			break
		}
	}
	if a.has("fail") {
		ev.Moved, ev.Err = 0, errors.New(a.values["fail"])
	}
	if a.has("revoked") {
		ev.Moved, ev.Err, ev.Revoked = 0, errors.New("revoked"), true
	}
	s.step(x, ev)
	return nil
}

// restart replaces a machine by one of the next epoch; its open copies are gone.
func (s *script) restart(x *side) {
	x.shape.epoch++
	x.base += 50
	x.machine = newMachine(x.shape.config(), x.shape.role)
	x.dials, x.orders = nil, nil
	s.step(x, session.EngineReady{Ranks: x.shape.ranks(x.base)})
}

func (s *script) state(x *side, id string) {
	fmt.Fprintf(&s.out, "  live: %d\n", len(x.machine.Transfers()))
	t, ok := x.machine.Transfer(id)
	if !ok {
		fmt.Fprintf(&s.out, "  %s is not known\n", id)
		return
	}
	fmt.Fprintf(&s.out, "  %s %s %s tokens=%d started=%s", t.ID, t.Role, t.State, t.Tokens, t.Started.Sub(start))
	if !t.Ended.IsZero() {
		fmt.Fprintf(&s.out, " ended=%s", t.Ended.Sub(start))
	}
	if t.Rule != "" {
		fmt.Fprintf(&s.out, " %s: %s", t.Rule, t.Text)
	}
	fmt.Fprintln(&s.out)
	for _, f := range t.Flows {
		fmt.Fprintf(&s.out, "    %d/%d > %d/%d %s bytes=%d", f.WriterDP, f.WriterTP, f.ReaderDP, f.ReaderTP, f.State, f.Bytes)
		if !f.Ended.IsZero() {
			fmt.Fprintf(&s.out, " ended=%s", f.Ended.Sub(start))
		}
		fmt.Fprintln(&s.out)
	}
}
