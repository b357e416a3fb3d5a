package transferagent

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

var (
	plain = kvlayout.Layout{TP: 2}
	dealt = kvlayout.Layout{TP: 2, DCP: 2, Interleave: 4}
)

// startDiffering starts a pair whose decode configuration was changed.
func startDiffering(t *testing.T, change func(*agentconfig.Config)) *pair {
	t.Helper()
	pm, dm := memMovers(t)
	pc, dc := podConfig(t, kvlayout.Prefill, latent, plain), podConfig(t, kvlayout.Decode, latent, dealt)
	change(&dc)
	pp, dp := startPod(t, pc, pm), startPod(t, dc, dm)
	return &pair{prefill: pp.connect(), decode: dp.connect()}
}

// fails waits until all connections of an engine were told of a failure.
func (e *engine) fails(t *testing.T, id, rule string) {
	t.Helper()
	expectFailed(t, e.sched, id, rule)
	for _, w := range e.workers {
		expectFailed(t, w.client, id, rule)
	}
}

// failsSomehow is fails for a failure that several events may be the first to tell.
func (e *engine) failsSomehow(t *testing.T, id string) {
	t.Helper()
	m, ok := next(t, e.sched).(kvproto.Failed)
	if !ok || m.Transfer != id || m.Rule == "" || m.Text == "" {
		t.Fatalf("%s is told %+v", e.pod.cfg.Role, m)
	}
	for _, w := range e.workers {
		expectFailed(t, w.client, id, m.Rule)
	}
}

func TestRefusedPairFailsOnBothSides(t *testing.T) {
	for _, c := range []struct {
		rule   string
		change func(*agentconfig.Config)
	}{
		{session.RulePairing, func(c *agentconfig.Config) { c.Pairing = "other" }},
		{"block-size", func(c *agentconfig.Config) { c.Block = 16 }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := startDiffering(t, c.change)
			r := p.prompt("tx-refused", 1, 40)
			p.start(t, r)
			p.decode.fails(t, r.id, c.rule)
			p.prefill.fails(t, r.id, c.rule)
			if v := p.decode.pod.transfer(r.id); v.State != session.Broken || v.Rule != c.rule || len(v.Received) != 0 {
				t.Fatalf("decode tells %+v", v)
			}
		})
	}
}

func TestPromptDiffers(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	r := p.prompt("tx-prompt", 1, 40)
	send(t, p.decode.sched, kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("another")})
	p.startHeld(t, r)
	p.decode.fails(t, r.id, session.RulePrompt)
	p.prefill.fails(t, r.id, session.RulePrompt)
}

// startHeld announces a prompt whose decode side was announced already.
func (p *pair) startHeld(t *testing.T, r prompt) {
	t.Helper()
	send(
		t, p.prefill.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	)
	send(t, p.decode.sched, p.receive(r))
}

func TestAbortIsAnsweredByQuiet(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	r := p.prompt("tx-abort", 1, 40)
	p.start(t, r)
	send(t, p.decode.sched, kvproto.Abort{Transfer: r.id})
	expect(t, p.decode.sched, kvproto.Quiet{Transfer: r.id})
	for _, w := range p.decode.workers {
		expectFailed(t, w.client, r.id, session.RuleAborted)
	}
	p.prefill.fails(t, r.id, session.RuleAborted)
	// Once more, when it has ended: answered, and counted no second time.
	send(t, p.decode.sched, kvproto.Abort{Transfer: r.id})
	expect(t, p.decode.sched, kvproto.Quiet{Transfer: r.id})
	if _, metrics := p.decode.pod.get("/metrics"); !strings.Contains(metrics, `transfers_total{mode="write",outcome="aborted",rule=""} 1`) {
		t.Error("one aborted transfer is not counted once")
	}
	p.serves(t, "tx-after", 2)
}

// A client goes away while decode's request waits for blocks: prefill gives its own back at
// once, as decode's engine has said where prefill is.
func TestAbortBeforeBlocksFreesPrefill(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	r := p.prompt("tx-left", 1, 40)
	send(
		t, p.prefill.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	)
	send(
		t, p.decode.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash"), Peer: p.receive(r).Peer},
		kvproto.Abort{Transfer: r.id},
	)
	expect(t, p.decode.sched, kvproto.Quiet{Transfer: r.id})
	p.prefill.fails(t, r.id, session.RuleAborted)
	p.serves(t, "tx-after", 2)
}

