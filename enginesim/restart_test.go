package enginesim

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/descriptors"
	"github.com/pdpool/pdpool/transferagent"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// asAgent in the environment has this binary be a transfer agent with that
// configuration, a process that can be killed and stopped.
const asAgent = "ENGINESIM_TEST_AGENT"

func TestMain(m *testing.M) {
	if document := os.Getenv(asAgent); document != "" {
		if err := beAgent(document); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func beAgent(document string) error {
	var cfg agentconfig.Config
	if err := json.Unmarshal([]byte(document), &cfg); err != nil {
		return err
	}
	a, err := transferagent.New(context.Background(), transferagent.Options{
		Config: cfg, PodIP: netip.MustParseAddr("127.0.0.1"), PodName: "pod",
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}

// agentProcess is the agent of one instance.
type agentProcess struct {
	cfg agentconfig.Config
	cmd *exec.Cmd
	out *bytes.Buffer
}

func (a *agentProcess) start(t *testing.T) {
	t.Helper()
	document, err := json.Marshal(a.cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.cmd = exec.Command(os.Args[0])
	a.cmd.Env = append(os.Environ(), asAgent+"="+string(document))
	a.out = &bytes.Buffer{}
	a.cmd.Stderr = a.out
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (a *agentProcess) kill(t *testing.T) {
	t.Helper()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if state, err := a.cmd.Process.Wait(); err != nil || !state.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("the agent had ended by itself: %v: %s", err, a.out)
	}
	_ = a.cmd.Wait() // of what copies its output
}

func (a *agentProcess) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

var nextPort atomic.Int32

// freePort finds a port below those that the system gives away.
func freePort(t *testing.T) int {
	t.Helper()
	nextPort.CompareAndSwap(0, int32(12_000+os.Getpid()%900*20))
	for range 1000 {
		port := int(nextPort.Add(1))
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// real is a pair with agents that are processes of their own.
type real struct {
	p, d         *Instance
	prefill, dec *agentProcess
	n            atomic.Int64
}

func startReal(t *testing.T, backend agentconfig.Backend, args ...string) *real {
	t.Helper()
	shared := t.TempDir()
	agent := func(role kvlayout.Role, l kvlayout.Layout) *agentProcess {
		a := &agentProcess{cfg: agentconfig.Config{
			Version: agentconfig.Version, Namespace: "ns", Pool: "pool", PoolUID: "uid", Revision: "r1", Pods: 1, Role: role, Pairing: "key",
			Engine: kvlayout.Simulator, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Backend: backend, SharedDir: shared,
			Model: "m", Served: "m", Layout: l, Block: 16, KVType: kvlayout.BF16,
			KV: kvlayout.Geometry{Model: "m", Kind: kvlayout.MLA, Layers: 3, AttentionHeads: 16, KVHeads: 1, HeadValues: 32},
			Ports: agentconfig.Ports{
				HTTP: freePort(t), Agent: freePort(t), Handshake: freePort(t), Notify: freePort(t), Data: freePort(t),
			},
			Timeouts: agentconfig.Timeouts{Transfer: 4, Defer: 4, ReceiveAbort: 6, Drain: 10},
			KVSocket: filepath.Join(t.TempDir(), "kv.sock"),
		}}
		if backend == agentconfig.TCP {
			a.cfg.SharedDir = ""
		}
		a.start(t)
		return a
	}
	x := &real{}
	x.prefill = agent(kvlayout.Prefill, kvlayout.Layout{TP: 2})
	x.dec = agent(kvlayout.Decode, kvlayout.Layout{TP: 2, DCP: 2, Interleave: 4})
	t.Cleanup(func() {
		x.prefill.kill(t)
		x.dec.kill(t)
		if t.Failed() {
			t.Logf("prefill's agent: %s\ndecode's agent: %s", x.prefill.out, x.dec.out)
		}
	})
	engine := func(a *agentProcess, role string, more ...string) *Instance {
		config := fmt.Sprintf(`{"kv_connector":"AgentConnector","kv_role":%q,"kv_connector_extra_config":{"socket":%q}}`, role, a.cfg.KVSocket)
		flags := []string{"--sim-geometry", latentJSON, "--kv-cache-dtype", "bfloat16", "--block-size", "16", "-tp", "2", "--kv-transfer-config", config}
		return startPatient(t, 0, append(append(flags, args...), more...)...)
	}
	x.p = engine(x.prefill, "kv_producer", "--sim-prefill-ms-per-layer=3")
	x.d = engine(x.dec, "kv_consumer", "-dcp", "2", "--cp-kv-cache-interleave-size", "4")
	until(t, func() bool { return x.p.ready() == nil && x.d.ready() == nil })
	return x
}

// ask sends both legs of a prompt and returns decode's answer.
func (x *real) ask(ctx context.Context, t *testing.T, prompt string) *response {
	t.Helper()
	id := fmt.Sprintf("tx-%d", x.n.Add(1))
	leg := func(decode bool, tokens int) map[string]any {
		return map[string]any{"prompt": prompt, "max_tokens": tokens, "kv_transfer_params": map[string]any{
			"do_remote_decode": !decode, "do_remote_prefill": decode, "transfer_id": id, "remote_engine_id": nil, "remote_block_ids": nil,
			"remote_host": "127.0.0.1", "remote_handshake_port": x.prefill.cfg.Ports.Handshake, "remote_notify_port": x.prefill.cfg.Ports.Notify,
			"remote_tp_size": 2, "remote_dp_rank": 0,
		}}
	}
	// As a router does: when prefill refuses, decode needs not wait.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	refused := make(chan *response, 1)
	go func() {
		p := post(ctx, t, x.p, "/v1/completions", leg(false, 1))
		if p.status == http.StatusOK {
			p = nil
		} else {
			cancel()
		}
		refused <- p
	}()
	r := post(ctx, t, x.d, "/v1/completions", leg(true, 4))
	// The end of decode's leg may meet its answer half-way.
	if p := <-refused; p != nil && r.text() == "" && r.Error.Rule == "" {
		return p
	}
	return r
}

// load counts the prompts that were answered right, and those that failed with a reason.
type load struct {
	good, bad atomic.Int64

	ending  atomic.Bool
	clients sync.WaitGroup
}

// load asks without a pause until stop is called. Each prompt has to be answered right,
// or to end with a reason before the client is out of patience.
func (x *real) load(t *testing.T) *load {
	l := &load{}
	for c := range 4 {
		l.clients.Go(func() {
			for i := 0; !l.ending.Load(); i++ {
				prompt := words(20+i%50, c)
				r := x.ask(t.Context(), t, prompt)
				switch {
				case r.status == http.StatusOK && r.text() == x.d.reference(prompt, 4):
					l.good.Add(1)
				case r.status >= 500 && r.Error.Rule != "" && r.Error.Message != "":
					l.bad.Add(1)
				default:
					t.Errorf("neither right nor an error with a reason: %d: %s", r.status, r.raw)
				}
			}
		})
	}
	return l
}

// more waits until one of load's counters has grown.
func more(t *testing.T, n *atomic.Int64) {
	t.Helper()
	before := n.Load()
	until(t, func() bool { return n.Load() > before })
}

func (l *load) stop(t *testing.T) {
	l.ending.Store(true)
	l.clients.Wait()
	t.Logf("%d right, %d failed with a reason", l.good.Load(), l.bad.Load())
}

// serves waits until a prompt is answered right.
func (x *real) serves(t *testing.T) {
	t.Helper()
	prompt := words(40, 99)
	until(t, func() bool { return x.ask(t.Context(), t, prompt).text() == x.d.reference(prompt, 4) })
}

// quiet holds that no block is held once nothing is asked, and nothing was written
// where nothing may be.
func (x *real) quiet(t *testing.T) {
	t.Helper()
	for _, in := range []*Instance{x.p, x.d} {
		until(t, func() bool {
			g := in.State().Groups[0]
			return g.Live == 0 && g.FreeBlocks == g.Blocks && len(g.Held) == 0
		})
		if g := in.State().Groups[0]; g.Violations != 0 {
			t.Errorf("%s: %+v", in.State().Role, g)
		}
	}
}

var agentRestarts = flag.Int("sim.restarts", 3, "kill an agent that many times in TestAgentKilledUnderLoad, for each backend")

// An agent that dies alone, at any moment and again and again: what is under way fails
// with a reason, the engine lives and is served again, and nothing is left behind.
func TestAgentKilledUnderLoad(t *testing.T) {
	for _, backend := range []agentconfig.Backend{agentconfig.TCP, agentconfig.SharedMemory} {
		t.Run(string(backend), func(t *testing.T) {
			x := startReal(t, backend)
			x.serves(t)
			x.quiet(t)
			files, routines := descriptors.Open(t), runtime.NumGoroutine()
			load := x.load(t)
			for i := range *agentRestarts {
				victim := []*agentProcess{x.prefill, x.dec}[i%2]
				more(t, &load.good)
				victim.kill(t)
				more(t, &load.bad)
				if res, err := client.Get(x.d.url("/health")); err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("the engine's health without its agent: %v, %v", res, err)
				} else {
					_ = res.Body.Close()
				}
				victim.start(t)
				x.serves(t)
			}
			load.stop(t)
			x.serves(t)
			x.quiet(t)
			until(t, func() bool { return descriptors.Open(t) <= files && runtime.NumGoroutine() <= routines })
		})
	}
}

// An agent that is stopped for longer than its engine has patience, and then goes on.
func TestAgentFrozenUnderLoad(t *testing.T) {
	for _, backend := range []agentconfig.Backend{agentconfig.TCP, agentconfig.SharedMemory} {
		t.Run(string(backend), func(t *testing.T) {
			x := startReal(t, backend, "--sim-agent-silence-ms=1500")
			x.serves(t)
			load := x.load(t)
			for _, victim := range []*agentProcess{x.dec, x.prefill} {
				victim.signal(t, syscall.SIGSTOP)
				failed := x.d.State().Groups[0].Failed
				until(t, func() bool { return x.d.State().Groups[0].Failed >= failed+8 })
				victim.signal(t, syscall.SIGCONT)
				x.serves(t)
			}
			load.stop(t)
			x.serves(t)
			x.quiet(t)
		})
	}
}
