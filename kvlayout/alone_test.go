package kvlayout

import (
	"reflect"
	"slices"
	"testing"
)

// What is told of a pair is also told by its rule alone, whatever the numbers are.
func TestAloneHidesNothing(t *testing.T) {
	r := random(t)
	hidden := 0
	for i := range 4000 {
		p := randomPair(r)
		if i%4 == 0 {
			model := p.Model
			p.Model = nil
			scramble(r, reflect.ValueOf(&p).Elem())
			p.Model = model
		}
		told, alone := Compatible(p), Alone(p)
		for _, problem := range told {
			same := func(o Problem) bool {
				return o.Rule == problem.Rule && o.Field == problem.Field && o.Message == problem.Message
			}
			if !slices.ContainsFunc(alone, same) {
				t.Fatalf("%+v: %s is told, and not alone", p, problem)
			}
		}
		if len(alone) > len(told) {
			hidden++
		}
	}
	if hidden == 0 {
		t.Error("nothing was ever hidden")
	}
}

func TestAloneTellsWhatFollows(t *testing.T) {
	p := seedPair()
	p.Engine, p.Version, p.Mover = VLLM, "0.33.0", MoverEngine
	p.Decode.Layout.DP, p.Decode.Layout.DPLocal = 4, 3
	if problems := Compatible(p); slices.ContainsFunc(problems, func(o Problem) bool { return o.Rule == "dcp-version" }) {
		t.Fatalf("dcp-version does not follow from degrees: %v", problems)
	}
	if problems := Alone(p); !slices.ContainsFunc(problems, func(o Problem) bool { return o.Rule == "dcp-version" }) {
		t.Errorf("alone: %v", problems)
	}
}
