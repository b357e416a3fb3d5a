package transferagent

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/mem"
)

// pair is a prefill and a decode pod with their engines.
type pair struct {
	prefill, decode *engine
}

// prompt is one request of a test.
type prompt struct {
	id             string
	salt, tokens   int
	source, target []int32
}

func (p *pair) prompt(id string, salt, tokens int) prompt {
	b := p.prefill.pod.cfg.Block
	span := b * p.decode.pod.cfg.Layout.Defaulted().DCP
	r := prompt{id: id, salt: salt, tokens: tokens}
	for i := range (tokens + b - 1) / b {
		r.source = append(r.source, int32((i*7+salt)%p.prefill.pod.blocks()))
	}
	for i := range (tokens + span - 1) / span {
		r.target = append(r.target, int32((i*11+3+salt)%p.decode.pod.blocks()))
	}
	return r
}

func send(t *testing.T, c *kvclient.Client, ms ...kvproto.Message) {
	t.Helper()
	for _, m := range ms {
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

// start announces the prompt on both sides.
func (p *pair) start(t *testing.T, r prompt) {
	t.Helper()
	send(
		t, p.prefill.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	)
	send(
		t, p.decode.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("hash")},
		p.receive(r),
	)
}

func (p *pair) receive(r prompt) kvproto.Receive {
	cfg := p.prefill.pod.cfg
	return kvproto.Receive{Transfer: r.id, Blocks: r.target, Tokens: r.tokens, Peer: kvproto.Peer{
		Host: p.prefill.pod.ip, Handshake: cfg.Ports.Handshake, Notify: cfg.Ports.Notify, TPSize: cfg.Layout.Defaulted().TP,
	}}
}

// fill writes the prompt's rows into every prefill rank and reports its layers saved.
func (p *pair) fill(t *testing.T, r prompt) {
	t.Helper()
	p.save(t, r, p.prefill.pod.cfg.KV.Layers)
	for _, w := range p.prefill.workers {
		send(t, w.client, kvproto.Sealed{Transfer: r.id})
	}
}

// save is fill for the first layers only.
func (p *pair) save(t *testing.T, r prompt, layers int) {
	t.Helper()
	p.write(r, layers)
	for _, w := range p.prefill.workers {
		for layer := range layers {
			send(t, w.client, kvproto.Save{Transfer: r.id, Layer: layer})
		}
	}
}

// write writes the prompt's rows of the first layers into every prefill rank.
func (p *pair) write(r prompt, layers int) {
	b := p.prefill.pod.cfg.Block
	for _, w := range p.prefill.workers {
		for layer, region := range w.regions[:layers] {
			for token := range r.tokens {
				for h := range region.Heads.Count {
					head := region.Heads.First + h
					row := w.row(layer, r.source[token/b], head, token%b)
					for i := range row {
						row[i] = content(r.salt, layer, head, token, i)
					}
				}
			}
		}
	}
}

// next waits for a connection's next message about a transfer.
func next(t *testing.T, c *kvclient.Client) kvproto.Message {
	t.Helper()
	select {
	case m, ok := <-c.Messages():
		if !ok {
			t.Fatalf("connection ended: %v", c.Err())
		}
		return m
	case <-time.After(within):
		t.Fatal("no message from the agent")
	}
	return nil
}

func expect(t *testing.T, c *kvclient.Client, want kvproto.Message) {
	t.Helper()
	if got := next(t, c); fmt.Sprint(got) != fmt.Sprint(want) || got.Type() != want.Type() {
		t.Fatalf("agent says %s %+v, not %s %+v", got.Type(), got, want.Type(), want)
	}
}

func expectFailed(t *testing.T, c *kvclient.Client, id, rule string) {
	t.Helper()
	got := next(t, c)
	if f, ok := got.(kvproto.Failed); !ok || f.Transfer != id || f.Rule != rule || f.Text == "" {
		t.Fatalf("agent says %s %+v, not failed of %s by %s", got.Type(), got, id, rule)
	}
}

// finish waits until both engines were told that the transfer ended well.
func (p *pair) finish(t *testing.T, r prompt) {
	t.Helper()
	expect(t, p.decode.sched, kvproto.Done{Transfer: r.id})
	for _, w := range slices.Concat(p.decode.workers, p.prefill.workers) {
		expect(t, w.client, kvproto.Done{Transfer: r.id})
	}
	expect(t, p.prefill.sched, kvproto.Released{Transfer: r.id})
}

// check looks at every row of the prompt in decode's memory, by vLLM's own formula.
func (p *pair) check(t *testing.T, r prompt) {
	t.Helper()
	l, b := p.decode.pod.cfg.Layout.Defaulted(), p.decode.pod.cfg.Block
	for _, w := range p.decode.workers {
		for token := range r.tokens {
			if (token/l.Interleave)%l.DCP != w.tp%l.DCP {
				continue
			}
			at := token/(l.Interleave*l.DCP)*l.Interleave + token%l.Interleave
			for layer, region := range w.regions {
				for h := range region.Heads.Count {
					head := region.Heads.First + h
					row := w.row(layer, r.target[at/b], head, at%b)
					want := make([]byte, len(row))
					for i := range want {
						want[i] = content(r.salt, layer, head, token, i)
					}
					if !bytes.Equal(row, want) {
						t.Fatalf("rank %d layer %d head %d token %d: %v, not %v", w.tp, layer, head, token, row, want)
					}
				}
			}
		}
	}
}

// memMovers makes the movers of two pods on one network.
func memMovers(t *testing.T) (prefill, decode transport.Mover) {
	t.Helper()
	n := memNetwork(1)
	return memMover(t, n, "prefill"), memMover(t, n, "decode")
}

// memNetwork is a network on which nobody is given up.
func memNetwork(seed uint64) *mem.Network {
	n := mem.NewNetwork(seed)
	n.SetStall(time.Hour)
	return n
}

func memMover(t *testing.T, n *mem.Network, name string) transport.Mover {
	t.Helper()
	m, err := mem.New(n, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func startPair(t *testing.T, backend string, g kvlayout.Geometry, prefill, decode kvlayout.Layout) *pair {
	t.Helper()
	pc, dc := podConfig(t, kvlayout.Prefill, g, prefill), podConfig(t, kvlayout.Decode, g, decode)
	var pm, dm transport.Mover
	switch backend {
	case "mem":
		pm, dm = memMovers(t)
	case "shm":
		pc.Backend, dc.Backend = agentconfig.SharedMemory, agentconfig.SharedMemory
		pc.SharedDir = t.TempDir()
		dc.SharedDir = pc.SharedDir
	}
	pp, dp := startPod(t, pc, pm), startPod(t, dc, dm)
	return &pair{prefill: pp.connect(), decode: dp.connect()}
}

func TestTransferLandsEveryRow(t *testing.T) {
	for _, backend := range []string{"mem", "tcp", "shm"} {
		for _, c := range []struct {
			name            string
			geometry        kvlayout.Geometry
			prefill, decode kvlayout.Layout
		}{
			{"dcp relayout", latent, kvlayout.Layout{TP: 2}, kvlayout.Layout{TP: 2, DCP: 2, Interleave: 4}},
			{"dcp interleave 1", latent, kvlayout.Layout{TP: 4}, kvlayout.Layout{TP: 4, DCP: 4, Interleave: 1}},
			{"heads to fewer ranks", grouped, kvlayout.Layout{TP: 4}, kvlayout.Layout{TP: 2}},
		} {
			t.Run(backend+" "+c.name, func(t *testing.T) {
				p := startPair(t, backend, c.geometry, c.prefill, c.decode)
				for i := range 3 {
					r := p.prompt(fmt.Sprintf("tx-%d", i), i, 61+i)
					p.start(t, r)
					p.fill(t, r)
					p.finish(t, r)
					p.check(t, r)
					p.account(t, r)
				}
			})
		}
	}
}

// account compares what the movers of both sides counted.
func (p *pair) account(t *testing.T, r prompt) {
	t.Helper()
	sent, got := int64(0), int64(0)
	pt, dt := p.prefill.pod.transfer(r.id), p.decode.pod.transfer(r.id)
	for _, f := range pt.Flows {
		sent += f.Bytes
	}
	for _, f := range dt.Received {
		got += f.Bytes
	}
	if sent == 0 || sent != got || pt.State != session.Ended || dt.State != session.Ended {
		t.Fatalf("prefill sent %d in state %s, decode got %d in state %s", sent, pt.State, got, dt.State)
	}
}

func TestNumbersTellWhatHappened(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	for i := range 2 {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
	}
	moved := int64(0)
	for i := range 2 {
		for _, f := range p.decode.pod.transfer(fmt.Sprintf("tx-%d", i)).Received {
			moved += f.Bytes
		}
	}
	for _, c := range []struct {
		pod  *pod
		want []string
	}{
		{p.prefill.pod, []string{
			`transfers_total{mode="write",outcome="done",rule=""} 2`, fmt.Sprintf(`bytes_total{direction="sent"} %d`, moved),
			`handshakes_total{result="dialled"} 1`, `handshakes_total{result="served"} 1`, `copy_seconds_count 12`,
			`kv_connections{connection="worker"} 2`, `kv_connections{connection="scheduler"} 1`, `inflight_transfers 0`,
		}},
		{p.decode.pod, []string{
			`transfers_total{mode="write",outcome="done",rule=""} 2`, fmt.Sprintf(`bytes_total{direction="received"} %d`, moved),
			`handshakes_total{result="dialled"} 1`, `inflight_transfers 0`,
		}},
	} {
		_, text := c.pod.get("/metrics")
		for _, want := range c.want {
			if !strings.Contains(text, "\npdpool_agent_"+want+"\n") {
				t.Errorf("%s does not say %s", c.pod.cfg.Role, want)
			}
		}
	}
	if status, _ := p.decode.pod.get("/transfers/unknown"); status != http.StatusNotFound {
		t.Errorf("an unknown transfer: %d", status)
	}
	if status, _ := p.decode.pod.get("/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d", status)
	}
	if err := os.Remove(p.decode.pod.cfg.KVSocket); err != nil {
		t.Fatal(err)
	}
	if status, body := p.decode.pod.get("/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("healthz without the socket: %d %s", status, body)
	}
}
