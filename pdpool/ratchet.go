package pdpool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// known are the problems that a pool has before an update, once for each mover that they
// are looked for with, by the names that they go by. It has those too that follow from
// others: who mends the others has not brought them.
type known [][]names

// names are those that a problem goes by, of which one in common is enough: what it says,
// and what it is about. The sentence changes with a version, and what it is about with
// numbers that no rule asks for.
type names [2]kind

// kind is what problems have in common that are one and the same before and after an
// update: the rule, the field, and its values or the sentence. An element that was moved
// in its list is no other, and advice is none.
type kind struct{ rule, field, message, cut, value string }

func (a about) namesOf(p kvlayout.Problem) names {
	at := placeless(p.Field)
	_, v := a.find(p.Field)
	value, plain := v.(string)
	if !plain && v != nil {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(p.Message) // what a spec holds is encoded without fail
		}
		value = string(text)
	}
	return names{
		{rule: p.Rule, field: at, message: placeless(p.Message)},
		{rule: p.Rule, field: at, cut: a.cut, value: value},
	}
}

// places are indexes of lists in a path.
var places = regexp.MustCompile(`\[[0-9]+\]`)

func placeless(s string) string {
	if strings.IndexByte(s, '[') < 0 {
		return s
	}
	return places.ReplaceAllString(s, "")
}

// broughtBy tells of each refusal of the new pool whether the update brings it. What the
// old pool is refused for is looked for with the first: most updates have none.
func broughtBy(old, pool *v1alpha1.PDPool, after *Resolved) func(kvlayout.Problem) bool {
	found := sync.OnceValues(func() (known, about) { return knownOf(old, after), aboutOf(pool, after) })
	return func(p kvlayout.Problem) bool {
		k, now := found()
		return !k.has(p, now)
	}
}

// knownOf is what is wrong with the old pool, as it is and with the mover that the new
// one resolves to.
func knownOf(old *v1alpha1.PDPool, after *Resolved) known {
	before := resolveBare(old)
	var out known
	take := func(r Resolved) {
		var found []names
		a := aboutOf(old, &r)
		for _, p := range problemsOf(old, &r, true) {
			if p.Severity == kvlayout.Refuse {
				found = append(found, a.namesOf(p))
			}
		}
		out = append(out, found)
	}
	take(before)
	if before.Mover != after.Mover {
		before.Mover, before.MoverReason = after.Mover, after.MoverReason
		take(before)
	}
	return out
}

// has says whether a problem of what is asked for now is among the known ones, and uses
// up the one that it is: of several the one with both names.
func (k known) has(p kvlayout.Problem, a about) bool {
	n, found := a.namesOf(p), false
	for i, list := range k {
		at := slices.Index(list, n)
		if at < 0 {
			at = slices.IndexFunc(list, func(o names) bool { return o[0] == n[0] || o[1] == n[1] })
		}
		if at >= 0 {
			k[i], found = slices.Delete(list, at, at+1), true
		}
	}
	return found
}

// about tells what the problems of a pool are about: what stands at a field, and the
// model and how its KV cache is cut, which is what rules on layouts look at. The number
// of ranks that share nothing and the engine's version are no part of it.
type about struct {
	find func(string) (*field.Path, any)
	cut  string
}

func aboutOf(pool *v1alpha1.PDPool, r *Resolved) about {
	of := func(s *Side) []any {
		return []any{s.Layout.TP, s.Layout.DCP, s.Layout.Interleave, s.BlockSize, s.KVType}
	}
	return about{find: finder(pool), cut: fmt.Sprint(of(&r.Prefill), of(&r.Decode), r.Engine, r.Model)}
}
