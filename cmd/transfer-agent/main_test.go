package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// config is a valid configuration whose agent port is given.
func config(t *testing.T, agent int) agentconfig.Config {
	t.Helper()
	return agentconfig.Config{
		Version: agentconfig.Version, Namespace: "ns", Pool: "pool", PoolUID: "uid", Revision: "r", Pods: 1, Role: kvlayout.Prefill,
		Pairing: "key", Engine: kvlayout.VLLM, Mover: kvlayout.MoverEngine, Mode: kvlayout.Write, Backend: agentconfig.RDMA,
		Model: "m", Served: "m", Layout: kvlayout.Layout{TP: 1}, Block: 16, KVType: kvlayout.BF16,
		KV: kvlayout.Geometry{Model: "m", Kind: kvlayout.MLA, Layers: 1, AttentionHeads: 1, KVHeads: 1, HeadValues: 8},
		Ports: agentconfig.Ports{
			HTTP: 21000, Agent: agent, Ping: 21002, EngineHandshake: 21003, EngineNotify: 21004,
		},
		Timeouts: agentconfig.Timeouts{Transfer: 1, Defer: 1, ReceiveAbort: 1, Drain: 1},
	}
}

// agentMover is a valid configuration of an agent that moves the bytes.
func agentMover(t *testing.T) agentconfig.Config {
	t.Helper()
	c := config(t, 21001)
	c.Engine, c.Mover, c.Backend = kvlayout.Simulator, kvlayout.MoverAgent, agentconfig.TCP
	c.KVSocket = filepath.Join(t.TempDir(), "kv.sock")
	c.Ports.Handshake, c.Ports.Notify, c.Ports.Data = 21005, 21006, 21007
	return c
}

func encode(t *testing.T, c agentconfig.Config) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExitStatusAndSentence(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	port := busy.Addr().(*net.TCPAddr).Port
	unreadable := filepath.Join(t.TempDir(), "missing.json")
	broken := config(t, 21001)
	broken.Role = "both"
	door := agentMover(t)
	door.KVSocket = "/proc/kv.sock" // nobody can write there
	taken := agentMover(t)
	taken.Ports.Notify = port
	shared := agentMover(t)
	shared.Backend, shared.SharedDir = agentconfig.SharedMemory, "/proc/pdpool"
	secret := config(t, 21001)
	secret.KeyDir = filepath.Join(t.TempDir(), "missing")
	with := func(c agentconfig.Config, more ...string) map[string]string {
		env := map[string]string{agentconfig.Env: encode(t, c), agentconfig.EnvPodIP: "127.0.0.1"}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return env
	}
	good := map[string]string{agentconfig.Env: encode(t, config(t, port)), agentconfig.EnvPodIP: "127.0.0.1"}
	for _, c := range []struct {
		name   string
		args   []string
		env    map[string]string
		status int
		text   string
	}{
		{"unknown flag", []string{"--bogus"}, good, 2, "bogus"},
		{"argument", []string{"serve"}, good, 2, `unexpected argument "serve"`},
		{"log level", []string{"--log-level", "loud"}, good, 2, "loud"},
		{"help", []string{"--help"}, nil, 0, ""},
		{"version", []string{"--version"}, nil, 0, ""},
		{"no configuration", nil, nil, 1, agentconfig.Env},
		{"unreadable file", []string{"--config", unreadable}, good, 1, "missing.json"},
		{"no JSON", nil, map[string]string{agentconfig.Env: "{"}, 1, agentconfig.Env},
		{"invalid", nil, map[string]string{agentconfig.Env: encode(t, broken)}, 1, `role is "both"`},
		{"no pod IP", nil, map[string]string{agentconfig.Env: good[agentconfig.Env]}, 1, agentconfig.EnvPodIP},
		{"wrong pod IP", []string{"--pod-ip", "here"}, good, 1, `"here"`},
		{"busy port", nil, good, 1, fmt.Sprintf("agent port %d", port)},
		{"busy notify port", nil, with(taken), 1, fmt.Sprintf("notify port %d: listen", port)},
		{"no place for the KV socket", nil, with(door), 1, "KV socket: listen unix /proc/kv.sock"},
		{"no place for the shared folder", nil, with(shared), 1, "shared directory /proc/pdpool"},
		{"no secret", nil, with(secret), 1, "pool secret: open " + secret.KeyDir},
		{"no memory limit", nil, with(config(t, port), memlimit.Env, "256Mi"), 1, `PDPOOL_MEMORY_LIMIT is "256Mi"`},
		{"a memory limit of 0", nil, with(config(t, port), memlimit.Env, "0"), 1, `PDPOOL_MEMORY_LIMIT is "0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, log, said bytes.Buffer
			err := run(t.Context(), c.args, &out, &log, func(name string) string { return c.env[name] })
			if got := status(err, &said); got != c.status || !strings.Contains(said.String(), c.text) {
				t.Fatalf("exit status %d and %q, not %d and %q", got, said.String(), c.status, c.text)
			}
			if c.status == 1 && strings.Count(said.String(), "\n") != 1 {
				t.Fatalf("more than one line: %q", said.String())
			}
			if c.status == 0 && out.Len() == 0 {
				t.Fatal("nothing was printed")
			}
		})
	}
}

func TestRunsFromAFileUntilItIsStopped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	path := filepath.Join(t.TempDir(), "agent.json")
	if err := os.WriteFile(path, []byte(encode(t, config(t, port))), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, log bytes.Buffer
	if err := run(ctx, []string{"--config", path, "--pod-ip", "127.0.0.1"}, &out, &log, func(string) string { return "" }); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if !strings.Contains(log.String(), `"transfer agent serves"`) {
		t.Fatalf("the log says %s", log.String())
	}
}

func TestMemoryLimitLeavesATenth(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	if err := memlimit.Apply(""); err != nil || debug.SetMemoryLimit(-1) != before {
		t.Errorf("without a limit: %v, %d", err, debug.SetMemoryLimit(-1))
	}
	if err := memlimit.Apply("268435456"); err != nil || debug.SetMemoryLimit(-1) != 268435456/10*9 {
		t.Errorf("with 256Mi: %v, %d", err, debug.SetMemoryLimit(-1))
	}
}
