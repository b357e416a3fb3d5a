package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// transferKeys are the keys of --kv-transfer-config; vLLM refuses others.
var transferKeys = []string{
	"kv_connector", "kv_role", "kv_connector_extra_config", "kv_connector_module_path", "kv_load_failure_policy",
	"engine_id", "kv_port", "kv_buffer_device", "enable_permute_local_kv",
}

// Defaults of vLLM and of its MoRIIO connector, as of 0.33.0.
const (
	vllmPort         = 8000
	moriioHandshake  = 6301
	moriioNotify     = 61005
	moriioTransfer   = 30 // seconds
	moriioDefer      = 60
	moriioReceive    = 120
	readModeVariable = "VLLM_MORIIO_CONNECTOR_READ_MODE"
)

// vllm reads vLLM's flags and environment.
func (f *facts) vllm() {
	in := &f.in
	in.Ports.HTTP = f.number("port", 1)
	if in.Ports.HTTP == 0 {
		in.Ports.HTTP = vllmPort
	}
	in.Ports.RPC = f.number("data-parallel-rpc-port", 1)
	if v, ok := in.Variable("VLLM_PORT"); ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			f.note(-1, "VLLM_PORT is %q, and vLLM stops on what is no number: a Service named vllm sets it so", brief(v))
		}
		in.Ports.VLLM = n
	}
	f.vllmLayout()
	in.BlockSize = f.number("block-size", 1)
	f.kvType()
	in.MaxLength = f.length("max-model-len")
	in.KVMemory = f.size("kv-cache-memory-bytes")
	in.KVBlocks = f.number("num-gpu-blocks-override", 1)
	in.MemoryFraction = f.fraction("gpu-memory-utilization")
	in.HybridCacheOff = f.on("disable-hybrid-kv-cache-manager")
	in.PrefixCache = f.choice("enable-prefix-caching")
	in.BatchTokens = int(min(f.size("max-num-batched-tokens"), 1<<30))
	in.Sequences = f.number("max-num-seqs", 1)
	f.vllmAttention()
	f.vllmSpeculation()
	f.transfer()
	if f.text("config") != "" {
		g, _ := f.flags.Last("config")
		f.note(g.Index, "the file %s is not read: flags in it are not known", brief(g.Values[0]))
	}
	in.AllToAll = f.text("all2all-backend")
	f.used["all2all-backend"] = false
	in.StatesAtBlocks = f.text("mamba-cache-mode") == "align"
	f.used["mamba-cache-mode"] = false
}

// vllmLayout reads the degrees. With an external load balancer each launch is one
// data parallel rank.
func (f *facts) vllmLayout() {
	in := &f.in
	l := &in.Layout
	l.TP = f.number("tensor-parallel-size", 1)
	l.PP = f.number("pipeline-parallel-size", 1)
	in.PCP = f.number("prefill-context-parallel-size", 1)
	l.DCP = f.number("decode-context-parallel-size", 1)
	l.Interleave = f.number("cp-kv-cache-interleave-size", 1)
	// The older flag wins over the newer one unless it is 1.
	if old := f.number("dcp-kv-cache-interleave-size", 1); old > 1 || l.Interleave == 0 {
		l.Interleave = old
	}
	l.DP = f.number("data-parallel-size", 1)
	l.DPLocal = f.number("data-parallel-size-local", 0)
	f.used["data-parallel-start-rank"], f.used["data-parallel-address"], f.used["headless"] = true, true, true
	f.used["data-parallel-hybrid-lb"], f.used["data-parallel-external-lb"], f.used["data-parallel-multi-port-external-lb"] = true, true, true
	f.used["host"], f.used["master-addr"], f.used["master-port"] = true, true, true
	if _, ok := f.last("data-parallel-rank"); ok || f.on("data-parallel-external-lb") {
		l.DPLocal = 1
	}
	if l.DPLocal > 0 && l.DP > 0 && l.DP%l.DPLocal != 0 {
		g, _ := f.flags.Last("data-parallel-size-local")
		f.note(g.Index, "%d data parallel ranks can't be shared out to pods of %d", l.DP, l.DPLocal)
	}
	in.Nodes, in.Node = f.number("nnodes", 1), f.number("node-rank", 0)
	if f.on("enable-expert-parallel") {
		in.Experts = -1
	}
}

// vllmAttention takes the backend from its own flag or from --attention-config.
func (f *facts) vllmAttention() {
	f.in.Attention = f.text("attention-backend")
	object, err := f.object("attention-config")
	if err != nil {
		f.note(-1, "%s", err)
	}
	if v, ok := object["backend"].(string); ok && f.in.Attention == "" {
		f.in.Attention = v
	}
	if v, ok := f.in.Variable("VLLM_ATTENTION_BACKEND"); ok && f.in.Attention == "" && f.in.Version == "" {
		f.in.Attention = v
	}
}

func (f *facts) vllmSpeculation() {
	object, err := f.object("speculative-config")
	if err != nil {
		f.note(-1, "%s", err)
	}
	s := &f.in.Speculation
	s.Method, _ = object["method"].(string)
	s.Model, _ = object["model"].(string)
	if n, ok := object["num_speculative_tokens"].(float64); ok && n >= 0 && n < 1<<20 {
		s.Tokens = int(n)
	}
	if v := f.text("spec-method"); v != "" {
		s.Method = v
	}
	if v := f.text("spec-model"); v != "" {
		s.Model = v
	}
	if n := f.number("spec-tokens", 1); n > 0 {
		s.Tokens = n
	}
}

