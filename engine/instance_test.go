package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// read reads the first launch of a text; all its notes are in one text.
func read(t *testing.T, text string) (engine.Instance, string) {
	t.Helper()
	s := engine.ParseCommands(text)
	if len(s.Launches) == 0 {
		t.Fatalf("%s: nothing is started: %v", text, s.Notes)
	}
	in, notes := s.Launches[0].Read()
	var b strings.Builder
	for _, n := range append(s.Notes, notes...) {
		b.WriteString(n.String() + "\n")
	}
	return in, b.String()
}

func moriio(extra string) string {
	return `vllm serve m --port 8000 --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kv_connector_extra_config":{"http_port":8000` + extra + `}}' `
}

func TestReadLayout(t *testing.T) {
	layout := func(f func(*kvlayout.Layout)) kvlayout.Layout {
		var l kvlayout.Layout
		f(&l)
		return l
	}
	for _, tc := range []struct {
		args string
		want kvlayout.Layout
	}{
		{"vllm serve m -tp 8 -pp 2 -dp 4 -dpl 2 -dcp 4", kvlayout.Layout{TP: 8, PP: 2, DP: 4, DPLocal: 2, DCP: 4}},
		{"vllm serve m --tensor_parallel_size=8 --cp_kv_cache_interleave_size 64", kvlayout.Layout{TP: 8, Interleave: 64}},
		{"vllm serve m --dcp-kv-cache-interleave-size 16", layout(func(l *kvlayout.Layout) { l.Interleave = 16 })},
		{"vllm serve m --dcp-kv-cache-interleave-size 16 --cp-kv-cache-interleave-size 64", layout(func(l *kvlayout.Layout) { l.Interleave = 16 })},
		{"vllm serve m --dcp-kv-cache-interleave-size 1 --cp-kv-cache-interleave-size 64", layout(func(l *kvlayout.Layout) { l.Interleave = 64 })},
		{"vllm serve m -dp 16 --data-parallel-rank 3", kvlayout.Layout{DP: 16, DPLocal: 1}},
		{"vllm serve m -dp 16 -dpe", kvlayout.Layout{DP: 16, DPLocal: 1}},
		{"sglang serve m --tp 8 --dp 8 --enable-dp-attention", kvlayout.Layout{TP: 8, DP: 8}},
		{"sglang serve m --tp-size 8 --attn-dp-size 4", kvlayout.Layout{TP: 8, DP: 4}},
		{"sglang serve m --tensor-parallel-size=4 --pipeline-parallel-size 8 --decode-context-parallel-size 2", kvlayout.Layout{TP: 4, PP: 8, DCP: 2}},
		{"sglang serve m --tp 8 --dp 2", kvlayout.Layout{TP: 8}},
	} {
		if in, notes := read(t, tc.args); in.Layout != tc.want {
			t.Errorf("%s: %+v, want %+v\n%s", tc.args, in.Layout, tc.want, notes)
		}
	}
}

func TestReadMode(t *testing.T) {
	for _, tc := range []struct {
		head, extra string
		want        kvlayout.Mode
		note        string
	}{
		{"", ``, kvlayout.Write, ""},
		{"", `,"read_mode":true`, kvlayout.Read, ""},
		{"", `,"read_mode":"true"`, kvlayout.Read, ""},
		{"", `,"read_mode":" TRUE "`, kvlayout.Read, ""},
		{"", `,"read_mode":1`, kvlayout.Read, ""},
		{"", `,"read_mode":"false"`, kvlayout.Write, ""},
		{"", `,"read_mode":"yes"`, kvlayout.Write, ""},
		{"", `,"read_mode":false`, kvlayout.Write, ""},
		{"VLLM_MORIIO_CONNECTOR_READ_MODE=1 ", ``, kvlayout.Write, "up to vLLM 0.22.0 and nothing"},
		{"VLLM_MORIIO_CONNECTOR_READ_MODE=1 ", `,"read_mode":"true"`, kvlayout.Read, "do not look at it"},
		{"pip install vllm==0.22.0; VLLM_MORIIO_CONNECTOR_READ_MODE=1 ", ``, kvlayout.Read, ""},
		{"pip install vllm==0.22.0; ", `,"read_mode":"true"`, kvlayout.Write, "from VLLM_MORIIO_CONNECTOR_READ_MODE, not from read_mode"},
		{"pip install vllm==0.33.0; VLLM_MORIIO_CONNECTOR_READ_MODE=1 ", ``, kvlayout.Write, "do not look at it"},
	} {
		in, notes := read(t, tc.head+moriio(tc.extra))
		if in.Mode != tc.want || !strings.Contains(notes, tc.note) || tc.note == "" && notes != "" {
			t.Errorf("%s%s: mode %q, notes %q, want %q and %q", tc.head, tc.extra, in.Mode, notes, tc.want, tc.note)
		}
	}
}

