package enginesim

import (
	"fmt"
	"strings"
	"time"

	"github.com/pdpool/pdpool/engine"
)

// Config is what one simulated instance is, from its command line.
type Config struct {
	Model    string
	Served   []string // names that clients may use
	Geometry Geometry
	Layout   Layout
	Blocks   int // KV blocks of each rank
	// MaxLength bounds prompt and answer in tokens; 0 leaves it to the blocks.
	MaxLength int
	Host      string
	Port      int
	// Socket is the agent's KV socket; "" makes one unsplit instance. Producer
	// says that this side prefills.
	Socket   string
	Producer bool
	KVType   string // as the agent spells it
	// Pacing: how long a layer of prefill and a token of the answer take.
	PerLayer time.Duration
	PerToken time.Duration
	// Silence is how long the agent may say nothing of a transfer before it is given
	// up; 0 leaves that to the agent.
	Silence time.Duration
	// MaxQueue is how many requests of a data parallel rank may wait for blocks.
	MaxQueue int
	// Ignored are flags of vLLM that make no difference here.
	Ignored []string

	faults faults
	mishap *mishap
}

// UsageError is a command line that can't be read, as opposed to one that asks
// for what can't work.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

func usagef(format string, args ...any) error { return &UsageError{Text: fmt.Sprintf(format, args...)} }

const (
	defaultKVMemory = 128 << 20
	defaultQueue    = 256
	maxBlocks       = 1 << 18 // what the KV socket can name in one message
)

// simulated are the flags that mean something here.
var simulated = map[string]bool{
	"served-model-name": true, "host": true, "port": true, "max-model-len": true,
	"tensor-parallel-size": true, "decode-context-parallel-size": true,
	"cp-kv-cache-interleave-size": true, "dcp-kv-cache-interleave-size": true,
	"data-parallel-size": true, "data-parallel-size-local": true, "data-parallel-start-rank": true, "data-parallel-hybrid-lb": true,
	"block-size": true, "kv-cache-dtype": true, "kv-cache-memory-bytes": true, "num-gpu-blocks-override": true,
	"kv-transfer-config": true, "sim-geometry": true, "sim-kv-layout": true, "sim-fault": true,
	"sim-prefill-ms-per-layer": true, "sim-ms-per-token": true, "sim-max-queue": true,
	"sim-agent-silence-ms": true, "sim-fail": true,
}

// refused are flags of vLLM that would change what a client sees, with the reason.
var refused = map[string]string{
	"headless":                             "every process serves HTTP",
	"data-parallel-external-lb":            "use --data-parallel-hybrid-lb",
	"data-parallel-multi-port-external-lb": "use --data-parallel-hybrid-lb",
	"data-parallel-rank":                   "use --data-parallel-start-rank",
	"enable-prefix-caching":                "there is no prefix cache",
	"config":                               "give the flags themselves",
}

