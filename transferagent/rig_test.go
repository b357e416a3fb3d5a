package transferagent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// within bounds every wait of these tests.
const within = time.Minute

var latent = kvlayout.Geometry{Model: "latent", Kind: kvlayout.MLA, Layers: 3, AttentionHeads: 8, KVHeads: 1, HeadValues: 8}

var grouped = kvlayout.Geometry{Model: "grouped", Kind: kvlayout.GQA, Layers: 2, AttentionHeads: 16, KVHeads: 4, HeadValues: 4}

// lastPort counts through ports below those that the system gives to dialled
// connections, from a place that differs between runs.
var lastPort = func() *atomic.Int32 {
	var n atomic.Int32
	n.Store(10_000 + int32(os.Getpid()%1000)*20)
	return &n
}()

// freePort finds a TCP port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := int(lastPort.Add(1))
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// podConfig is the configuration of one pod of a simulator pool.
func podConfig(t *testing.T, role kvlayout.Role, g kvlayout.Geometry, l kvlayout.Layout) agentconfig.Config {
	t.Helper()
	return agentconfig.Config{
		Version: agentconfig.Version, Namespace: "ns", Pool: "pool", PoolUID: "uid", Revision: "r1", Pods: 1, Role: role, Pairing: "key",
		Engine: kvlayout.Simulator, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Backend: agentconfig.TCP,
		Model: g.Model, Served: g.Model, Layout: l, Block: 8, KVType: kvlayout.BF16, KV: g,
		Ports: agentconfig.Ports{
			HTTP: freePort(t), Agent: freePort(t), Handshake: freePort(t), Notify: freePort(t), Data: freePort(t),
		},
		// Longer than any wait of a test: what ends by a deadline of the agent fails the test.
		Timeouts: agentconfig.Timeouts{Transfer: 600, Defer: 600, ReceiveAbort: 600, Drain: 600},
		KVSocket: filepath.Join(t.TempDir(), "kv.sock"),
	}
}

// ownIP is where the agents of these tests are.
var ownIP = netip.MustParseAddr("127.0.0.1")

// pod is one agent under test.
type pod struct {
	t    *testing.T
	cfg  agentconfig.Config
	ip   string
	room int // blocks of the engine, testBlocks if 0
	stop func()
}

func (p *pod) blocks() int { return cmp.Or(p.room, testBlocks) }

func startPod(t *testing.T, cfg agentconfig.Config, mover transport.Mover) *pod {
	t.Helper()
	return startPodWith(t, Options{Config: cfg, PodIP: ownIP, PodName: "pod-0", Mover: mover})
}

func startPodWith(t *testing.T, o Options) *pod {
	t.Helper()
	if o.pace == (pace{}) {
		o.pace = pace{probe: 5 * time.Millisecond, settle: time.Nanosecond}
	}
	// Nothing is given up that a busy machine only delays.
	o.limits = defaultLimits(o.PodIP)
	o.limits.dial, o.limits.handshake, o.limits.send, o.limits.revoke, o.limits.turn = within, within, within, within, within
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil)).With("role", o.Config.Role)
	p := &pod{t: t, cfg: o.Config, ip: o.PodIP.String()}
	a, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("agent ended with %v", err)
			}
		case <-time.After(within):
			t.Error("agent does not end")
		}
	}
	t.Cleanup(p.stop)
	return p
}