func TestReadSpellings(t *testing.T) {
	const sglang = "sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori "
	for _, tc := range []struct {
		text string
		get  func(engine.Instance) any
		want any
	}{
		{moriio("") + "--max-model-len 8k", func(i engine.Instance) any { return i.MaxLength }, 8000},
		{moriio("") + "--max-model-len auto", func(i engine.Instance) any { return i.MaxLength }, 0},
		{moriio("") + "--kv-cache-memory-bytes 2G", func(i engine.Instance) any { return i.KVMemory }, int64(2 << 30)},
		{moriio("") + "--kv-cache-dtype fp8_e4m3", func(i engine.Instance) any { return i.KVType }, kvlayout.FP8},
		{moriio("") + "--kv-cache-dtype fp8_e5m2", func(i engine.Instance) any { return i.Side().KVType }, kvlayout.FP8E5M2},
		{"python -m sglang.launch_server --kv-cache-dtype fp8_e5m2", func(i engine.Instance) any { return i.KVType }, kvlayout.FP8},
		{"python -m sglang.launch_server --kv-cache-dtype fp8_e5m2", func(i engine.Instance) any { return i.KVType }, kvlayout.FP8},
		{moriio("") + "--dtype float16", func(i engine.Instance) any { return i.Side().ModelType }, kvlayout.FP16},
		{moriio("") + "--dtype half", func(i engine.Instance) any { return i.ModelType }, kvlayout.FP16},
		{moriio("") + "--dtype auto", func(i engine.Instance) any { return i.ModelType }, kvlayout.KVType("")},
		{moriio("") + "-ac.backend TRITON_MLA", func(i engine.Instance) any { return i.Attention }, "TRITON_MLA"},
		{moriio("") + `-sc '{"method":"eagle3","model":"d","num_speculative_tokens":3}'`, func(i engine.Instance) any { return i.Speculation }, engine.Speculation{Method: "eagle3", Model: "d", Tokens: 3}},
		{moriio("") + "--spec-method ngram --spec-tokens 2", func(i engine.Instance) any { return i.Speculation }, engine.Speculation{Method: "ngram", Tokens: 2}},
		{moriio("") + "--device-memory-utilization=0.5", func(i engine.Instance) any { return i.MemoryFraction }, 0.5},
		{moriio("") + "--disable-hybrid-kv-cache-manager", func(i engine.Instance) any { return i.HybridCacheOff }, true},
		{moriio("") + "--no-enable-prefix-caching", func(i engine.Instance) any { return i.PrefixCache }, engine.Off},
		{moriio("") + "--nnodes 2 --node-rank 1", func(i engine.Instance) any { return [2]int{i.Nodes, i.Node} }, [2]int{2, 1}},
		{moriio("") + "-pcp 2", func(i engine.Instance) any { return i.PCP }, 2},
		{moriio("") + "--num-gpu-blocks-override 22616", func(i engine.Instance) any { return i.KVBlocks }, 22616},
		{moriio(`,"backend":"XGMI"`), func(i engine.Instance) any { return i.Backend }, engine.XGMI},
		{moriio(`,"notify_port":"7000","handshake_port":""`), func(i engine.Instance) any { return [2]int{i.Ports.Handshake, i.Ports.Notify} }, [2]int{6301, 7000}},
		{moriio(`,"transfer_timeout":"2.5"`), func(i engine.Instance) any { return i.Timeouts }, engine.Timeouts{Transfer: 3, Defer: 60, ReceiveAbort: 120}},
		{"VLLM_PORT=7777 " + moriio(""), func(i engine.Instance) any { return i.Ports.VLLM }, 7777},
		{moriio("") + "--served-model-name a b", func(i engine.Instance) any { return i.Served }, "a"},
		{sglang + "--max-total-tokens 8K", func(i engine.Instance) any { return i.KVTokens }, 8192},
		{sglang + "--context-length 4096", func(i engine.Instance) any { return i.MaxLength }, 4096},
		{sglang + "--prefill-attention-backend triton --attention-backend aiter", func(i engine.Instance) any { return i.Attention }, "aiter"},
		{sglang + "--disaggregation-decode-enable-radix-cache", func(i engine.Instance) any { return i.PrefixCache }, engine.On},
		{sglang, func(i engine.Instance) any { return i.Role }, kvlayout.Decode},
		{sglang + "--ep 8", func(i engine.Instance) any { return i.Experts }, 8},
		{sglang + "--dp 2", func(i engine.Instance) any { return i.Copies }, 2},
		{sglang + "--disaggregation-bootstrap-port=9000", func(i engine.Instance) any { return i.Bootstrap }, 9000},
		{"MORI_DISABLE_AUTO_XGMI=0 " + sglang, func(i engine.Instance) any { return i.Backend }, engine.XGMI},
	} {
		in, notes := read(t, tc.text)
		if diff := cmp.Diff(tc.want, tc.get(in)); diff != "" {
			t.Errorf("%s\n%s\n%s", tc.text, diff, notes)
		}
	}
}

