package pdpool

import (
	"slices"
	"testing"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// TestUpdatesThatMend holds that an update is refused for what it brings and for nothing
// that the pool was refused for before, be it told in other words, by the rules on
// another release, or hidden behind what the update mends.
func TestUpdatesThatMend(t *testing.T) {
	type layout = v1alpha1.LayoutSpec
	image := func(tag string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "vllm/vllm-openai-rocm:" + tag })
	}
	dealt := layouts(layout{TP: 8}, layout{TP: 8, DCP: 8, Interleave: 64})
	mixed := func(local int32) func(*v1alpha1.PDPool) {
		return layouts(layout{TP: 2}, layout{TP: 2, DP: 4, DPLocal: local, DCP: 2, Interleave: 64})
	}
	mover := func(m v1alpha1.Mover) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mover = m })
	}
	flags := func(times int) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Args = slices.Repeat([]string{"--tensor-parallel-size=2"}, times)
		})
	}
	// What makes no pool of the seed worse, and mends nothing.
	args := spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--enforce-eager"} })
	for name, c := range map[string]struct {
		old, pool *v1alpha1.PDPool
		refused   []string
	}{
		"another release of a refused layout": {vllmPool(t, image("v0.32.0"), dealt), vllmPool(t, image("v0.33.0"), dealt), nil},
		"another release with its own mover":  {vllmPool(t, image("v0.32.0"), dealt, mover("Engine")), vllmPool(t, image("v0.33.0"), dealt, mover("Engine")), nil},
		"further arguments":                   {vllmPool(t, image("v0.33.0"), dealt), vllmPool(t, image("v0.33.0"), dealt, args), nil},
		"what hid another is mended":          {vllmPool(t, image("v0.33.0"), mixed(3)), vllmPool(t, image("v0.33.0"), mixed(1)), nil},
		"a degree that hid another is mended": {vllmPool(t, image("v0.33.0"), mixed(3), mover("Engine")), vllmPool(t, image("v0.33.0"), mixed(1), mover("Engine")), nil},
		"mended, and wrong elsewhere": {
			vllmPool(t, image("v0.33.0"), mixed(3)),
			vllmPool(t, image("v0.33.0"), mixed(1), spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.Interleave = 48 })),
			[]string{"interleave-block"},
		},
		"a second wrong field of a template": {
			simulatorPool(t, decodeTemplate(`{"spec":{"nodeselector":{"a":"b"}}}`)),
			simulatorPool(t, decodeTemplate(`{"spec":{"nodeselector":{"a":"b"},"tolerationz":[]}}`)),
			[]string{"template-owned"},
		},
		"a wrong field of a template for another": {
			simulatorPool(t, decodeTemplate(`{"spec":{"nodeselector":{"a":"b"}}}`)),
			simulatorPool(t, decodeTemplate(`{"spec":{"tolerationz":[]}}`)),
			[]string{"template-owned"},
		},
		"a refused flag once more, and another layout": {
			vllmPool(t, image("v0.33.0"), flags(1)), vllmPool(t, image("v0.33.0"), flags(2), layouts(layout{TP: 2}, layout{TP: 2})),
			[]string{"args-owned"},
		},
		"a refused flag as often, and another layout": {
			vllmPool(t, image("v0.33.0"), flags(2)), vllmPool(t, image("v0.33.0"), flags(2), layouts(layout{TP: 2}, layout{TP: 2})), nil,
		},
		"another dcp of a refused layout": {
			vllmPool(t, image("v0.33.0"), dealt), vllmPool(t, image("v0.33.0"), layouts(layout{TP: 8}, layout{TP: 8, DCP: 4, Interleave: 64})),
			[]string{"mover-unavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := Validate(nil, c.old)
			if len(before) == 0 {
				t.Fatal("the old pool breaks no rule")
			}
			refusals, _ := Validate(c.old, c.pool)
			if got := ruleIDs(refusals); !slices.Equal(got, c.refused) {
				t.Errorf("refused by %v, want %v\nbefore: %v\nnow: %v", got, c.refused, before, refusals)
			}
		})
	}
}
