package transferagent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// buildAgent makes the agent's binary.
func buildAgent(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "transfer-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/pdpool/pdpool/cmd/transfer-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// startProcess starts an agent as a process of its own, as in a pod.
func startProcess(t *testing.T, binary string, cfg agentconfig.Config, blocks int) (*pod, *os.Process) {
	t.Helper()
	document, err := cfg.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "--log-level", "error")
	var said bytes.Buffer
	c.Stderr = &said
	c.Env = append(os.Environ(), agentconfig.Env+"="+string(document), agentconfig.EnvPodIP+"="+ownIP.String(), memlimit.Env+"=268435456")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &pod{t: t, cfg: cfg, ip: ownIP.String(), room: blocks}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("agent ended with %v: %s", err, said.String())
		}
	})
	eventually(t, func() error {
		_, _, err := p.ask("/healthz")
		return err
	})
	return p, c.Process
}

// ownMemory is what a process has in memory, without what it shares: the engine's. It
// is 0 of one that is gone.
func ownMemory(p *os.Process) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		return 0
	}
	total := int64(0)
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int64
		if _, err := fmt.Sscan(value, &kib); err == nil && (name == "RssAnon" || name == "RssFile") {
			total += kib << 10
		}
	}
	return total
}

// watchMemory looks at the memory of processes until it is asked for the most of each.
func watchMemory(t *testing.T, processes ...*os.Process) func() []int64 {
	t.Helper()
	peak := make([]int64, len(processes))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for i, p := range processes {
				peak[i] = max(peak[i], ownMemory(p))
			}
			pause(ctx, 10*time.Millisecond)
		}
	}()
	return func() []int64 {
		stop()
		<-ended
		return peak
	}
}

// Both agents' processes stay small beside 64 prompts of 8K tokens that all move at once,
// of 8 ranks of 61 layers, while decode is stopped and when it goes on.
func TestAgentProcessesStaySmall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the agent")
	}
	const transfers, tokens, most = 64, 8 << 10, 64 << 20
	binary := buildAgent(t)
	big := kvlayout.Geometry{Model: "deep", Kind: kvlayout.MLA, Layers: 61, AttentionHeads: 8, KVHeads: 1, HeadValues: 8}
	start := func(role kvlayout.Role, l kvlayout.Layout) (*engine, *os.Process) {
		cfg := podConfig(t, role, big, l)
		cfg.Block = 16
		p, process := startProcess(t, binary, cfg, tokens/16)
		return p.connect(), process
	}
	prefill, writer := start(kvlayout.Prefill, kvlayout.Layout{TP: 8})
	decode, reader := start(kvlayout.Decode, kvlayout.Layout{TP: 8, DCP: 8, Interleave: 1})
	p := &pair{prefill: prefill, decode: decode}
	warm := p.prompt("tx-before", 1, 1024)
	p.start(t, warm)
	p.fill(t, warm)
	p.finish(t, warm)
	idle := [2]int64{ownMemory(writer), ownMemory(reader)}

	peaks := watchMemory(t, writer, reader)
	var all []prompt
	for i := range transfers {
		all = append(all, p.prompt(fmt.Sprintf("tx-%d", i), 0, tokens))
		p.start(t, all[i])
		eventually(t, func() error {
			// Prefill knows where to, and waits for its engine.
			if v, err := prefill.pod.look(all[i].id); err != nil || len(v.Flows) == 0 {
				return fmt.Errorf("prefill has %+v, %w", v, err)
			}
			return nil
		})
	}
	signal := func(p *os.Process, s os.Signal) {
		t.Helper()
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	// Prefill gives a stopped decode up after 10 s: before they begin all is said to it.
	signal(writer, syscall.SIGSTOP)
	for _, r := range all {
		for _, w := range prefill.workers {
			send(t, w.client, kvproto.Sealed{Transfer: r.id})
		}
	}
	signal(reader, syscall.SIGSTOP)
	signal(writer, syscall.SIGCONT)
	last := all[transfers-1].id
	prefill.pod.moves(last)
	stopped := ownMemory(writer)
	signal(reader, syscall.SIGCONT)
	decode.done(transfers)
	peak := peaks()
	t.Logf("prefill: idle %d, with %d transfers stopped %d, peak %d; decode: idle %d, peak %d", idle[0], transfers, stopped, peak[0], idle[1], peak[1])
	for i, role := range []string{"prefill", "decode"} {
		if peak[i] == 0 || peak[i] > most {
			t.Errorf("%s's agent has %d bytes of its own", role, peak[i])
		}
	}
}
