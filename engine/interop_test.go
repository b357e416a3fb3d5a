package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
)

// interop is what hack/interop-vllm.sh holds against vLLM's own parser and
// configuration classes.
type interop struct {
	// Flags are those that this package knows of vLLM.
	Flags []interopFlag `json:"flags"`
	// Lines are commands that are rendered, with what vLLM has to make of them.
	Lines []interopLine `json:"lines"`
	// Sides are layouts of one side with the rules that refuse them.
	Sides []interopSide `json:"sides"`
	// SGLang is the same of SGLang's argument parser, without layouts.
	SGLang struct {
		Flags []interopFlag `json:"flags"`
		Lines []interopLine `json:"lines"`
	} `json:"sglang"`
}

type interopFlag struct {
	Names []string `json:"names"`
	Takes string   `json:"takes"`
}

type interopLine struct {
	Name string            `json:"name"`
	Args []string          `json:"args"`
	Env  map[string]string `json:"env"`
	Want map[string]any    `json:"want"`
}

type interopSide struct {
	Layout    kvlayout.Layout   `json:"layout"`
	BlockSize int               `json:"blockSize"`
	Geometry  kvlayout.Geometry `json:"geometry"`
	Refused   []string          `json:"refused"`
}

// TestInterop writes what the interop check compares into the file that the
// environment names.
func TestInterop(t *testing.T) {
	file := os.Getenv("PDPOOL_INTEROP")
	if file == "" {
		t.Skip("PDPOOL_INTEROP names no file")
	}
	r := rand.New(rand.NewPCG(1, 33))
	out := interop{Flags: interopFlags(vllmDialect), Lines: interopLines(t, r), Sides: interopSides(r)}
	out.SGLang.Flags, out.SGLang.Lines = interopFlags(sglangDialect), sglangLines(t, r)
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func interopFlags(d dialect) []interopFlag {
	takes := map[arity]string{one: "one", toggle: "toggle", mark: "mark", many: "many", object: "object"}
	var out []interopFlag
	for _, k := range d.flags {
		if len(k.name) > 4 && k.name[:4] == "sim-" {
			continue
		}
		f := interopFlag{Names: []string{"--" + k.name}, Takes: takes[k.takes]}
		for _, a := range k.aliases {
			f.Names = append(f.Names, "--"+a)
		}
		if k.short != "" && k.short != "O" { // -O is taken out before argparse sees it
			f.Names = append(f.Names, "-"+k.short)
		}
		out = append(out, f)
	}
	return out
}

// interopLines renders some hundred commands, each in spellings of its own, and
// takes those of the files that people's commands are in.
func interopLines(t *testing.T, r *rand.Rand) []interopLine {
	t.Helper()
	var out []interopLine
	for i := range 300 {
		in := randomInput(r)
		cmd, err := Render(in)
		if err != nil {
			t.Fatalf("%+v: %v", in, err)
		}
		env := map[string]string{}
		for _, e := range cmd.Env {
			env[e.Name] = e.Value
		}
		env[HostIP] = "127.0.0.1"
		out = append(out, interopLine{Name: fmt.Sprint(i, " ", in.Role, " ", in.Layout), Args: respell(r, cmd.Args), Env: env, Want: in.wanted()})
	}
	files, err := filepath.Glob("testdata/commands/*.sh")
	if err != nil || len(files) == 0 {
		t.Fatal("no commands", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range ParseCommands(string(text)).Launches {
			in, _ := l.Read()
			if l.Engine != kvlayout.VLLM || slices.ContainsFunc(l.typed, func(t typed) bool { return t.open != "" && t.open != "<set this>" }) || slices.Contains(l.Args, "mori") {
				continue
			}
			out = append(out, interopLine{Name: fmt.Sprint(file, " ", i), Args: l.Args, Env: map[string]string{}, Want: in.wanted()})
		}
	}
	return out
}

// randomInput is an instance of a shape that Render knows.
func randomInput(r *rand.Rand) Input {
	pick := func(values ...int) int { return values[r.IntN(len(values))] }
	l := kvlayout.Layout{TP: pick(1, 2, 4, 8), DP: 1}
	in := Input{
		Kind: kvlayout.VLLM, Role: kvlayout.Prefill, Model: "deepseek-ai/DeepSeek-R1", Served: "r1",
		KVType: []kvlayout.KVType{kvlayout.Auto, kvlayout.BF16, kvlayout.FP16, kvlayout.FP8}[r.IntN(4)],
		Mover:  kvlayout.MoverEngine, Mode: kvlayout.Write, Backend: []Backend{RDMA, XGMI}[r.IntN(2)],
		BlockSize: pick(1, 16, 64, 128), MaxLength: pick(0, 4096, 131072), KVMemory: int64(pick(0, 1<<30)),
		Timeouts: Timeouts{Transfer: 30, Defer: 60, ReceiveAbort: 120},
		Ports:    Ports{HTTP: 20000, Ping: 20005, RPC: 20008, VLLM: 20010, Handshake: 20032, Notify: 20048}, Pods: 1,
	}
	if r.IntN(2) == 0 {
		in.Role = kvlayout.Decode
		l.DCP, l.Interleave = pick(1, l.TP), pick(1, 16)
	}
	if l.TP == 1 {
		in.Pods = pick(1, 2)
		l.DPLocal = pick(2, 4)
		l.DP = l.DPLocal * in.Pods
		in.Pod = r.IntN(in.Pods)
		in.DPStart, in.Leader = in.Pod*l.DPLocal, "leader"
		in.Args = []string{"--enable-expert-parallel", "-O3", "--all2all-backend=mori_high_throughput"}
	}
	in.Layout = l
	return in
}

// respell writes flags in other ways that vLLM takes: underscores, "=", short names.
func respell(r *rand.Rand, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "--")
		k, known := vllmDialect.lookup(name)
		if !ok || !known || k.takes != one {
			out = append(out, args[i])
			continue
		}
		spelled := args[i]
		switch n := r.IntN(4); {
		case n == 0:
			spelled = "--" + strings.ReplaceAll(name, "-", "_")
		case n == 1 && k.short != "" && k.short != "O":
			spelled = "-" + k.short
		}
		i++
		if r.IntN(2) == 0 {
			out = append(out, spelled+"="+args[i])
			continue
		}
		out = append(out, spelled, args[i])
	}
	return out
}

