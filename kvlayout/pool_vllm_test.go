package kvlayout

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
)

// testdata/pools.jsonl holds models, of the catalog and of random shapes, each with
// what the planner of the released vLLM 0.33.0 (get_kv_cache_groups,
// get_kv_cache_capacity) makes of it in the layout LBNHC: bytes per block, layers and
// tokens per block of each group of attention, layers of each group of states, and
// the tokens of 12,345 blocks. Mamba2's checkpoint block counts with prefix caching
// (num_prefill_checkpoint_blocks, see TestStatesOfASequence). The block that a state
// needs is put in; it is held to figures of running engines in TestPoolRaisesBlocks.
func TestPoolAgreesWithVLLM(t *testing.T) {
	text, err := os.ReadFile("testdata/pools.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	type figures struct {
		BlockBytes int64    `json:"blockBytes"`
		Attention  [][2]int `json:"attention"`
		States     []int    `json:"states"`
		Tokens     int64    `json:"tokens"`
	}
	cases := 0
	for line := range bytes.Lines(text) {
		var c struct {
			Name  string  `json:"name"`
			Model Model   `json:"model"`
			Cache Cache   `json:"cache"`
			Want  figures `json:"want"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		m := c.Model
		if c.Name != "" {
			m = mustModel(t, c.Name)
		}
		got := figures{States: []int{}}
		capacity, err := m.CapacityOfBlocks(c.Cache, 12_345)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got.BlockBytes, got.Tokens = capacity.Pool.BlockBytes, capacity.Pool.Tokens(12_345)
		for _, g := range capacity.Pool.Groups {
			if g.Kind == Recurrent {
				got.States = append(got.States, g.Layers)
			} else {
				got.Attention = append(got.Attention, [2]int{g.Layers, g.BlockTokens})
			}
		}
		slices.Sort(got.States)
		slices.SortFunc(got.Attention, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		if d := got.Tokens - c.Want.Tokens; d == 1 || d == -1 {
			got.Tokens = c.Want.Tokens // vLLM counts in floating point.
		}
		if !reflect.DeepEqual(got, c.Want) {
			t.Errorf("%sgot %+v", line, got)
		}
		cases++
	}
	if cases < 150 {
		t.Errorf("%d cases", cases)
	}
}
