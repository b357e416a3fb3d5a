package kvlayout

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestCatalogOfModels(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Models() {
		name := strings.ToLower(m.Name)
		if seen[name] {
			t.Errorf("%s is in the catalog twice", m.Name)
		}
		seen[name] = true
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if !m.FitsTP(1) || m.FitsTP(0) || m.FitsTP(m.AttentionHeads+1) {
			t.Errorf("%s: fits on no or on too many ranks", m.Name)
		}
		if back, ok := LookupModel(name); !ok || back.Name != m.Name {
			t.Errorf("%s is looked up as %q", name, back.Name)
		}
		g, ok := m.Geometry()
		if beyond := m.Beyond(); ok != (beyond == "") {
			t.Errorf("%s: geometry %+v, beyond it: %q", m.Name, g, beyond)
		}
		if plain, found := Lookup(m.Name); found != ok || plain != g {
			t.Errorf("%s: Lookup gives %+v (%v), the model %+v (%v)", m.Name, plain, found, g, ok)
		}
	}
	if len(seen) < 60 || len(families()) < 30 {
		t.Errorf("%d checkpoints of %d models", len(seen), len(families()))
	}
}

// What is looked up may be changed without changing the catalog.
func TestLookupModelCopies(t *testing.T) {
	m := mustModel(t, "deepseek-ai/DeepSeek-R1")
	m.Groups[0].Layers, m.Drafts[0].Layers = 1, 9
	if again := mustModel(t, "deepseek-ai/DeepSeek-R1"); again.Groups[0].Layers != 61 || again.Drafts[0].Layers != 1 {
		t.Errorf("the catalog has %+v", again)
	}
}

func TestModelFacts(t *testing.T) {
	for _, c := range []struct {
		model                            string
		indexer, state, windowed         bool
		mla, mlaWithDrafts               bool
		attentionGroups, drafts, windows int
		beyond                           string
	}{
		{model: "deepseek-ai/DeepSeek-R1", mla: true, mlaWithDrafts: true, attentionGroups: 1, drafts: 1},
		{
			model: "deepseek-ai/DeepSeek-V3.2", indexer: true, mla: true, mlaWithDrafts: true, attentionGroups: 1, drafts: 1,
			beyond: "61 of its layers have an indexer with a cache of its own",
		},
		{
			model: "moonshotai/Kimi-K3", state: true, mla: true, mlaWithDrafts: true, attentionGroups: 1,
			beyond: "69 of its layers keep a recurrent state (KDA)",
		},
		{
			model: "MiniMaxAI/MiniMax-M3", indexer: true, attentionGroups: 1, drafts: 7,
			beyond: "57 of its layers have an indexer with a cache of its own",
		},
		{
			model: "openai/gpt-oss-20b", windowed: true, attentionGroups: 2, windows: 128,
			beyond: "12 of its layers keep the last 128 tokens only",
		},
		{
			model: "meta-llama/Llama-4-Scout-17B-16E", windowed: true, attentionGroups: 2, windows: 8192,
			beyond: "36 of its layers keep chunks of 8192 tokens only",
		},
		{model: "zai-org/GLM-4.5-Air", attentionGroups: 1, drafts: 1},
	} {
		m := mustModel(t, c.model)
		if m.WholeBlockIndexer() != c.indexer || m.HasState() != c.state || m.Windowed() != c.windowed ||
			m.AllMLA(false) != c.mla || m.AllMLA(true) != c.mlaWithDrafts ||
			m.AttentionGroups() != c.attentionGroups || m.DraftLayers() != c.drafts || m.Beyond() != c.beyond {
			t.Errorf("%s: indexer %v, state %v, windowed %v, MLA %v and %v, %d attention groups, %d draft layers, beyond %q", c.model,
				m.WholeBlockIndexer(), m.HasState(), m.Windowed(), m.AllMLA(false), m.AllMLA(true), m.AttentionGroups(), m.DraftLayers(), m.Beyond())
		}
		if w := m.Windows(); (c.windows > 0) != slices.Equal(w, []int{c.windows}) {
			t.Errorf("%s: windows %v", c.model, w)
		}
	}
	draft := mustModel(t, "deepseek-ai/DeepSeek-R1")
	draft.Drafts = grouped(1, 8, 128)
	if !draft.AllMLA(false) || draft.AllMLA(true) {
		t.Error("a draft that is not MLA counts as one")
	}
	p := mustPool(t, draft, Cache{Layout: Layout{TP: 8}, BlockTokens: 64, OwnDrafts: true})
	if len(p.Groups) != 1 {
		t.Errorf("without DCP: groups %+v", p.Groups)
	}
}

func TestModelOfTwoShapesIsBeyondGeometry(t *testing.T) {
	m := Model{AttentionHeads: 8, Groups: append(grouped(2, 2, 64), grouped(2, 4, 64)...)}
	if got := m.Beyond(); got != "its attention layers have 2 shapes" {
		t.Errorf("beyond: %q", got)
	}
	m.Groups = grouped(2, 2, 64)
	m.Groups[0].Attention.Value = 32
	if got := m.Beyond(); got != "its keys have 64 values and its values 32" {
		t.Errorf("beyond: %q", got)
	}
	if got := (Model{}).Beyond(); got != "it has no layer that caches anything" {
		t.Errorf("beyond: %q", got)
	}
}

// A model travels as JSON and comes back the same.
func TestModelJSON(t *testing.T) {
	for _, m := range Models() {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back Model
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", text, err, back, m)
		}
	}
	text, _ := json.Marshal(mustModel(t, "openai/gpt-oss-20b"))
	const want = `{"name":"openai/gpt-oss-20b","architecture":"GptOssForCausalLM","attentionHeads":64,"experts":32,"maxLength":131072,"groups":[` +
		`{"kind":"SlidingWindow","layers":12,"attention":{"kind":"GQA","kvHeads":8,"keyValues":64,"valueValues":64,"window":128}},` +
		`{"kind":"FullAttention","layers":12,"attention":{"kind":"GQA","kvHeads":8,"keyValues":64,"valueValues":64}}]}`
	if string(text) != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}