// serves runs one transfer through the pair.
func (p *pair) serves(t *testing.T, id string, salt int) {
	t.Helper()
	r := p.prompt(id, salt, 50)
	p.start(t, r)
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
}

func TestRestartedAgentIsANewIncarnation(t *testing.T) {
	pc, dc := podConfig(t, kvlayout.Prefill, latent, plain), podConfig(t, kvlayout.Decode, latent, dealt)
	n := memNetwork(1)
	pp, dp := startPod(t, pc, memMover(t, n, "prefill")), startPod(t, dc, memMover(t, n, "decode"))
	p := &pair{prefill: pp.connect(), decode: dp.connect()}
	p.serves(t, "tx-before", 1)
	old := p.prefill.sched.Epoch()
	r := p.prompt("tx-lost", 2, 40)
	p.start(t, r)
	// Wait until decode's allocation has reached prefill, so that both sides are in it.
	eventually(t, func() error {
		if v, err := p.prefill.pod.look(r.id); err != nil || len(v.Flows) == 0 {
			return fmt.Errorf("prefill has %+v, %w", v, err)
		}
		return nil
	})
	pp.stop()
	p.decode.fails(t, r.id, session.RulePeerGone)
	p.prefill = startPod(t, pc, memMover(t, n, "prefill")).connect()
	if p.prefill.sched.Epoch() == old {
		t.Fatalf("epoch %d again", old)
	}
	p.serves(t, "tx-after", 3)
}

func TestLostWorkerFailsItsTransfersAndComesBack(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	p.serves(t, "tx-before", 1)
	r := p.prompt("tx-lost", 2, 40)
	p.start(t, r)
	_ = p.decode.workers[1].client.Close()
	p.decode.pod.await("/readyz", http.StatusServiceUnavailable)
	expectFailed(t, p.decode.sched, r.id, session.RuleEngineGone)
	expectFailed(t, p.decode.workers[0].client, r.id, session.RuleEngineGone)
	p.prefill.failsSomehow(t, r.id) // by decode's word, or as its connection ends
	w := p.decode.pod.newWorker(1)
	p.decode.workers[1] = w
	p.decode.pod.await("/readyz", http.StatusOK)
	// Until prefill has heard of it, it copies into memory that is decode's no more.
	eventually(t, func() error {
		if n := p.prefill.pod.sample("mover_sessions"); n != 0 {
			return fmt.Errorf("prefill has %v sessions", n)
		}
		return nil
	})
	p.serves(t, "tx-after", 3)
}

func TestDuplicateAndDifferingHellosAreRefused(t *testing.T) {
	pm, _ := memMovers(t)
	pod := startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), pm)
	pod.mustDial(pod.hello(kvproto.Worker, 1))
	for _, c := range []struct {
		rule, text string
		change     func(*kvproto.Hello)
	}{
		{ruleDuplicate, "connected already", func(*kvproto.Hello) {}},
		{ruleHello, "tp: the engine has 8, the pool 2", func(h *kvproto.Hello) { h.TPSize = 8 }},
		{ruleHello, "dcp: the engine has 4, the pool 2", func(h *kvproto.Hello) { h.DCP = 4 }},
		{ruleHello, "interleave: the engine has 3, the pool 4", func(h *kvproto.Hello) { h.Interleave = 3 }},
		{ruleHello, "block size: the engine has 16, the pool 8", func(h *kvproto.Hello) { h.BlockTokens = 16 }},
		{ruleHello, "model: the engine has other, the pool latent", func(h *kvproto.Hello) { h.Model = "other" }},
		{ruleHello, "KV type: the engine has FP8, the pool BF16", func(h *kvproto.Hello) { h.KVType = "FP8" }},
		{ruleHello, "dp: rank 1 is outside", func(h *kvproto.Hello) { h.DP = 1 }},
		{ruleHello, "tp: rank 2 is outside", func(h *kvproto.Hello) { h.TP = 2 }},
		{ruleHello, "version: the engine has 99", func(h *kvproto.Hello) { h.Version = 99 }},
		{ruleHello, "blocks: the engine has 0", func(h *kvproto.Hello) { h.Blocks = 0 }},
		{ruleFaults, "differ from", func(h *kvproto.Hello) { h.TP, h.Faults = 0, []string{"copies-off"} }},
	} {
		h := pod.hello(kvproto.Worker, 1)
		c.change(&h)
		_, err := pod.dial(h)
		if err == nil || !strings.Contains(err.Error(), c.rule) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s %q: the agent says %v", c.rule, c.text, err)
		}
	}
	// Tokens that are not dealt have no interleave.
	cfg := podConfig(t, kvlayout.Prefill, latent, plain)
	cfg.Layout.Interleave = 64
	if err := checkHello(&cfg, kvproto.Hello{
		Version: kvproto.ProtocolVersion, Connection: kvproto.Worker, TPSize: 2, DCP: 1, Interleave: 1, BlockTokens: 8, Blocks: 1,
		Model: "latent", KVType: "Auto",
	}); err != nil {
		t.Error(err)
	}
	if _, metrics := pod.get("/metrics"); !strings.Contains(metrics, `pdpool_agent_refusals_total{rule="kv-hello"} 10`) {
		t.Error("ten refused hellos are not counted")
	}
}

