package transferagent

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// sample reads one number of a pod's metrics, 0 when it is not there.
func (p *pod) sample(name string) float64 {
	p.t.Helper()
	_, metrics := p.get("/metrics")
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "pdpool_agent_"+name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// An engine that sends and does not read loses its connection, and the transfers that
// need it; nothing else waits for it.
func TestEngineThatDoesNotReadIsCutOff(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	_ = p.prefill.sched.Close()
	p.prefill.pod.await("/readyz", http.StatusServiceUnavailable)
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.prefill.pod.cfg.KVSocket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	deaf := kvconn.New(socket)
	t.Cleanup(func() { _ = deaf.Close() })
	if err := deaf.Write(p.prefill.pod.hello(kvproto.Scheduler, 0), nil); err != nil {
		t.Fatal(err)
	}
	p.prefill.pod.await("/readyz", http.StatusOK)
	r := p.prompt("tx-held", 1, 40)
	for _, m := range []kvproto.Message{
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	} {
		if err := deaf.Write(m, nil); err != nil {
			t.Fatal(err)
		}
	}
	p.prefill.pod.knows(r.id)
	// Each is answered by a refusal that nobody reads.
	sent := 0
	for ; err == nil && sent < 100*kvQueue; sent++ {
		err = deaf.Write(kvproto.Save{Transfer: r.id}, nil)
	}
	if err == nil {
		t.Fatalf("%d messages were taken", sent)
	}
	for _, w := range p.prefill.workers {
		expectFailed(t, w.client, r.id, session.RuleEngineGone)
	}
	if n := dropped(t, p.prefill.pod, portKV, reasonSlow); n != 1 {
		t.Errorf("counted %d times", n)
	}
	p.prefill.sched = p.prefill.pod.mustDial(p.prefill.pod.hello(kvproto.Scheduler, 0))
	p.prefill.pod.await("/readyz", http.StatusOK)
	p.serves(t, "tx-after", 2)
}

// Every end of a flow is told in the turn of what brings it about, which is what the lag
// is measured from: no timer stands between.
func TestCompletionIsToldAtOnce(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	const rounds = 20
	for i := range rounds {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
	}
	for pod, each := range map[*pod]float64{
		p.prefill.pod: 2, // each reader has one writer
		p.decode.pod:  3, // a scheduler and two workers
	} {
		eventually(t, func() error {
			if n := pod.sample("completion_lag_seconds_count"); n != rounds*each {
				return fmt.Errorf("%s has told %v ends", pod.cfg.Role, n)
			}
			return nil
		})
	}
}

// A peer that takes nothing delays the transfers with others at neither end.
func TestNoTransferWaitsForAnothersPeer(t *testing.T) {
	n := memNetwork(1)
	start := func(role kvlayout.Role, name string) *engine {
		layout := plain
		if role == kvlayout.Decode {
			layout = dealt
		}
		return startPod(t, podConfig(t, role, latent, layout), memMover(t, n, name)).connect()
	}
	p1, p2 := start(kvlayout.Prefill, "p1"), start(kvlayout.Prefill, "p2")
	d1, d2 := start(kvlayout.Decode, "d1"), start(kvlayout.Decode, "d2")
	blocked, toOther, fromOther := &pair{p1, d1}, &pair{p1, d2}, &pair{p2, d1}
	n.Freeze("p1", "d1")
	r := blocked.prompt("tx-blocked", 1, 40)
	blocked.start(t, r)
	blocked.fill(t, r)
	p1.pod.moves(r.id)
	// Other blocks than the blocked one's: they are being written.
	for i := range 5 {
		for name, other := range map[string]*pair{"to": toOther, "from": fromOther} {
			o := other.prompt(fmt.Sprintf("tx-%s-%d", name, i), i, 8)
			o.source, o.target = []int32{testBlocks - 1}, []int32{testBlocks - 1}
			other.start(t, o)
			other.fill(t, o)
			other.finish(t, o)
			other.check(t, o)
		}
	}
	if v := d1.pod.transfer(r.id); v.State != session.Moving {
		t.Fatalf("the blocked one is %+v", v)
	}
	n.Thaw("p1", "d1")
	blocked.finish(t, r)
}

// Peers that take connections and say nothing delay nobody but those who ask for them.
func TestSilentPeersDelayNoOthers(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	silent, err := net.Listen("tcp", endpoint(p.decode.pod.ip, freePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	port := silent.Addr().(*net.TCPAddr).Port
	const asked = 8
	for i := range asked {
		r := p.prompt(fmt.Sprintf("tx-silent-%d", i), i, 40)
		receive := p.receive(r)
		receive.Peer.Handshake, receive.Peer.Notify = port, 1+i
		send(t, p.decode.sched, kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")}, receive)
	}
	for i := range 5 {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
	}
	for i := range asked {
		id := fmt.Sprintf("tx-silent-%d", i)
		if v := p.decode.pod.transfer(id); v.State != session.Waiting {
			t.Errorf("%s is %+v", id, v)
		}
		send(t, p.decode.sched, kvproto.Abort{Transfer: id})
		expect(t, p.decode.sched, kvproto.Quiet{Transfer: id})
	}
}
