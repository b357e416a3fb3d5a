package engine

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Instance is what a launch says of an engine instance as one side of a pair.
// What it does not say is zero; the engine's own choice then holds.
type Instance struct {
	Engine         kvlayout.Engine
	Image, Version string
	Model          string
	Revision       string
	Served         string // the first name of the model for clients
	// Role is the side of the pair; "" when the launch names none.
	Role kvlayout.Role
	// Connector moves the bytes: vLLM's kv_connector, SGLang's transfer backend.
	Connector string
	// Mover is Engine for MoRIIOConnector and mori, Agent for AgentConnector, ""
	// for others, which PDPool doesn't run.
	Mover   kvlayout.Mover
	Mode    kvlayout.Mode
	Backend Backend
	// Layout has the degrees as said, unset ones 0. With SGLang, DP is the degree of
	// data parallel attention, which lies inside TP.
	Layout kvlayout.Layout
	// PCP is the prefill context parallel degree.
	PCP int
	// Experts is the degree of expert parallelism; -1 is vLLM's switch, which takes
	// all ranks of tp and dp.
	Experts int
	// Copies are independent instances that one SGLang launch starts.
	Copies int
	// Nodes that one group of ranks is spread over, and which of them this launch is.
	Nodes, Node int
	BlockSize   int
	KVType      kvlayout.KVType // "" not said, or not one of kvlayout's
	KVSpelled   string          // as typed
	ModelType   kvlayout.KVType // of the model, which a cache of the type auto has too; "" not said
	MaxLength   int             // tokens of prompt and answer
	KVMemory    int64           // bytes of KV memory per rank
	KVTokens    int             // tokens that the cache holds, as SGLang is told
	KVBlocks    int             // blocks that the cache holds, as vLLM is told
	// MemoryFraction is vLLM's gpu-memory-utilization and SGLang's
	// mem-fraction-static; 0 not said.
	MemoryFraction float64
	Ports          Ports
	// Bootstrap is the port of SGLang's bootstrap server.
	Bootstrap   int
	HostNetwork bool
	Attention   string // the attention backend, that of the role where there are two
	Speculation Speculation
	// BatchTokens bounds the tokens of a step: max-num-batched-tokens, or SGLang's
	// chunked-prefill-size.
	BatchTokens int
	// Sequences bounds the requests that run at a time.
	Sequences int
	// WindowRatio is SGLang's swa-full-tokens-ratio; 0 not said.
	WindowRatio float64
	// HybridCacheOff: one kind of cache group for all layers.
	HybridCacheOff bool
	// StateRatio and States are SGLang's mamba-full-memory-ratio and
	// max-mamba-cache-size; 0 not said.
	StateRatio float64
	States     int
	// StatesAtBlocks: recurrent states are kept at the ends of blocks (vLLM's mamba
	// cache mode align).
	StatesAtBlocks bool
	// AllToAll is vLLM's all-to-all backend of expert parallelism.
	AllToAll    string
	KVFormat    string // SGLang's --dsv4-attn-backend, which decides how a cache is stored
	PrefixCache Choice
	// HostCache: SGLang's hierarchical cache.
	HostCache     Choice
	FailurePolicy string // of failed loads, "" not said
	Timeouts      Timeouts
	// Rest are the arguments that none of the fields stands for.
	Rest []string
	Env  []EnvVar
}

// Choice is a switch that may be left to the engine.
type Choice int

// The choices.
const (
	Unsaid Choice = iota
	On
	Off
)

func choose(on bool) Choice {
	if on {
		return On
	}
	return Off
}

// Speculation is speculative decoding; the zero value is none.
type Speculation struct {
	Method string // as the engine spells it; "" with a Model means a draft model
	Model  string
	Tokens int
}