// object is the value of a JSON flag with its dotted keys; nil when it is not
// there or not known.
func (f *facts) object(name string) (map[string]any, error) {
	f.used[name] = true
	if g, ok := f.flags.Last(name); ok && (g.bare() || f.open(g.valueAt()) && !json.Valid([]byte(g.Values[0]))) {
		return nil, nil
	}
	raw, err := f.flags.JSON(name)
	if err != nil || raw == nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("the value of --%s is not a JSON object", name)
	}
	return out, nil
}

// transfer reads --kv-transfer-config.
func (f *facts) transfer() {
	const name = "kv-transfer-config"
	index := -1
	for _, g := range f.flags.List {
		if g.Name == name {
			index = g.Index
		}
	}
	object, err := f.object(name)
	if err != nil {
		f.note(index, "%s", err)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(transferKeys, key) {
			f.note(index, "vLLM refuses the key %q of --kv-transfer-config", brief(key))
		}
	}
	if object == nil {
		if index < 0 {
			f.note(-1, "there is no --kv-transfer-config: this instance takes part in no transfer")
		}
		return
	}
	in := &f.in
	in.Connector, _ = object["kv_connector"].(string)
	in.FailurePolicy, _ = object["kv_load_failure_policy"].(string)
	switch role, _ := object["kv_role"].(string); role {
	case Producer:
		in.Role = kvlayout.Prefill
	case Consumer:
		in.Role = kvlayout.Decode
	case "":
		f.note(index, "--kv-transfer-config names no kv_role")
	case "kv_both":
		f.note(index, "kv_both is neither side of a pair: use %s for prefill and %s for decode", Producer, Consumer)
	default:
		f.note(index, "the kv_role %q is none", brief(role))
	}
	extra, _ := object["kv_connector_extra_config"].(map[string]any)
	switch in.Connector {
	case MoRIIOConnector:
		in.Mover = kvlayout.MoverEngine
		f.moriio(index, extra)
	case AgentConnector:
		in.Mover, in.Mode = kvlayout.MoverAgent, kvlayout.Write
	default:
		f.note(index, "the connector %q is none that PDPool runs, only %s and %s", brief(in.Connector), MoRIIOConnector, AgentConnector)
	}
}

// moriio reads the connector's own configuration.
func (f *facts) moriio(index int, extra map[string]any) {
	in := &f.in
	in.Mode = f.readMode(index, extra["read_mode"])
	switch backend := strings.ToLower(asText(extra["backend"])); backend {
	case "", "rdma":
		in.Backend = RDMA
	case "xgmi":
		in.Backend = XGMI
	default:
		f.note(index, "the backend %q is neither rdma nor xgmi", brief(backend))
	}
	for _, p := range []struct {
		key     string
		value   *int
		missing int
	}{
		{"handshake_port", &in.Ports.Handshake, moriioHandshake},
		{"notify_port", &in.Ports.Notify, moriioNotify},
		{"proxy_ping_port", &in.Ports.Ping, 0},
	} {
		*p.value = p.missing
		v, ok := extra[p.key]
		if !ok || v == nil || v == "" {
			continue
		}
		if *p.value, ok = port(v); !ok {
			f.note(index, "%s is %q, which is no port", p.key, brief(asText(v)))
		}
	}
	switch http, ok := port(extra["http_port"]); {
	case extra["http_port"] == nil:
		f.note(index, "http_port is missing, and the connector stops without it")
	case !ok:
		f.note(index, "http_port is %q, which is no port", brief(asText(extra["http_port"])))
	case http != in.Ports.HTTP && f.text("port") != "":
		f.note(index, "http_port %d is not the port %d that the engine serves on: a router would be told the wrong one", http, in.Ports.HTTP)
	}
	in.Timeouts = Timeouts{
		Transfer:     f.timeout(index, extra, "transfer_timeout", moriioTransfer),
		Defer:        f.timeout(index, extra, "defer_timeout", moriioDefer),
		ReceiveAbort: f.timeout(index, extra, "recv_abort_timeout", moriioReceive),
	}
}

// readMode is the mode that the release takes: from read_mode, which counts when
// it is true or 1 in any case, or in old ones from the environment.
func (f *facts) readMode(index int, value any) kvlayout.Mode {
	read := func(v string) bool {
		v = strings.ToLower(strings.TrimSpace(v))
		return v == "true" || v == "1"
	}
	variable, set := f.in.Variable(readModeVariable)
	inFlag := read(asText(value))
	fromEnv := kvlayout.Supports(f.in.Version, kvlayout.FeatureReadModeEnv)
	switch {
	case fromEnv == kvlayout.Has && value != nil && inFlag != read(variable):
		f.note(index, "vLLM %s takes the mode from %s, not from read_mode", f.in.Version, readModeVariable)
	case fromEnv == kvlayout.Unknown && set && read(variable) != inFlag:
		f.note(index, "%s counts up to vLLM 0.22.0 only and says otherwise than read_mode, which is taken here", readModeVariable)
	}
	if inFlag && fromEnv != kvlayout.Has || fromEnv == kvlayout.Has && read(variable) {
		return kvlayout.Read
	}
	return kvlayout.Write
}

// timeout is in seconds, rounded up.
func (f *facts) timeout(index int, extra map[string]any, key string, missing int) int {
	v, ok := extra[key]
	if !ok {
		return missing
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(asText(v)), 64)
	if err != nil || x <= 0 || x > 1<<30 || math.IsNaN(x) {
		f.note(index, "%s is %q, and has to be a number of seconds above 0", key, brief(asText(v)))
		return missing
	}
	return int(math.Ceil(x))
}

// asText is how Python would print a JSON value that is no object or list.
func asText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