// Parse reads the arguments that follow "serve": vLLM's own, and those that begin
// with --sim-. The error is a *UsageError when the line can't be read.
func Parse(args []string) (Config, error) {
	flags, problems := engine.ParseArgs(args)
	if len(problems) > 0 {
		return Config{}, usagef("%s", problems[0].Text)
	}
	var c Config
	if err := c.sort(flags); err != nil {
		return Config{}, err
	}
	for _, read := range []func(engine.Flags) error{c.readServer, c.readGeometry, c.readLayout, c.readTransfer, c.readMemory, c.readFaults} {
		if err := read(flags); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

// sort tells flags that count from those that don't and those that can't be.
func (c *Config) sort(flags engine.Flags) error {
	switch len(flags.Positional) {
	case 1:
		c.Model = flags.Positional[0]
	case 0:
		c.Model = flags.Value("model")
	default:
		return usagef("%q belongs to no flag; the one argument without a flag is the model", flags.Positional[1])
	}
	if c.Model == "" {
		return usagef("a model is needed: enginesim serve MODEL [flags]")
	}
	for _, f := range flags.List {
		reason, no := refused[f.Name]
		switch {
		case simulated[f.Name] || f.Name == "model":
		case !f.Known:
			return usagef("%s is no flag of vLLM that the simulator knows", f.Spelled)
		case no && !f.Negated:
			return fmt.Errorf("%s is not simulated: %s", f.Spelled, reason)
		case f.Name == "pipeline-parallel-size" || f.Name == "prefill-context-parallel-size" || f.Name == "nnodes":
			if f.Values[0] != "1" {
				return fmt.Errorf("%s %s is not simulated, only 1", f.Spelled, f.Values[0])
			}
		default:
			c.Ignored = append(c.Ignored, f.Spelled)
		}
	}
	return nil
}

func (c *Config) readServer(flags engine.Flags) error {
	c.Served = []string{c.Model}
	if f, ok := flags.Last("served-model-name"); ok {
		c.Served = f.Values
	}
	c.Host = flags.Value("host")
	var err error
	if c.Port, err = flags.Int("port", 8000); err != nil {
		return usagef("%v", err)
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("--port %d is not a port", c.Port)
	}
	length := flags.Value("max-model-len")
	if length == "" || length == "auto" || length == "-1" {
		return nil
	}
	n, err := flags.Size("max-model-len", 0)
	if err != nil {
		return usagef("%v", err)
	}
	if n < 1 || n > 1<<28 {
		return fmt.Errorf("--max-model-len %s is not 1 to %d", length, 1<<28)
	}
	c.MaxLength = int(n)
	return nil
}

func (c *Config) readGeometry(flags engine.Flags) error {
	spec, err := flags.JSON("sim-geometry")
	if err != nil {
		return usagef("%v", err)
	}
	if c.Geometry, err = geometryOf(c.Model, spec); err != nil {
		return err
	}
	dtype := flags.Value("kv-cache-dtype")
	switch dtype {
	case "", "auto":
		c.KVType, c.Geometry.ValueBytes = "Auto", 2
	case "bfloat16":
		c.KVType, c.Geometry.ValueBytes = "BF16", 2
	case "float16":
		c.KVType, c.Geometry.ValueBytes = "FP16", 2
	case "fp8", "fp8_e4m3":
		c.KVType, c.Geometry.ValueBytes = "FP8", 1
	default:
		return fmt.Errorf("--kv-cache-dtype %q is not simulated: use auto, bfloat16, float16 or fp8", dtype)
	}
	return c.Geometry.check()
}

func (c *Config) readLayout(flags engine.Flags) error {
	l := &c.Layout
	block := 16
	if c.Geometry.Kind == mla {
		block = 64
	}
	for _, f := range []struct {
		to      *int
		name    string
		missing int
	}{
		{&l.TP, "tensor-parallel-size", 1},
		{&l.DCP, "decode-context-parallel-size", 1},
		{&l.Interleave, "cp-kv-cache-interleave-size", 1},
		{&l.DP, "data-parallel-size", 1},
		{&l.DPStart, "data-parallel-start-rank", 0},
		{&l.Block, "block-size", block},
	} {
		var err error
		if *f.to, err = flags.Int(f.name, f.missing); err != nil {
			return usagef("%v", err)
		}
	}
	var err error
	if l.DPLocal, err = flags.Int("data-parallel-size-local", l.DP); err != nil {
		return usagef("%v", err)
	}
	// vLLM's older name wins over the newer one where it says more than 1.
	old, err := flags.Int("dcp-kv-cache-interleave-size", 1)
	if err != nil {
		return usagef("%v", err)
	}
	if old > 1 {
		l.Interleave = old
	}
	if l.DPLocal < l.DP && !flags.Switch("data-parallel-hybrid-lb") {
		return fmt.Errorf("--data-parallel-size-local %d of %d ranks needs --data-parallel-hybrid-lb: every process serves HTTP", l.DPLocal, l.DP)
	}
	switch order := strings.ToUpper(flags.Value("sim-kv-layout")); order {
	case "", "LBHNC":
	case "LBNHC":
		l.TokenMajor = true
	default:
		return fmt.Errorf("--sim-kv-layout %q is neither LBHNC nor LBNHC", order)
	}
	return l.check(c.Geometry)
}

func (c *Config) readTransfer(flags engine.Flags) error {
	raw, err := flags.JSON("kv-transfer-config")
	if err != nil {
		return usagef("%v", err)
	}
	if raw == nil {
		return nil
	}
	t, err := engine.ParseTransferConfig(raw)
	if err != nil {
		return err
	}
	switch {
	case t.Connector != engine.AgentConnector:
		return fmt.Errorf("kv_connector %q is not simulated, only %s", t.Connector, engine.AgentConnector)
	case t.Role != engine.Producer && t.Role != engine.Consumer:
		return fmt.Errorf("kv_role %q is neither %s nor %s", t.Role, engine.Producer, engine.Consumer)
	case t.FailurePolicy != "" && t.FailurePolicy != "fail":
		return fmt.Errorf("kv_load_failure_policy %q is not simulated, only fail", t.FailurePolicy)
	case t.Socket() == "":
		return fmt.Errorf("kv_connector_extra_config has no socket")
	}
	c.Socket, c.Producer = t.Socket(), t.Role == engine.Producer
	return nil
}

func (c *Config) readMemory(flags engine.Flags) error {
	size, err := flags.Size("kv-cache-memory-bytes", defaultKVMemory)
	if err != nil {
		return usagef("%v", err)
	}
	each := blockBytes(c.Geometry, c.Layout)
	blocks, err := flags.Int("num-gpu-blocks-override", int(min(size/each, maxBlocks)))
	if err != nil {
		return usagef("%v", err)
	}
	switch {
	case blocks < 1:
		return fmt.Errorf("%d bytes of KV memory hold no block of %d bytes: raise --kv-cache-memory-bytes (engine.kvCacheMemory of a pool)", size, each)
	case blocks > maxBlocks:
		return fmt.Errorf("--num-gpu-blocks-override %d is over %d", blocks, maxBlocks)
	}
	c.Blocks = blocks
	if c.MaxQueue, err = flags.Int("sim-max-queue", defaultQueue); err != nil {
		return usagef("%v", err)
	}
	if c.MaxQueue < 1 {
		return fmt.Errorf("--sim-max-queue %d is less than 1", c.MaxQueue)
	}
	if c.PerLayer, err = milliseconds(flags, "sim-prefill-ms-per-layer"); err != nil {
		return err
	}
	if c.PerToken, err = milliseconds(flags, "sim-ms-per-token"); err != nil {
		return err
	}
	c.Silence, err = milliseconds(flags, "sim-agent-silence-ms")
	return err
}

func milliseconds(flags engine.Flags, name string) (time.Duration, error) {
	v := flags.Value(name)
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v + "ms")
	if err != nil || d < 0 || d > time.Hour {
		return 0, usagef("--%s needs milliseconds, not %q", name, v)
	}
	return d, nil
}

func (c *Config) readFaults(flags engine.Flags) error {
	specs := flags.All("sim-fault")
	var err error
	if c.mishap, err = parseMishap(flags.Value("sim-fail")); err != nil {
		return usagef("--sim-fail: %v", err)
	}
	if c.faults, err = parseFaults(specs); err != nil {
		return err
	}
	if err := c.faults.check(c); err != nil {
		return err
	}
	return c.checkWorkers(specs)
}

// Capacity is the number of tokens that the blocks of one rank group hold.
func (c Config) Capacity() int { return c.Blocks * c.Layout.Block * c.Layout.DCP }