// Each text has one thing in it that can't be read or won't work, and a note at its place.
func TestReadNotes(t *testing.T) {
	const sglang = "sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori "
	for _, tc := range []struct{ text, want string }{
		{moriio("") + "$MORE", "$MORE is not known"},
		{moriio("") + "-tp $(nproc)", "$(nproc) is not known"},
		{moriio("") + "-tp <degree>", "<degree> is not known"},
		{moriio("") + "-tp 4 -tp 8", "-tp is given again: 8 counts, and 4 before it does not"},
		{moriio("") + "-tp four", "whole number"},
		{moriio("") + "-tp 0", "no number from 1 on"},
		{moriio("") + "–tp 8", "long dash"},
		{moriio("") + "--max-model-len x", "needs a number"},
		{moriio("") + "--gpu-memory-utilization 90", "a fraction between 0 and 1"},
		{moriio("") + "--kv-cache-dtype nvfp4", "none that the rules know"},
		{moriio("") + "--config a.yaml", "a.yaml of --config is not read"},
		{moriio("") + "-dp 16 -dpl 5", "can't be shared out"},
		{"vllm serve m -tp 8", "no --kv-transfer-config"},
		{"vllm serve -tp 8 --kv-transfer-config '{\"kv_connector\":\"AgentConnector\",\"kv_role\":\"kv_consumer\"}'", "names no model"},
		{moriio("") + "\n#", ""},
		{strings.Replace(moriio(""), "--port 8000", "--port 8001", 1), "http_port 8000 is not the port 8001"},
		{strings.Replace(moriio(""), `"http_port":8000`, ``, 1), "http_port is missing"},
		{moriio(`,"handshake_port":"x"`), "handshake_port is"},
		{moriio(`,"backend":"tcp"`), "neither rdma nor xgmi"},
		{moriio(`,"defer_timeout":0`), "defer_timeout is"},
		{strings.Replace(moriio(""), "kv_producer", "kv_both", 1), "kv_both is neither side"},
		{strings.Replace(moriio(""), `"kv_role":"kv_producer",`, ``, 1), "names no kv_role"},
		{strings.Replace(moriio(""), `"kv_role"`, `"kv_rank":0,"kv_role"`, 1), `refuses the key "kv_rank"`},
		{strings.Replace(moriio(""), "MoRIIOConnector", "NixlConnector", 1), "no rules are known for the connector NixlConnector"},
		{"VLLM_PORT=tcp://10.0.0.1:80 " + moriio(""), "a Service named vllm"},
		{"VLLM_USE_V1=1 " + moriio(""), "do not look at it"},
		{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + moriio(""), "expandable segments"},
		{"X=<set this> vllm serve m", "X is set to <set this>"},
		{"docker run --env-file f img vllm serve m", "the file f is not read"},
		{"docker run -e TOKEN img vllm serve m", "TOKEN is passed on"},
		{"docker run $IMAGE vllm serve m", "the image $IMAGE is not known"},
		{"source env.sh; vllm serve m", "env.sh is not read"},
		{"bash run.sh; vllm serve m", "run.sh is not read"},
		{"cat > run.sh <<EOF\nvllm serve x\nEOF\nvllm serve m", "data of the command above"},
		{"vllm serve m \\ \n -tp 8", "the backslash is followed by a blank"},
		{"vllm serve m 'x", "not closed"},
		{"A=(<x>); vllm serve m ${A[@]}", "<x> is not known"},
		{"vllm serve m --hf-overrides {\"a\":1,\"b\":2}", "JSON without quotes"},
		{sglang + "--tp_size 8", "write --tp-size"},
		{sglang + "--dp 2", "2 independent copies"},
		{sglang + "--tp 8 --attn-dp-size 3", "does not divide tp 8"},
		{"pip install sglang==0.5.21; " + sglang + "--attn-dp-size 1 --tp 8", "has no --attn-dp-size"},
		{"pip install sglang==0.5.20; " + sglang + "--dcp-size 8 --enable-hicache", "refuses a radix or hierarchical cache"},
		{strings.Replace(sglang, "mori", "nixl", 1), "no rules are known for the transfer backend nixl"},
		{"sglang serve m", "no --disaggregation-mode"},
		{"sglang serve m --disaggregation-mode both", "neither prefill nor decode"},
		{"SGLANG_DISAGG_STAGING_BUFFER=1 " + sglang, "refuses it with the transfer backend mori"},
	} {
		_, notes := read(t, tc.text)
		if !strings.Contains(notes, tc.want) || tc.want == "" && notes != "" {
			t.Errorf("%s\nnotes %q\nwant one with %q", tc.text, notes, tc.want)
		}
	}
}

