package engine_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

var update = flag.Bool("update", false, "rewrite golden files")

func deepseek() kvlayout.Geometry {
	return kvlayout.Geometry{
		Model: "deepseek-ai/DeepSeek-R1", Kind: kvlayout.MLA, Layers: 61,
		AttentionHeads: 128, KVHeads: 1, HeadValues: 576, MoE: true,
	}
}

func input(kind kvlayout.Engine, role kvlayout.Role, l kvlayout.Layout) engine.Input {
	in := engine.Input{
		Kind: kind, Role: role, Model: "deepseek-ai/DeepSeek-R1", Served: "r1", Geometry: deepseek(), Layout: l,
		KVType: kvlayout.Auto, Mover: kvlayout.MoverEngine, Mode: kvlayout.Write, Backend: engine.RDMA,
		Timeouts: engine.Timeouts{Transfer: 30, Defer: 60, ReceiveAbort: 120},
		Ports:    engine.Ports{HTTP: 20000, Ping: 20005, RPC: 20008, VLLM: 20010, Handshake: 20032, Notify: 20048},
		Pods:     1, KVSocket: "/run/pdpool/kv.sock",
	}
	if kind == kvlayout.Simulator {
		in.Mover, in.Backend = kvlayout.MoverAgent, ""
	}
	return in
}

func TestRenderGolden(t *testing.T) {
	dp := input(kvlayout.VLLM, kvlayout.Decode, kvlayout.Layout{TP: 1, DP: 8, DPLocal: 4})
	dp.Pods, dp.Pod, dp.DPStart, dp.Leader = 2, 1, 4, "r1-decode-0-0.r1"
	dp.KVMemory, dp.MaxLength, dp.KVType = 100<<30, 32768, kvlayout.FP8
	dp.Args = []string{"--enable-expert-parallel"}
	one := input(kvlayout.VLLM, kvlayout.Decode, kvlayout.Layout{TP: 1, DP: 8})
	one.Backend = engine.XGMI
	xgmi := input(kvlayout.VLLM, kvlayout.Prefill, kvlayout.Layout{TP: 8})
	xgmi.Backend = engine.XGMI
	sim := input(kvlayout.Simulator, kvlayout.Decode, kvlayout.Layout{TP: 4, DCP: 4, Interleave: 64})
	sim.Args = []string{"--sim-fault", "flip:rank=1,layer=2,row=3"}
	for name, in := range map[string]engine.Input{
		"vllm-prefill-tp4":         input(kvlayout.VLLM, kvlayout.Prefill, kvlayout.Layout{TP: 4}),
		"vllm-decode-tp4-dcp4-i64": input(kvlayout.VLLM, kvlayout.Decode, kvlayout.Layout{TP: 4, DCP: 4, Interleave: 64}),
		"vllm-decode-dp8-pod1of2":  dp,
		"vllm-decode-dp8-one-pod":  one,
		"vllm-prefill-tp8-xgmi":    xgmi,
		"sim-prefill-tp4":          input(kvlayout.Simulator, kvlayout.Prefill, kvlayout.Layout{TP: 4}),
		"sim-decode-tp4-dcp4-i64":  sim,
		"sim-decode-dp2-pod0of2": func() engine.Input {
			in := input(kvlayout.Simulator, kvlayout.Decode, kvlayout.Layout{TP: 2, DP: 2, DPLocal: 1})
			in.Pods = 2
			return in
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := engine.Render(in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, text(cmd))
			again, err := engine.Render(in)
			if err != nil || !cmp.Equal(cmd, again) {
				t.Errorf("second rendering differs: %v", err)
			}
		})
	}
}

func text(c engine.Command) string {
	var b strings.Builder
	for _, e := range c.Env {
		if e.Field != "" {
			fmt.Fprintf(&b, "%s from %s\n", e.Name, e.Field)
			continue
		}
		fmt.Fprintf(&b, "%s=%s\n", e.Name, e.Value)
	}
	b.WriteString(strings.Join(c.Command, " "))
	for _, a := range c.Args {
		sep := " "
		if strings.HasPrefix(a, "--") {
			sep = "\n  "
		}
		b.WriteString(sep + a)
	}
	return b.String() + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What Render writes, ParseArgs reads, and every flag of it is owned.
func TestRenderedFlagsAreOwned(t *testing.T) {
	in := input(kvlayout.VLLM, kvlayout.Decode, kvlayout.Layout{TP: 4, DCP: 4, Interleave: 64, PP: 2, DP: 4, DPLocal: 2})
	in.Pods, in.KVMemory, in.MaxLength, in.Leader = 2, 1<<30, 4096, "leader"
	sim := in
	sim.Kind, sim.Mover = kvlayout.Simulator, kvlayout.MoverAgent
	for _, in := range []engine.Input{in, sim} {
		cmd, err := engine.Render(in)
		if err != nil {
			t.Fatal(err)
		}
		flags, problems := engine.ParseArgs(cmd.Args)
		if len(problems) > 0 {
			t.Errorf("problems: %v", problems)
		}
		if diff := cmp.Diff([]string{in.Model}, flags.Positional); diff != "" {
			t.Errorf("positional arguments: %s", diff)
		}
		var env []string
		for _, e := range cmd.Env {
			env = append(env, e.Name)
		}
		owned := engine.Owned(kvlayout.VLLM, cmd.Args, env)
		if want := len(flags.List) + len(env); len(owned) != want {
			t.Errorf("%d of %d rendered flags and variables are owned: %v", len(owned), want, owned)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, change := range map[string]func(*engine.Input){
		"engine type":     func(in *engine.Input) { in.Kind = "SGLang" },
		"role":            func(in *engine.Input) { in.Role = "router" },
		"model is empty":  func(in *engine.Input) { in.Model = "" },
		"transfer mode":   func(in *engine.Input) { in.Mode = kvlayout.Read },
		"mover":           func(in *engine.Input) { in.Mover = kvlayout.MoverAgent },
		"pod 1 of 1":      func(in *engine.Input) { in.Pod = 1 },
		"are not dp":      func(in *engine.Input) { in.Pods = 2 },
		"KV cache type":   func(in *engine.Input) { in.KVType = "INT3" },
		"backend \"TCP\"": func(in *engine.Input) { in.Backend = "TCP" },
	} {
		in := input(kvlayout.VLLM, kvlayout.Prefill, kvlayout.Layout{TP: 4})
		change(&in)
		if _, err := engine.Render(in); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestLiteralModel(t *testing.T) {
	in := input(kvlayout.VLLM, kvlayout.Prefill, kvlayout.Layout{TP: 4})
	in.Model, in.Served = "/models/$(HOME)", ""
	cmd, err := engine.Render(in)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Args[0] != "/models/$$(HOME)" || cmd.Args[2] != "/models/$$(HOME)" {
		t.Errorf("the kubelet would expand %q", cmd.Args[:3])
	}
}

func TestDefaultBlockSize(t *testing.T) {
	if b := engine.DefaultBlockSize(deepseek()); b != 64 {
		t.Errorf("MLA: %d", b)
	}
	if b := engine.DefaultBlockSize(kvlayout.Geometry{Kind: kvlayout.GQA}); b != 16 {
		t.Errorf("GQA: %d", b)
	}
}
