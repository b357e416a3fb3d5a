package kvlayout

import "testing"

// edgeCases are pairs at the edges of rules, where a comparison that is off by one, or a
// clause that is missing, says something else.
func edgeCases() []ruleCase {
	both := func(p *Pair, change func(s *Side)) { change(&p.Prefill); change(&p.Decode) }
	row := func(values, interleave int) Pair {
		return with(func(p *Pair) {
			p.Version, p.Backend = "", RDMA
			p.Geometry.HeadValues = values
			p.Decode.Layout = Layout{TP: 8, DCP: 8, Interleave: interleave}
		})
	}
	mixed := Model{
		Architecture: "Example", AttentionHeads: 64, Experts: 8, MaxLength: 4096,
		Groups: []LayerGroup{
			{Kind: FullAttention, Layers: 4, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 576}},
			{Kind: FullAttention, Layers: 4, Attention: Attention{Kind: GQA, KVHeads: 8, Key: 64, Value: 64}},
		},
	}
	state := func(batch int) Pair {
		return with(func(p *Pair) {
			m, _ := LookupModel("moonshotai/Kimi-Linear-48B-A3B-Instruct")
			p.Model, p.Mover = &m, MoverAgent
			both(p, func(s *Side) {
				s.Layout, s.BlockSize, s.MambaAlign, s.BatchTokens = Layout{TP: 2}, 2048, true, batch
			})
		})
	}
	return []ruleCase{
		{"latents beside heads, equal dcp", with(func(p *Pair) {
			p.Engine, p.Model = Simulator, &mixed
			both(p, func(s *Side) { s.Layout.DCP = 2 })
		}), ""},
		{"dcp of all ranks with prefill context parallelism", with(func(p *Pair) {
			p.Mover = MoverAgent
			both(p, func(s *Side) { s.Layout, s.PCP = Layout{TP: 4, DCP: 8}, 2 })
		}), "pp-moriio@prefill.args pp-moriio@decode.args"},
		{"dcp of tp with prefill context parallelism", with(func(p *Pair) {
			p.Mover = MoverAgent
			both(p, func(s *Side) { s.Layout, s.PCP = Layout{TP: 4, DCP: 4}, 2 })
		}), "dcp-tp@prefill.layout.dcp pp-moriio@prefill.args dcp-tp@decode.layout.dcp pp-moriio@decode.args"},
		{"pieces of 9 KiB", row(576, 8), "dcp-version@transfer.mover? interleave-pieces@decode.layout.interleave?"},
		{"pieces of 16 KiB", row(512, 16), "dcp-version@transfer.mover?"},
		{"pieces below 16 KiB", row(511, 16), "dcp-version@transfer.mover? interleave-pieces@decode.layout.interleave?"},
		{"ep 1 on 8 ranks", with(func(p *Pair) { p.Decode.EP = 1 }), ""},
		{"ep of all ranks, with those of prefill context parallelism", with(func(p *Pair) {
			p.Prefill.PCP, p.Prefill.EP, p.Prefill.DevicesPerNode = 2, 16, 16
		}), "pp-moriio@prefill.args"},
		{"ep of tp, with prefill context parallelism", with(func(p *Pair) {
			p.Prefill.PCP, p.Prefill.EP, p.Prefill.DevicesPerNode = 2, 8, 16
		}), "ep-size@prefill.args pp-moriio@prefill.args"},
		{"a step of a block", state(2048), ""},
		{"a step below a block", state(2047), "block-mamba@prefill.args? block-mamba@decode.args?"},
		{"8 GPUs, node not said", with(func(p *Pair) { both(p, func(s *Side) { s.DevicesPerNode = 0 }) }), ""},
		{"16 GPUs, node not said", with(func(p *Pair) {
			both(p, func(s *Side) { s.Layout.TP, s.DevicesPerNode = 16, 0 })
		}), "gpus-per-pod@prefill.layout.tp? gpus-per-pod@decode.layout.tp?"},
		{"16 GPUs of two nodes, SGLang", with(func(p *Pair) {
			p.Engine, p.Version = SGLang, "0.5.23"
			both(p, func(s *Side) { s.Layout.TP, s.DevicesPerNode, s.Nodes = 16, 0, 2 })
		}), ""},
		{"cp and dcp on SGLang's decode, release not known", with(func(p *Pair) {
			p.Engine, p.Version, p.Decode.PCP, p.Decode.Layout.DCP = SGLang, "0.5.22", 2, 8
		}), "sglang-cp-dcp@decode.args sglang-decode-cp@decode.args?"},
		{"cp and dcp on SGLang's decode", with(func(p *Pair) {
			p.Engine, p.Version, p.Decode.PCP, p.Decode.Layout.DCP = SGLang, "0.5.23", 2, 8
		}), "sglang-decode-cp@decode.args"},
		{"copies of heads on decode from as many ranks as heads", on("Qwen/Qwen3-30B-A3B", func(p *Pair) {
			p.Engine, p.Version, p.Prefill.Layout.TP = SGLang, "0.5.20", 4
		}), "sglang-heads-tp@decode.layout.tp?"},
		{"as many decode ranks as heads", on("Qwen/Qwen3-30B-A3B", func(p *Pair) {
			p.Engine, p.Version, p.Prefill.Layout.TP, p.Decode.Layout.TP = SGLang, "0.5.20", 2, 4
		}), "sglang-heads-tp@decode.layout.tp?"},
		{"copies of heads on decode, older release", on("Qwen/Qwen3-30B-A3B", func(p *Pair) {
			p.Engine, p.Version, p.Prefill.Layout.TP = SGLang, "0.5.19", 2
		}), "sglang-head-copies@engine.version? sglang-heads-tp@decode.layout.tp?"},
	}
}

func TestRulesAtTheirEdges(t *testing.T) {
	for _, c := range edgeCases() {
		if got := summary(Compatible(c.pair)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestRaisedBlocksWithinAKernelBlock(t *testing.T) {
	for d, want := range map[int]Severity{768: Warn, 769: ""} {
		if got := raisedBlocks(512, d).severity; got != want {
			t.Errorf("512 and %d: %q, want %q", d, got, want)
		}
	}
}

// An older prefill says nothing of writers that an older decode would have to know of.
func TestMixedVersionsOfOlderPrefill(t *testing.T) {
	for _, c := range []struct {
		prefill, decode string
		want            Severity
	}{{"0.32.0", "0.33.0", Warn}, {"0.33.0", "0.32.0", Refuse}} {
		p := on(llama, func(p *Pair) { p.Decode.Layout.TP, p.Prefill.Version, p.Decode.Version = 4, c.prefill, c.decode })
		if got := mixedVersions(newView(p, MoverEngine)); len(got) != 1 || got[0].severity != c.want {
			t.Errorf("%s to %s: %+v, want %s", c.prefill, c.decode, got, c.want)
		}
	}
}