func TestNoLaunch(t *testing.T) {
	for text, want := range map[string]string{
		"echo hello":                          "1:1: no command here starts vLLM or SGLang",
		"":                                    "1:1: no command here starts vLLM or SGLang",
		strings.Repeat("a", engine.MaxText+1): "1:1: the text has 65537 bytes, more than 65536: nothing of it was read",
	} {
		if s := engine.ParseCommands(text); len(s.Launches) > 0 || len(s.Notes) != 1 || s.Notes[0].String() != want {
			t.Errorf("%+v, want %s", s, want)
		}
	}
}

func TestFieldPlace(t *testing.T) {
	s := engine.ParseCommands("F='--block-size 64'\nvllm serve m -tp 2 \\\n  -dcp=2 $F -tp 4 --kv-transfer-config.kv_role kv_consumer")
	l := s.Launches[0]
	for field, want := range map[string]string{
		"layout.tp": "3:13", "layout.dcp": "3:3", "engine.blockSize": "1:4", "transfer.mode": "3:19", "model.maxLength": "",
	} {
		place, ok := l.FieldPlace(field)
		if got := place.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%s is at %s, want %s", field, got, want)
		}
	}
	if l, _ := engine.ParseCommands("sglang serve m --tp 2").Launches[0].FieldPlace("layout.tp"); l.Column != 16 {
		t.Errorf("SGLang's tp is at %s", l)
	}
}

func TestCache(t *testing.T) {
	in, _ := read(t, moriio("")+`-tp 2 --max-num-batched-tokens 32k -sc '{"method":"deepseek_mtp","num_speculative_tokens":1}' --no-enable-prefix-caching`)
	want := kvlayout.Cache{Engine: kvlayout.VLLM, Layout: kvlayout.Layout{TP: 2}, InFlight: 32000, NoPrefixCaching: true, DraftTokens: 1, OwnDrafts: true}
	if diff := cmp.Diff(want, in.Cache()); diff != "" {
		t.Error(diff)
	}
	in, _ = read(t, "sglang serve m --swa-full-tokens-ratio 0.5 --speculative-algorithm EAGLE --speculative-num-draft-tokens 4 --chunked-prefill-size -1 --page-size 64")
	want = kvlayout.Cache{Engine: kvlayout.SGLang, BlockTokens: 64, DraftTokens: 4, OwnDrafts: true, WindowRatio: 0.5}
	if diff := cmp.Diff(want, in.Cache()); diff != "" {
		t.Error(diff)
	}
}