// get asks the agent's HTTP port.
func (p *pod) get(path string) (int, string) {
	p.t.Helper()
	status, body, err := p.ask(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return status, body
}

// ask is get of an agent that may be gone.
func (p *pod) ask(path string) (int, string, error) {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + endpoint(p.ip, p.cfg.Ports.Agent) + path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// await polls the agent's HTTP port until path answers with status.
func (p *pod) await(path string, status int) {
	p.t.Helper()
	eventually(p.t, func() error {
		if got, body := p.get(path); got != status {
			return fmt.Errorf("%s answers %d %s, not %d", path, got, body, status)
		}
		return nil
	})
}

// eventually asks again until there is no error.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// transfer asks for the state of a transfer that the agent knows.
func (p *pod) transfer(id string) transferView {
	p.t.Helper()
	v, err := p.look(id)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// look asks for the state of a transfer that the agent may not know yet.
func (p *pod) look(id string) (v transferView, err error) {
	p.t.Helper()
	status, body := p.get("/transfers/" + id)
	if status != http.StatusOK {
		return v, fmt.Errorf("transfer %s: %d %s", id, status, body)
	}
	return v, json.Unmarshal([]byte(body), &v)
}

// moves waits until the pod's agent moves a transfer.
func (p *pod) moves(id string) {
	p.t.Helper()
	eventually(p.t, func() error {
		if v, err := p.look(id); err != nil || v.State != session.Moving {
			return fmt.Errorf("%s has %+v, %w", p.cfg.Role, v, err)
		}
		return nil
	})
}

const testBlocks = 40

// engine is the engine of a pod under test.
type engine struct {
	t       *testing.T
	pod     *pod
	sched   *kvclient.Client
	workers []*worker
}

type worker struct {
	tp      int
	client  *kvclient.Client
	memory  []byte
	regions []kvlayout.Region
}

func (p *pod) hello(kind string, tp int) kvproto.Hello {
	l := p.cfg.Layout.Defaulted()
	return kvproto.Hello{
		Version: kvproto.ProtocolVersion, Connection: kind, TP: tp, TPSize: l.TP, DCP: l.DCP, Interleave: l.Interleave,
		BlockTokens: p.cfg.Block, Blocks: p.blocks(), Model: p.cfg.Model, KVType: string(p.cfg.KVType),
	}
}

func (p *pod) dial(h kvproto.Hello) (*kvclient.Client, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	defer cancel()
	c, err := kvclient.Dial(ctx, p.cfg.KVSocket, h)
	if err == nil {
		p.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func (p *pod) mustDial(h kvproto.Hello) *kvclient.Client {
	p.t.Helper()
	c, err := p.dial(h)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// connect brings an engine up at the pod's agent.
func (p *pod) connect(faults ...string) *engine {
	p.t.Helper()
	e := &engine{t: p.t, pod: p}
	h := p.hello(kvproto.Scheduler, 0)
	h.Faults = faults
	e.sched = p.mustDial(h)
	for tp := range p.cfg.Layout.Defaulted().TP {
		e.workers = append(e.workers, p.newWorker(tp, faults...))
	}
	p.await("/readyz", http.StatusOK)
	return e
}

// newWorker connects a worker and hands its memory over.
func (p *pod) newWorker(tp int, faults ...string) *worker {
	p.t.Helper()
	h := p.hello(kvproto.Worker, tp)
	h.Faults = faults
	w := &worker{tp: tp, client: p.mustDial(h), regions: p.regions(tp)}
	size := w.regions[len(w.regions)-1].End()
	f, b, err := memory.CreateSealed("test", size)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = memory.Unmap(b) })
	defer func() { _ = f.Close() }()
	w.memory = b
	if err := w.client.SendMemory(size, f); err != nil {
		p.t.Fatal(err)
	}
	for _, r := range w.regions {
		send(p.t, w.client, wireRegion(r))
	}
	send(p.t, w.client, kvproto.Ready{})
	return w
}

func wireRegion(r kvlayout.Region) kvproto.Region {
	return kvproto.Region{
		Name: fmt.Sprintf("layers.%d", r.Layer), Layer: r.Layer, Offset: r.Offset, BlockStride: r.BlockStride, Blocks: r.Blocks,
		BlockTokens: r.BlockTokens, HeadFirst: r.Heads.First, HeadCount: r.Heads.Count, HeadStride: r.HeadStride,
		TokenStride: r.TokenStride, RowBytes: r.RowBytes,
	}
}

// regions lays a rank's memory out: layer by layer, block by block, head by head.
func (p *pod) regions(tp int) []kvlayout.Region {
	row := kvlayout.RowBytes(p.cfg.KV, p.cfg.KVType)
	heads := kvlayout.HeadsOf(p.cfg.KV, p.cfg.Layout, tp)
	head := row * int64(p.cfg.Block)
	block := head * int64(heads.Count)
	var out []kvlayout.Region
	for layer := range p.cfg.KV.Layers {
		out = append(out, kvlayout.Region{
			Layer: layer, Offset: int64(layer) * block * int64(p.blocks()), BlockStride: block, Blocks: p.blocks(), BlockTokens: p.cfg.Block,
			Heads: heads, HeadStride: head, TokenStride: row, RowBytes: row,
		})
	}
	return out
}

// row is the bytes of a token of a head, found by hand.
func (w *worker) row(layer int, block int32, head, slot int) []byte {
	r := w.regions[layer]
	at := r.Offset + int64(block)*r.BlockStride + int64(head-r.Heads.First)*r.HeadStride + int64(slot)*r.TokenStride
	return w.memory[at : at+r.RowBytes]
}

// content is what a test writes into a row.
func content(salt, layer, head, token int, i int) byte {
	return byte(1 + (salt*31+layer*17+head*7+token*3+i*5+token/8)%251)
}
