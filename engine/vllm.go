package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Defaults of vLLM and of its MoRIIO connector, as of 0.33.0.
const (
	vllmPort         = 8000
	moriioHandshake  = 6301
	moriioNotify     = 61005
	moriioTransfer   = 30 // seconds
	moriioDefer      = 60
	moriioReceive    = 120
	transferFlag     = "kv-transfer-config"
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
			f.stops(-1, "", "VLLM_PORT is %q, and vLLM stops on what is no number: a Service named vllm sets it so", brief(v))
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
	f.overrides("hf-overrides")
	f.config()
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
		f.stops(-1, "", "%s", err)
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
		f.stops(-1, "", "%s", err)
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