// Variable is the value of an environment variable of the instance.
func (i Instance) Variable(name string) (string, bool) {
	for _, e := range slices.Backward(i.Env) {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

// FieldPlace is where the launch says what a field of a PDPool's spec says, such
// as layout.dcp or engine.blockSize, without the role in front; false where it
// doesn't.
func (l Launch) FieldPlace(field string) (Place, bool) {
	d := dialectOf(l.Engine)
	flags, _ := ParseArgsOf(l.Engine, l.Args)
	for _, g := range slices.Backward(flags.List) {
		k, ok := d.lookup(g.Name)
		if !ok || !g.Known || k.owner.field == "" {
			continue
		}
		if field == k.owner.field || strings.HasPrefix(field, k.owner.field+".") {
			return l.ArgPlace(g.Index), true
		}
	}
	return Place{}, false
}

// Read says what the launch means. What it can't read, or what will not do what
// it seems to, is among the notes.
func (l Launch) Read() (Instance, []Note) {
	f := facts{
		launch: &l, used: map[string]bool{},
		in: Instance{Engine: l.Engine, Image: l.Image, Version: l.Version, Env: l.Env, HostNetwork: l.HostNetwork},
	}
	flags, problems := ParseArgsOf(l.Engine, l.Args)
	f.flags, f.notes = flags, slices.Clone(l.notes)
	for _, p := range problems {
		if !f.open(p.Index) && !f.open(p.Index+1) {
			f.problem(p)
		}
	}
	f.fill()
	f.opens()
	f.unknownFlags()
	f.repeated()
	f.positional()
	if l.Engine == kvlayout.SGLang {
		f.sglang()
	} else {
		f.vllm()
	}
	f.deadEnv()
	f.rest()
	return f.in, f.notes
}

// facts reads one launch.
type facts struct {
	launch *Launch
	flags  Flags
	in     Instance
	notes  []Note
	used   map[string]bool // flags that a field stands for
}

func (f *facts) open(index int) bool {
	return index >= 0 && index < len(f.launch.typed) && f.launch.typed[index].open != ""
}

// last is the last occurrence of a flag with a value that is known.
func (f *facts) last(name string) (Flag, bool) {
	f.used[name] = true
	g, ok := f.flags.Last(name)
	if !ok || f.open(g.Index) || len(g.Values) > 0 && g.valueAt() != g.Index && f.open(g.valueAt()) {
		return Flag{}, false
	}
	return g, ok && (len(g.Values) > 0 || g.Negated || g.bare())
}

// valueAt is the index of the argument with the value.
func (g Flag) valueAt() int {
	if g.inline {
		return g.Index
	}
	return g.Index + 1
}

// bare says that the flag was given without a value.
func (g Flag) bare() bool { return len(g.Values) == 0 }

func (f *facts) text(name string) string {
	g, ok := f.last(name)
	if !ok || g.bare() {
		return ""
	}
	return g.Values[0]
}

// number is a whole number from least on, or 0 when it is not there or no such.
func (f *facts) number(name string, least int) int {
	v := f.text(name)
	if v == "" {
		return 0
	}
	g, _ := f.flags.Last(name)
	n, err := strconv.Atoi(v)
	switch {
	case err != nil: // among the problems already
		return 0
	case n < least || n > 1<<30:
		f.flag(g, "%s %s is no number from %d on", g.Spelled, brief(v), least)
		return 0
	}
	return n
}

// size is a number that may carry a unit.
func (f *facts) size(name string) int64 {
	v := f.text(name)
	if v == "" {
		return 0
	}
	n, ok := parseSize(v)
	if !ok || n < 0 {
		g, _ := f.flags.Last(name)
		f.flag(g, "%s needs a number such as 4096, 8k or 2G, not %q", g.Spelled, brief(v))
		return 0
	}
	return n
}

func (f *facts) fraction(name string) float64 {
	return f.real(name, 1, "a fraction between 0 and 1")
}

// share is one quantity per another.
func (f *facts) share(name string) float64 {
	return f.real(name, 1<<20, "a number above 0")
}

func (f *facts) real(name string, most float64, needs string) float64 {
	v := f.text(name)
	if v == "" {
		return 0
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x > 0 && x <= most) {
		g, _ := f.flags.Last(name)
		f.flag(g, "%s needs %s, not %q", g.Spelled, needs, brief(v))
		return 0
	}
	return x
}

func (f *facts) choice(name string) Choice {
	g, ok := f.last(name)
	if !ok {
		return Unsaid
	}
	return choose(!g.Negated)
}

func (f *facts) on(name string) bool { return f.choice(name) == On }

// length is MaxLength; "auto" and -1 leave it to the engine.
func (f *facts) length(name string) int {
	if v := f.text(name); v == "auto" || v == "-1" {
		return 0
	}
	return int(min(f.size(name), 1<<40))
}

// repeated notes flags that are given several times with several values.
func (f *facts) repeated() {
	first := map[string]int{}
	for i, g := range f.flags.List {
		if !g.Known || g.Key != "" || g.bare() {
			continue
		}
		j, ok := first[g.Name]
		if !ok {
			first[g.Name] = i
			continue
		}
		if before := f.flags.List[j]; !slices.Equal(before.Values, g.Values) {
			f.note(g.Index, "%s is given again: %s counts, and %s before it does not", g.Spelled, brief(g.Values[0]), brief(before.Values[0]))
		}
		first[g.Name] = i
	}
}

// positional finds the model among the arguments without a flag, and notes others.
func (f *facts) positional() {
	name := "model"
	if f.in.Engine == kvlayout.SGLang {
		name = "model-path"
	}
	f.in.Model = f.text(name)
	for i, at := range f.flags.PositionalAt {
		if f.in.Model == "" && i == 0 {
			if !f.open(at) {
				f.in.Model = f.flags.Positional[0]
			}
			continue
		}
		switch word := f.flags.Positional[i]; {
		case f.open(at):
		case strings.HasPrefix(word, "–"), strings.HasPrefix(word, "—"):
			f.stops(at, "", "%s begins with a long dash, which is no flag: type --", brief(word))
		default:
			f.stops(at, "", "%q belongs to no flag", brief(word))
		}
	}
	if _, flag := f.flags.Last(name); f.in.Model == "" && !flag && len(f.flags.Positional) == 0 {
		f.noModel()
	}
	f.in.Served = cmp.Or(f.text("served-model-name"), f.in.Model)
	f.in.Revision = f.text("revision")
}

// kvType reads the element type of the cache.
func (f *facts) kvType() {
	f.in.KVSpelled = f.text("kv-cache-dtype")
	t, ok := kvTypeOf(f.in.Engine, f.in.KVSpelled)
	if f.in.KVSpelled != "" && !ok {
		g, _ := f.flags.Last("kv-cache-dtype")
		f.unread(g.Index, "engine.kvCacheType", "the KV cache type %s is none that the rules know", brief(f.in.KVSpelled))
	}
	f.in.KVType = t
	switch f.text("dtype") {
	case "bfloat16":
		f.in.ModelType = kvlayout.BF16
	case "float16", "half":
		f.in.ModelType = kvlayout.FP16
	}
	f.used["dtype"] = false
}

// kvTypeOf is the element type that an engine means by a spelling, and whether it is
// known.
func kvTypeOf(kind kvlayout.Engine, spelled string) (kvlayout.KVType, bool) {
	switch spelled {
	case "auto":
		return kvlayout.Auto, true
	case "bfloat16", "bf16":
		return kvlayout.BF16, true
	case "float16":
		return kvlayout.FP16, true
	case "fp8", "fp8_e4m3", "fp8_inc":
		return kvlayout.FP8, true
	case "fp8_e5m2":
		if kind == kvlayout.SGLang { // which takes the GPU's own type for both on AMD GPUs
			return kvlayout.FP8, true
		}
		return kvlayout.FP8E5M2, true
	}
	return "", false
}

// rest keeps the arguments of flags that no field stands for.
func (f *facts) rest() {
	keep := make([]bool, len(f.launch.Args))
	for _, g := range f.flags.List {
		if f.used[g.Name] {
			continue
		}
		keep[g.Index] = true
		for i := range g.Values {
			if at := g.valueAt() + i; at < len(keep) {
				keep[at] = true
			}
		}
	}
	for i, k := range keep {
		if k {
			f.in.Rest = append(f.in.Rest, f.launch.Args[i])
		}
	}
}

// port is a port number in a JSON value, as a number or as text.
func port(v any) (int, bool) {
	var n int
	var err error
	switch v := v.(type) {
	case float64:
		n = int(v)
	case string:
		n, err = strconv.Atoi(strings.TrimSpace(v))
	default:
		return 0, false
	}
	return n, err == nil && n > 0 && n < 1<<16
}