// What Render writes is what Read reads.
func TestReadsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 33))
	for range 300 {
		in := randomInput(r)
		cmd, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		args := respell(r, cmd.Args)
		got, notes := Launch{Engine: kvlayout.VLLM, Args: args}.Read()
		if diff := cmp.Diff(in.wanted(), got.wanted()); diff != "" || len(notes) > 0 {
			t.Fatalf("%q\n%s\n%v", args, diff, notes)
		}
		if got.Backend != in.Backend || got.Mode != in.Mode || got.Timeouts != in.Timeouts || got.Ports.Notify != in.Ports.Notify || got.FailurePolicy != "fail" {
			t.Fatalf("%q: %+v", args, got)
		}
	}
}

// wanted is what vLLM's arguments have to hold, by its own names.
func (i Instance) wanted() map[string]any {
	in := Input{
		Model: i.Model, Role: i.Role, Layout: i.Layout, BlockSize: i.BlockSize, KVType: i.KVType, MaxLength: i.MaxLength,
		KVMemory: i.KVMemory, Ports: i.Ports, Pods: 1,
	}
	return in.wanted()
}

// wanted is what vLLM's arguments have to hold, by its own names.
func (in Input) wanted() map[string]any {
	l := in.Layout.Defaulted()
	want := map[string]any{
		"model": in.Model, "tensor_parallel_size": l.TP, "pipeline_parallel_size": l.PP, "decode_context_parallel_size": l.DCP,
		"data_parallel_size": l.DP, "block_size": in.BlockSize, "kv_cache_dtype": KVDType(in.KVType), "port": in.Ports.HTTP,
		"kv_role": map[kvlayout.Role]string{kvlayout.Prefill: Producer, kvlayout.Decode: Consumer}[in.Role],
	}
	if l.DCP > 1 && in.Layout.Interleave > 0 {
		want["cp_kv_cache_interleave_size"] = l.Interleave
	}
	if l.DP > 1 {
		want["data_parallel_size_local"] = l.DPLocal
	}
	if in.MaxLength > 0 {
		want["max_model_len"] = in.MaxLength
	}
	if in.KVMemory > 0 {
		want["kv_cache_memory_bytes"] = in.KVMemory
	}
	return want
}