// refusedMemory hands over a file as a worker's memory and returns the answer.
func refusedMemory(t *testing.T, c *kvclient.Client, size int64, f *os.File) kvproto.Refused {
	t.Helper()
	if err := c.SendMemory(size, f); err != nil {
		t.Fatal(err)
	}
	m := next(t, c)
	r, ok := m.(kvproto.Refused)
	if !ok {
		t.Fatalf("agent says %s %+v", m.Type(), m)
	}
	return r
}

func TestBadMemoryIsRefusedInPlainWords(t *testing.T) {
	pm, _ := memMovers(t)
	pod := startPod(t, podConfig(t, kvlayout.Prefill, latent, plain), pm)
	c := pod.mustDial(pod.hello(kvproto.Worker, 0))
	const size = 1 << 16
	bare := func(seals int) *os.File {
		fd, err := unix.MemfdCreate("bare", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "bare")
		t.Cleanup(func() { _ = f.Close() })
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return f
	}
	whole, b, err := memory.CreateSealed("whole", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = whole.Close(), memory.Unmap(b) })
	for _, c2 := range []struct {
		text string
		size int64
		file *os.File
	}{
		{"not sealed", size, bare(0)},
		{"sparse", size, bare(unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL)},
		{"too short", 2 * size, whole},
	} {
		if r := refusedMemory(t, c, c2.size, c2.file); r.Rule != ruleMemory || !strings.Contains(r.Text, c2.text) {
			t.Errorf("%s: the agent says %+v", c2.text, r)
		}
	}
	if err := c.SendMemory(size, whole); err != nil {
		t.Fatal(err)
	}
	// The answer to a message that does not belong here says that the memory before it was taken.
	send(t, c, kvproto.Abort{Transfer: "tx"})
	if m := next(t, c); m.(kvproto.Refused).Rule != ruleOrder {
		t.Fatalf("abort of a worker: the agent says %+v", m)
	}
	other := pod.mustDial(pod.hello(kvproto.Worker, 1))
	if r := refusedMemory(t, other, size, whole); !strings.Contains(r.Text, "overlaps") {
		t.Fatalf("the same memory twice: the agent says %+v", r)
	}
	send(t, other, kvproto.Ready{})
	if m := next(t, other); m.(kvproto.Refused).Rule != ruleMemory {
		t.Fatalf("ready without memory: the agent says %+v", m)
	}
}

// A refusal names what it refuses, on both sides, live or ended: the engine has to
// know that no other answer comes. The transfer that has the id goes on.
func TestRefusalsNameTheirTransfer(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	r := p.prompt("tx-again", 1, 40)
	p.start(t, r)
	again := func() {
		t.Helper()
		hold := kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens}
		for _, m := range []kvproto.Message{hold, kvproto.Expect{Transfer: r.id, Tokens: r.tokens}} {
			send(t, p.prefill.sched, m)
			expectRefused(t, p.prefill.sched, m)
		}
		send(t, p.decode.sched, p.receive(r))
		expectRefused(t, p.decode.sched, p.receive(r))
	}
	again()
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
	again()
	save := kvproto.Save{Transfer: r.id}
	send(t, p.decode.workers[0].client, save)
	if got, ok := next(t, p.decode.workers[0].client).(kvproto.Refused); !ok || got.Transfer != r.id || got.Message != save.Type() {
		t.Errorf("agent says %+v to a save at decode", got)
	}
}

func expectRefused(t *testing.T, c *kvclient.Client, m kvproto.Message) {
	t.Helper()
	got := next(t, c)
	if f, ok := got.(kvproto.Refused); !ok || f.Transfer != kvproto.TransferOf(m) || f.Message != m.Type() || f.Rule != session.Duplicate {
		t.Fatalf("agent says %s %+v to %s once more", got.Type(), got, m.Type())
	}
}
