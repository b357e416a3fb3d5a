package router

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router/policy"
)

// both runs a test with each policy.
func both(t *testing.T, f func(t *testing.T, change func(*Options))) {
	t.Helper()
	for name, of := range map[string]func() policy.Policy{
		"least loaded": func() policy.Policy { return policy.LeastLoaded{} },
		"round robin":  func() policy.Policy { return new(policy.RoundRobin) },
	} {
		t.Run(name, func(t *testing.T) { f(t, func(o *Options) { o.Policy, o.Random = of, rand.IntN }) })
	}
}

// slotOf is the slot of an engine.
func (p *pairs) slotOf(t *testing.T, e *engine) *slot {
	t.Helper()
	for _, s := range p.Registry.current.Load().engines {
		if s.pod.HTTP == e.port() {
			return s
		}
	}
	t.Fatal("the engine is not known")
	return nil
}

// TestFullRankBeforeASuspectedOne: it answers, though later.
func TestFullRankBeforeASuspectedOne(t *testing.T) {
	both(t, func(t *testing.T, change func(*Options)) {
		p := newPairs(t, 1, 3, change, func(o *Options) { o.MaxPerRank = 1 })
		p.slotOf(t, p.decodes[1]).open.Store(9)
		for _, e := range []*engine{p.decodes[0], p.decodes[2]} {
			p.suspect(p.slotOf(t, e), codeProbe, time.Hour)
		}
		for range 32 {
			chosen, f := p.choose("m")
			if f != nil || chosen.decode.pod.HTTP != p.decodes[1].port() {
				t.Fatalf("%+v, %v", chosen.decode.pod, f)
			}
		}
	})
}

// TestPrefillWithoutAPartnerThatAnswers: one whose only partners are suspected serves
// nobody, as in a roll-out of which one decode hangs.
func TestPrefillWithoutAPartnerThatAnswers(t *testing.T) {
	both(t, func(t *testing.T, change func(*Options)) {
		p := newPairs(t, 2, 2, change)
		for i := range p.instances {
			if e := p.instances[i].Pods[0].HTTP; e == p.prefills[1].port() || e == p.decodes[1].port() {
				p.instances[i].Pairing = "other"
			}
		}
		p.publish()
		p.suspect(p.slotOf(t, p.decodes[1]), codeProbe, time.Hour)
		for range 32 {
			chosen, f := p.choose("m")
			if f != nil || chosen.decode.pod.HTTP != p.decodes[0].port() {
				t.Fatalf("%+v, %v", chosen.decode.pod, f)
			}
		}
		// Of all that are suspected each has its turn.
		for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
			for _, s := range p.Registry.current.Load().engines {
				if s.instance.Role == role {
					p.suspect(s, codeProbe, time.Hour)
				}
			}
		}
		seen := map[int]bool{}
		for range 64 {
			chosen, _ := p.choose("m")
			seen[chosen.decode.pod.HTTP] = true
		}
		if len(seen) != 2 {
			t.Errorf("chosen are %v", seen)
		}
	})
}