// sglangLines are commands with flags and values by chance, and what they have to
// hold by SGLang's names.
func sglangLines(t *testing.T, r *rand.Rand) []interopLine {
	t.Helper()
	values := map[string][]string{
		"tp-size": {"1", "8", "16"}, "pp-size": {"1", "2"}, "dcp-size": {"1", "2", "8"}, "dp-size": {"1", "8"}, "ep-size": {"1", "8"},
		"page-size": {"1", "64"}, "kv-cache-dtype": {"auto", "bf16", "fp8_e4m3"}, "context-length": {"4096", "131072"},
		"disaggregation-mode": {"prefill", "decode"}, "disaggregation-transfer-backend": {"mori"}, "disaggregation-bootstrap-port": {"8998", "9000"},
		"speculative-num-draft-tokens": {"3"}, "port": {"30000"}, "chunked-prefill-size": {"-1", "4096"},
	}
	var out []interopLine
	for i := range 100 {
		args, want := []string{"--model-path", "m"}, map[string]any{"model_path": "m"}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if r.IntN(2) == 0 {
				continue
			}
			k, _ := sglangDialect.lookup(name)
			spellings := append([]string{name}, k.aliases...)
			if short := strings.TrimSuffix(name, "-size"); slices.Contains([]string{"tp", "dp"}, short) {
				spellings = append(spellings, short)
			}
			spelled, value := "--"+spellings[r.IntN(len(spellings))], values[name][r.IntN(len(values[name]))]
			if want[strings.ReplaceAll(name, "-", "_")] = any(value); k.whole || name == "context-length" {
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				want[strings.ReplaceAll(name, "-", "_")] = n
			}
			if r.IntN(2) == 0 {
				args = append(args, spelled+"="+value)
				continue
			}
			args = append(args, spelled, value)
		}
		flags, problems := ParseArgsOf(kvlayout.SGLang, args)
		for name, v := range want {
			if got := flags.Value(strings.ReplaceAll(name, "_", "-")); got != fmt.Sprint(v) || len(problems) > 0 {
				t.Fatalf("%q: %s is %q, want %v; %v", args, name, got, v, problems)
			}
		}
		out = append(out, interopLine{Name: fmt.Sprint("SGLang ", i), Args: args, Want: want})
	}
	return out
}

func TestSGLangLines(t *testing.T) {
	if lines := sglangLines(t, rand.New(rand.NewPCG(3, 33))); len(lines) != 100 {
		t.Errorf("%d lines", len(lines))
	}
}

// interopSides makes layouts and has our rules judge them. Only rules that vLLM's
// configuration has too are compared.
func interopSides(r *rand.Rand) []interopSide {
	pick := func(values ...int) int { return values[r.IntN(len(values))] }
	compared := map[string]bool{"heads-tp": true, "dcp-tp": true, "dcp-gqa": true, "interleave-block": true, "degrees": true}
	var out []interopSide
	for range 400 {
		g := kvlayout.Geometry{Model: "x", Kind: kvlayout.GQA, Layers: 2, HeadValues: 64, MoE: true}
		g.KVHeads = pick(1, 2, 4, 8)
		g.AttentionHeads = g.KVHeads * pick(1, 2, 3, 4, 8, 16)
		if r.IntN(2) == 0 {
			g.Kind, g.KVHeads, g.AttentionHeads, g.HeadValues = kvlayout.MLA, 1, pick(4, 8, 12, 16, 64, 128), 576
		}
		s := interopSide{Geometry: g, BlockSize: pick(16, 64), Refused: []string{}}
		s.Layout = kvlayout.Layout{TP: pick(1, 2, 3, 4, 6, 8, 16), DCP: pick(1, 1, 2, 3, 4, 8), Interleave: pick(1, 1, 8, 16, 48, 64), DP: 1}
		p := kvlayout.Pair{Engine: kvlayout.VLLM, Mover: kvlayout.MoverEngine, Geometry: g, HasGeometry: true}
		p.Decode = kvlayout.Side{Layout: s.Layout, BlockSize: s.BlockSize}
		p.Prefill = p.Decode
		for _, problem := range kvlayout.Check(p, kvlayout.Decode) {
			if problem.Rule == "kv-heads-tp" { // vLLM finds out in the forward only, and what follows from it we don't say
				s.Refused = nil
				break
			}
			if problem.Severity == kvlayout.Refuse && compared[problem.Rule] {
				s.Refused = append(s.Refused, problem.Rule)
			}
		}
		if s.Refused != nil {
			out = append(out, s)
		}
	}
	return out
}