func TestCheckEnv(t *testing.T) {
	for _, tc := range []struct {
		kind           kvlayout.Engine
		version, value string
		name           string
		want           bool
	}{
		{kvlayout.VLLM, "", "1", "VLLM_ROCM_USE_AITER_PAGED_ATTN", true},
		{kvlayout.VLLM, "0.24.0", "1", "VLLM_ROCM_USE_AITER_PAGED_ATTN", false},
		{kvlayout.VLLM, "0.33.0", "1", "VLLM_MORIIO_CONNECTOR_READ_MODE", true},
		{kvlayout.VLLM, "0.22.0", "1", "VLLM_MORIIO_CONNECTOR_READ_MODE", false},
		{kvlayout.VLLM, "", "20010", "VLLM_PORT", false},
		{kvlayout.VLLM, "", "tcp://10.0.0.1:80", "VLLM_PORT", true},
		{kvlayout.SGLang, "", "tcp://10.0.0.1:80", "VLLM_PORT", false},
		{kvlayout.SGLang, "", "1", "MORI_IO_ENABLE_NOTIFICATION", true},
		{kvlayout.SGLang, "", "0", "MORI_IO_ENABLE_NOTIFICATION", false},
		{kvlayout.Simulator, "", "1", "VLLM_USE_V1", false},
	} {
		got := engine.CheckEnv(tc.kind, tc.version, []engine.EnvVar{{Name: "X"}, {Name: tc.name, Value: tc.value}})
		if (len(got) == 1) != tc.want || tc.want && (got[0].Index != 1 || got[0].Text == "" || got[0].Fix == "") {
			t.Errorf("%s %s, %s=%s: %+v", tc.kind, tc.version, tc.name, tc.value, got)
		}
	}
}

func TestPairOf(t *testing.T) {
	prefill, _ := read(t, moriio("")+"-tp 4 --block-size 64")
	decode, _ := read(t, strings.Replace(moriio(""), "kv_producer", "kv_consumer", 1)+"-tp 4 -dcp 4 --block-size 64")
	prefill.Model, decode.Model = "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"
	pair, problems := engine.PairOf(prefill, decode)
	if len(problems) > 0 || !pair.HasGeometry || pair.Mover != kvlayout.MoverEngine || pair.Decode.Layout.DCP != 4 {
		t.Errorf("%+v %v", pair, problems)
	}
	for _, tc := range []struct {
		change func(*engine.Instance)
		want   string
	}{
		{func(i *engine.Instance) { i.Role = kvlayout.Prefill }, "role-said"},
		{func(i *engine.Instance) { i.Mode = kvlayout.Read }, "mode-same"},
		{func(i *engine.Instance) { i.Backend = engine.XGMI }, "backend-same"},
		{func(i *engine.Instance) { i.Connector = engine.AgentConnector }, "connector-same"},
		{func(i *engine.Instance) { i.Engine = kvlayout.SGLang }, "engine-same"},
	} {
		changed := decode
		tc.change(&changed)
		_, problems := engine.PairOf(prefill, changed)
		if len(problems) != 1 || problems[0].Rule != tc.want || problems[0].Severity != kvlayout.Refuse ||
			problems[0].Reason == "" || problems[0].Fix == "" || problems[0].Field == "" {
			t.Errorf("%+v, want %s", problems, tc.want)
		}
	}
	// Whether two names are copies of one model is for the rules.
	changed := decode
	changed.Model = "x"
	if pair, problems := engine.PairOf(prefill, changed); len(problems) > 0 || pair.Prefill.Model == pair.Decode.Model {
		t.Errorf("%+v", problems)
	}
}
