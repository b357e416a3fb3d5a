package router

import (
	"fmt"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
)

// snapshot is what is known at one time. It never changes.
type snapshot struct {
	instances []*Instance
	engines   []*slot           // the first rank of each pod that is sent legs
	decodes   []*slot           // ranks of decode instances
	models    []string          // that clients may name, sorted
	tables    map[string]*table // by model; "" is for models that nobody has named
	open      bool              // an instance that names no model takes all
}

// table is what can be chosen for one model.
type table struct {
	prefills []*slot // with at least one partner
	partners map[*Instance][]*slot
	pairs    int // of instances
	refusal  *Refusal
}

func newSnapshot(instances []*Instance, loadOf func(*Pod, int) *load, v *verdicts) *snapshot {
	s := &snapshot{instances: instances, tables: map[string]*table{}}
	for _, i := range instances {
		if i.Model == "" {
			s.open = true
		} else if !slices.Contains(s.models, i.Model) {
			s.models = append(s.models, i.Model)
		}
	}
	slices.Sort(s.models)
	slots := map[*Instance][]*slot{}
	for _, i := range instances {
		if i.routable() {
			slots[i] = i.slots(loadOf)
			if i.Role == kvlayout.Decode {
				s.decodes = append(s.decodes, slots[i]...)
			}
			for n, of := range slots[i] {
				if n == 0 || slots[i][n-1].pod != of.pod {
					s.engines = append(s.engines, of)
				}
			}
		}
	}
	for _, model := range append([]string{""}, s.models...) {
		s.tables[model] = s.newTable(model, slots, v)
	}
	return s
}

// newTable pairs the instances of a model.
func (s *snapshot) newTable(model string, slots map[*Instance][]*slot, v *verdicts) *table {
	t := &table{partners: map[*Instance][]*slot{}, refusal: s.missing(model)}
	for _, p := range s.of(model, kvlayout.Prefill) {
		var partners []*slot
		for _, d := range s.of(model, kvlayout.Decode) {
			if refusal := v.judge(p, d); refusal != nil {
				if t.refusal == nil || nearness(refusal) > nearness(t.refusal) {
					t.refusal = refusal
				}
				continue
			}
			t.pairs++
			partners = append(partners, slots[d]...)
		}
		if len(partners) > 0 {
			t.partners[p] = partners
			t.prefills = append(t.prefills, slots[p]...)
		}
	}
	return t
}

// of lists the routable instances of a role that serve a model.
func (s *snapshot) of(model string, role kvlayout.Role) []*Instance {
	var out []*Instance
	for _, i := range s.instances {
		if i.Role == role && i.routable() && (i.Model == "" || i.Model == model) {
			out = append(out, i)
		}
	}
	return out
}

// missing says which role has no routable instance; nil when both have.
func (s *snapshot) missing(model string) *Refusal {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		if len(s.of(model, role)) > 0 {
			continue
		}
		known, draining := 0, 0
		for _, i := range s.instances {
			if i.Role == role && (i.Model == "" || i.Model == model) {
				known++
				if i.Draining {
					draining++
				}
			}
		}
		return &Refusal{RuleNoInstance, fmt.Sprintf("no %s replica is ready: %d known, %d draining", role, known, draining)}
	}
	return nil
}

// table returns what serves a model, or why nothing does.
func (s *snapshot) table(model string) (*table, *Refusal) {
	t := s.tables[model]
	switch {
	case t == nil && (s.open || len(s.models) == 0):
		t = s.tables[""]
	case t == nil:
		return nil, &Refusal{RuleNoModel, fmt.Sprintf("the model %.128q does not exist; there is %q", model, s.models)}
	}
	if len(t.prefills) == 0 {
		return nil, t.refusal
	}
	return t, nil
}

// count is the number of routable instances of a role.
func (s *snapshot) count(role kvlayout.Role) (n int) {
	for _, i := range s.instances {
		if i.Role == role && i.routable() {
			n++
		}
	}
	return n
}

// avoided is the number of instances of a role that are passed over at a time.
func (s *snapshot) avoided(role kvlayout.Role, now int64) (n int) {
	var last *Instance
	for _, of := range s.engines {
		if of.instance != last && of.instance.Role == role && of.avoided(now) {
			n++
		}
		last = of.instance
	}
	return n
}

// pairs is the number of pairs of instances that may be chosen. Those of instances
// without a model are in every table.
func (s *snapshot) pairs() int {
	if len(s.models) == 0 {
		return s.tables[""].pairs
	}
	n := 0
	for _, m := range s.models {
		n += s.tables[m].pairs
	}
	return n
}
