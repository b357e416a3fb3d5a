package transferagent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// secret is one of the pool secrets of a test.
func secret(name string) []byte { return bytes.Repeat([]byte(name), poolkey.MinSecret) }

// keyDir makes the folder that the operator mounts; previous may be empty.
func keyDir(t *testing.T, key, previous string) string {
	t.Helper()
	dir := t.TempDir()
	writeKeys(t, dir, key, previous)
	return dir
}

func writeKeys(t *testing.T, dir, key, previous string) {
	t.Helper()
	files := map[string][]byte{agentconfig.KeyFile: secret(key), agentconfig.TokenFile: []byte("open-" + key + "\n")}
	if previous != "" {
		files[agentconfig.PreviousKeyFile] = secret(previous)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startKeyed starts a pair whose sides have these folders of secrets.
func startKeyed(t *testing.T, backend agentconfig.Backend, prefill, decode string) *pair {
	t.Helper()
	pc, dc := podConfig(t, kvlayout.Prefill, latent, plain), podConfig(t, kvlayout.Decode, latent, dealt)
	pc.KeyDir, dc.KeyDir = prefill, decode
	if backend == agentconfig.SharedMemory {
		pc.Backend, dc.Backend, pc.SharedDir = backend, backend, t.TempDir()
		dc.SharedDir = pc.SharedDir
	}
	pp, dp := startPod(t, pc, nil), startPod(t, dc, nil)
	return &pair{prefill: pp.connect(), decode: dp.connect()}
}

func TestPoolsWithASecretServe(t *testing.T) {
	for _, backend := range []agentconfig.Backend{agentconfig.TCP, agentconfig.SharedMemory} {
		for name, c := range map[string][2][2]string{
			"the same":           {{"a"}, {"a"}},
			"prefill is ahead":   {{"b", "a"}, {"a", "b"}},
			"decode is ahead":    {{"a", "b"}, {"b", "a"}},
			"others besides":     {{"a", "b"}, {"a", "c"}},
			"all are known here": {{"b", "a"}, {"b", "a"}},
		} {
			t.Run(fmt.Sprint(backend, " ", name), func(t *testing.T) {
				p := startKeyed(t, backend, keyDir(t, c[0][0], c[0][1]), keyDir(t, c[1][0], c[1][1]))
				p.serves(t, "tx-1", 1)
				p.serves(t, "tx-2", 2)
				for _, pod := range []*pod{p.prefill.pod, p.decode.pod} {
					if _, metrics := pod.get("/metrics"); strings.Contains(metrics, reasonUnproven) {
						t.Errorf("%s found no proof in what the other side sent", pod.cfg.Role)
					}
				}
			})
		}
	}
}

func TestAgentsOfOtherSecretsDoNotPair(t *testing.T) {
	none := func(t *testing.T) string { t.Helper(); return "" }
	with := func(key string) func(*testing.T) string {
		return func(t *testing.T) string { t.Helper(); return keyDir(t, key, "") }
	}
	for name, c := range map[string][2]func(*testing.T) string{
		"another":                {with("a"), with("b")},
		"decode has none":        {with("a"), none},
		"prefill has none":       {none, with("a")},
		"decode has one of many": {func(t *testing.T) string { t.Helper(); return keyDir(t, "a", "b") }, with("c")},
	} {
		t.Run(name, func(t *testing.T) {
			p := startKeyed(t, agentconfig.TCP, c[0](t), c[1](t))
			r := p.prompt("tx-other", 1, 40)
			p.start(t, r)
			p.fill(t, r)
			p.decode.fails(t, r.id, session.RuleHandshake)
			if v := p.decode.pod.transfer(r.id); len(v.Received) != 0 || !strings.Contains(v.Text, "pool") {
				t.Errorf("decode tells %+v", v)
			}
			// Prefill is told by decode where it takes its word, else it is aborted.
			send(t, p.prefill.sched, kvproto.Abort{Transfer: r.id})
			if m := next(t, p.prefill.sched); kvproto.TransferOf(m) != r.id {
				t.Errorf("prefill is told %+v", m)
			}
		})
	}
}

// caller is somebody's connection to a control port.
type caller struct {
	t    *testing.T
	d    *zmtp.Dealer
	said uint64
}

func call(t *testing.T, pod *pod, port int) *caller {
	t.Helper()
	d, err := zmtp.Dial(t.Context(), endpoint(pod.ip, port), zmtp.Options{Challenge: challengeProperty})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return &caller{t: t, d: d}
}

// say sends a message with a proof by a secret, by none if it is empty, and returns what
// went over the wire.
func (c *caller) say(key string, m interface{ Append([]byte) []byte }) []byte {
	c.t.Helper()
	b := sealed(c.t, key, m.Append(nil), c.d.Challenge(), c.said)
	c.said++
	if err := c.d.Send(c.t.Context(), b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// turnedAway sends frames and waits for the connection's end.
func (c *caller) turnedAway(frames ...[]byte) {
	c.t.Helper()
	// The connection may end before all is written.
	_ = c.d.Send(c.t.Context(), frames...)
	select {
	case <-c.d.Done():
	case <-time.After(within):
		c.t.Fatal("the connection stays open")
	}
	if got, err := c.d.Receive(c.t.Context()); err == nil {
		c.t.Fatalf("a stranger is told %q", got)
	}
}

// forged sends frames to a port as a stranger does, and waits for the connection's end.
func forged(t *testing.T, pod *pod, port int, frames ...[]byte) {
	t.Helper()
	call(t, pod, port).turnedAway(frames...)
}

// sealed ends a message in a proof by a secret, by none if it is empty, for its place on
// a connection.
func sealed(t *testing.T, key string, message []byte, challenge string, before uint64) []byte {
	t.Helper()
	if key == "" {
		return message
	}
	keys, err := poolkey.New(secret(key))
	if err != nil {
		t.Fatal(err)
	}
	open, err := moriio.OpenAuth(message)
	if err != nil {
		t.Fatal(err)
	}
	return keys.Sign(open, poolkey.Notification, placeOf(challenge, before, open)...)
}

func dropped(t *testing.T, pod *pod, port, reason string) int {
	t.Helper()
	_, metrics := pod.get("/metrics")
	for line := range strings.Lines(metrics) {
		var n int
		if _, err := fmt.Sscanf(line, fmt.Sprintf("pdpool_agent_dropped_messages_total{port=%q,reason=%q} %%d", port, reason), &n); err == nil {
			return n
		}
	}
	return 0
}

// What a stranger sends, with all that a peer would say but the proof, moves no byte and
// changes no transfer.
func TestForgedNotificationsChangeNothing(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	r := p.prompt("tx-forged", 2, 40)
	// Prefill waits for decode, whose engine has not asked yet.
	send(
		t, p.prefill.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	)
	p.fill(t, r)
	eventually(t, func() error {
		if v, err := p.prefill.pod.look(r.id); err != nil || v.State != session.Waiting {
			return fmt.Errorf("prefill has %+v, %w", v, err)
		}
		return nil
	})
	pe, de := p.prefill.sched.Epoch(), p.decode.sched.Epoch()
	dc := p.decode.pod.cfg
	report := &moriio.Report{Epoch: pe, Bytes: 1, Rule: "aborted", Text: "a stranger says so"}
	messages := map[*pod][]interface{ Append([]byte) []byte }{
		p.prefill.pod: {
			&moriio.RemoteBlocks{Transfer: r.id, RequestID: r.id, Blocks: r.target, PDPool: &moriio.Allocation{
				Epoch: de, PeerEpoch: pe, Host: p.decode.pod.ip, Handshake: dc.Ports.Handshake, Notify: dc.Ports.Notify, Tokens: r.tokens, Hash: []byte("hash"),
			}},
			&moriio.Release{Transfer: r.id, PDPool: &moriio.Released{Epoch: de, Rule: "aborted"}},
		},
		p.decode.pod: {
			&moriio.WriteDone{Transfer: r.id, PDPool: report},
			&moriio.WriteFailed{Transfer: r.id, PDPool: report},
		},
	}
	for pod, all := range messages {
		for _, m := range all {
			for _, wrong := range []func(c *caller) [][]byte{
				func(*caller) [][]byte { return [][]byte{m.Append(nil)} },
				func(c *caller) [][]byte { return [][]byte{sealed(t, "b", m.Append(nil), c.d.Challenge(), 0)} },
				func(c *caller) [][]byte { return [][]byte{sealed(t, "a", m.Append(nil), c.d.Challenge(), 1)} },
				func(*caller) [][]byte { return [][]byte{sealed(t, "a", m.Append(nil), "", 0)} },
				func(c *caller) [][]byte {
					b := sealed(t, "a", m.Append(nil), c.d.Challenge(), 0)
					b[len(b)-moriio.ProofBytes-40] ^= 1
					return [][]byte{b}
				},
				func(c *caller) [][]byte {
					b := sealed(t, "a", m.Append(nil), c.d.Challenge(), 0)
					return [][]byte{b, b}
				},
				func(c *caller) [][]byte {
					b := sealed(t, "a", m.Append(nil), c.d.Challenge(), 0)
					return [][]byte{b[:len(b)-1]}
				},
			} {
				c := call(t, pod, pod.cfg.Ports.Notify)
				c.turnedAway(wrong(c)...)
			}
		}
		if n := dropped(t, pod, portNotify, reasonUnproven); n != 7*len(all) {
			t.Errorf("%s counts %d messages without a proof, not %d", pod.cfg.Role, n, 7*len(all))
		}
	}
	if v := p.prefill.pod.transfer(r.id); v.State != session.Waiting || len(v.Flows) != 0 {
		t.Fatalf("prefill tells %+v", v)
	}
	if v, err := p.decode.pod.look(r.id); err == nil {
		t.Fatalf("decode tells %+v", v)
	}
	send(t, p.decode.sched, kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")}, p.receive(r))
	p.finish(t, r)
	p.check(t, r)
	p.account(t, r)
}

// A message that a peer of the pool has sent in an earlier life, or that names one of
// the receiver's, is good by its proof and changes nothing all the same.
func TestReplaysOfOlderEpochsChangeNothing(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	r := p.prompt("tx-replayed", 2, 40)
	p.write(r, latent.Layers)
	p.start(t, r)
	for _, w := range p.prefill.workers {
		send(t, w.client, kvproto.Save{Transfer: r.id})
	}
	p.prefill.pod.moves(r.id)
	p.decode.pod.moves(r.id)
	replay := func(pod *pod, m interface{ Append([]byte) []byte }) {
		t.Helper()
		before := dropped(t, pod, portNotify, session.OtherEpoch)
		call(t, pod, pod.cfg.Ports.Notify).say("a", m)
		eventually(t, func() error {
			if n := dropped(t, pod, portNotify, session.OtherEpoch); n != before+1 {
				return fmt.Errorf("%s counts %d messages of other epochs, not %d", pod.cfg.Role, n, before+1)
			}
			return nil
		})
	}
	old := p.prefill.sched.Epoch() - 1
	for writer := range 2 {
		for reader := range 2 {
			report := &moriio.Report{Epoch: old, WriterTP: writer, ReaderTP: reader, Bytes: 1, Rule: "aborted", Text: "of an earlier life"}
			replay(p.decode.pod, &moriio.WriteDone{Transfer: r.id, PDPool: report})
			replay(p.decode.pod, &moriio.WriteFailed{Transfer: r.id, PDPool: report})
		}
	}
	replay(p.prefill.pod, &moriio.Release{Transfer: r.id, PDPool: &moriio.Released{Epoch: p.decode.sched.Epoch() - 1, Rule: "aborted"}})
	p.prefill.pod.moves(r.id)
	p.decode.pod.moves(r.id)
	for _, w := range p.prefill.workers {
		send(t, w.client, kvproto.Sealed{Transfer: r.id})
	}
	p.finish(t, r)
	p.check(t, r)
}

func TestStrangersGetNoMetadata(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	l := &loop{keys: &keyring{dir: keyDir(t, "b", ""), log: slog.New(slog.DiscardHandler)}}
	if !l.keys.again() {
		t.Fatal("the stranger has no secret of its own")
	}
	get := []byte(moriio.GetMetadata)
	with := func(frames ...[]byte) func(*caller) [][]byte { return func(*caller) [][]byte { return frames } }
	request := func(l *loop, challenge string) [][]byte {
		frames, _, err := l.request(challenge)
		if err != nil {
			t.Fatal(err)
		}
		return frames
	}
	member := &loop{keys: &keyring{dir: keyDir(t, "a", ""), log: slog.New(slog.DiscardHandler)}}
	member.keys.again()
	all := []func(c *caller) [][]byte{
		with(get),
		with(get, nil),
		with(get, []byte("let me in")),
		with([]byte("GET / HTTP/1.1")),
		func(c *caller) [][]byte { return request(l, c.d.Challenge()) },
		func(c *caller) [][]byte { return request(member, c.d.Challenge())[1:] },
		func(c *caller) [][]byte { return [][]byte{[]byte("get_all_msg"), request(member, c.d.Challenge())[1]} },
		// A request that was heard on another connection.
		func(*caller) [][]byte {
			return request(member, call(t, p.decode.pod, p.decode.pod.cfg.Ports.Handshake).d.Challenge())
		},
		// A proof, for another purpose.
		func(c *caller) [][]byte {
			return [][]byte{get, sealed(t, "a", (&moriio.Hello{}).Append(nil), c.d.Challenge(), 0)}
		},
	}
	for _, frames := range all {
		c := call(t, p.decode.pod, p.decode.pod.cfg.Ports.Handshake)
		c.turnedAway(frames(c)...)
	}
	if n := dropped(t, p.decode.pod, portHandshake, reasonUnproven) + dropped(t, p.decode.pod, portHandshake, "unknown-request"); n != len(all) {
		t.Errorf("%d requests are counted, not %d", n, len(all))
	}
	p.serves(t, "tx-after", 1)
}

func TestSecretsAreReadAgain(t *testing.T) {
	dir := keyDir(t, "a", "")
	k, err := openKeys(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	proof := func(name string) []byte {
		keys, err := poolkey.New(secret(name))
		if err != nil {
			t.Fatal(err)
		}
		return keys.Sign(nil, poolkey.Notification, []byte("x"))
	}
	valid := func(name string) bool { return k.valid(proof(name), poolkey.Notification, []byte("x")) }
	later := func() { k.read = k.read.Add(-readKeyAgain) }
	writeKeys(t, dir, "b", "")
	if valid("b") {
		t.Error("the folder was read again at once")
	}
	later()
	if !valid("b") || !valid("a") {
		t.Error("the new secret, or the last, is not accepted")
	}
	if got := k.current().Sign(nil, poolkey.Notification, []byte("x")); !bytes.Equal(got, proof("b")) {
		t.Error("the new secret does not sign")
	}
	// What can't be read changes nothing.
	if err := os.Truncate(filepath.Join(dir, agentconfig.KeyFile), 3); err != nil {
		t.Fatal(err)
	}
	later()
	if valid("c") || !valid("b") {
		t.Error("a secret of 3 bytes was taken")
	}
	for _, name := range []string{"c", "d", "e", "f"} {
		writeKeys(t, dir, name, "")
		later()
		if !valid(name) {
			t.Errorf("%s is not accepted", name)
		}
	}
	if len(k.held) != heldSecrets || valid("a") || !valid("c") {
		t.Errorf("%d secrets are held", len(k.held))
	}
}

// A secret that was taken away is accepted until every agent has seen that, and no longer.
func TestSecretsThatLeftTheFolderAreRevoked(t *testing.T) {
	dir := keyDir(t, "leaked", "old")
	k, err := openKeys(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := k.read
	accepted := func(name string) bool {
		keys, err := poolkey.New(secret(name))
		if err != nil {
			t.Fatal(err)
		}
		return k.current().Valid(keys.Sign(nil, poolkey.Notification, []byte("x")), poolkey.Notification, []byte("x"))
	}
	look := func(after time.Duration, want map[string]bool) {
		t.Helper()
		now = now.Add(after)
		if _, err := k.load(now); err != nil {
			t.Log(err)
		}
		for name, want := range want {
			if got := accepted(name); got != want {
				t.Errorf("%s is accepted: %v", name, got)
			}
		}
	}
	look(24*time.Hour, map[string]bool{"leaked": true, "old": true, "new": false})
	writeKeys(t, dir, "new", "")
	if err := os.Remove(filepath.Join(dir, agentconfig.PreviousKeyFile)); err != nil {
		t.Fatal(err)
	}
	look(time.Minute, map[string]bool{"leaked": true, "old": true, "new": true})
	look(keepSecret-time.Second, map[string]bool{"leaked": true, "old": true, "new": true})
	// That the folder can't be read keeps what was in it, and nothing else.
	if err := os.Truncate(filepath.Join(dir, agentconfig.KeyFile), 3); err != nil {
		t.Fatal(err)
	}
	look(time.Second, map[string]bool{"leaked": false, "old": false, "new": true})
	// One that comes back is as good as a new one.
	writeKeys(t, dir, "leaked", "new")
	look(time.Minute, map[string]bool{"leaked": true, "old": false, "new": true})
	look(24*time.Hour, map[string]bool{"leaked": true, "new": true})
}

// A secret is replaced under a running pool: pods of before and after it pair, in both
// directions, as soon as they meet.
func TestSecretIsReplacedUnderARunningPool(t *testing.T) {
	dir := keyDir(t, "a", "")
	p := startKeyed(t, agentconfig.TCP, dir, dir)
	p.serves(t, "tx-before", 1)
	started := time.Now()
	writeKeys(t, dir, "c", "")
	cfg := podConfig(t, kvlayout.Decode, latent, dealt)
	cfg.KeyDir = keyDir(t, "c", "")
	after := startPod(t, cfg, nil).connect()
	eventually(t, func() error {
		if time.Since(started) < readKeyAgain {
			return fmt.Errorf("the folder was read just now")
		}
		return nil
	})
	// Prefill finds the new secret as the proof of the new decode fails, and then the
	// old decode as that of prefill does.
	(&pair{p.prefill, after}).serves(t, "tx-new", 2)
	p.serves(t, "tx-old", 3)
}

func TestMissingSecretsEndTheStart(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"no such file": func(dir string) error { return os.Remove(filepath.Join(dir, agentconfig.KeyFile)) },
		"not 3":        func(dir string) error { return os.Truncate(filepath.Join(dir, agentconfig.KeyFile), 3) },
		"not 1025":     func(dir string) error { return os.Truncate(filepath.Join(dir, agentconfig.PreviousKeyFile), 1<<20) },
	} {
		dir := keyDir(t, "a", "b")
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		cfg := podConfig(t, kvlayout.Decode, latent, dealt)
		cfg.KeyDir = dir
		_, err := New(t.Context(), Options{Config: cfg, PodIP: ownIP, PodName: "pod-0", Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "pool secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Connections that prove nothing leave places for peers, and are not kept.
func TestCrowdsOnControlPortsKeepNoPeerOut(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		noise := [][]byte{
			[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), nil,
			append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'}, make([]byte, 100)...),
		}
		crowd(stop, []string{
			endpoint(p.prefill.pod.ip, p.prefill.pod.cfg.Ports.Handshake), endpoint(p.prefill.pod.ip, p.prefill.pod.cfg.Ports.Notify),
			endpoint(p.decode.pod.ip, p.decode.pod.cfg.Ports.Handshake), endpoint(p.decode.pod.ip, p.decode.pod.cfg.Ports.Notify),
		}, noise)
	}()
	for i := range 5 {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
		// A new peer has to get in beside the crowd.
		cfg := podConfig(t, kvlayout.Decode, latent, dealt)
		cfg.KeyDir = p.decode.pod.cfg.KeyDir
		p.decode = startPod(t, cfg, nil).connect()
		p.serves(t, fmt.Sprintf("tx-new-%d", i), i)
	}
	close(stop)
	<-ended
}
