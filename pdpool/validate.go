package pdpool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Validate decides on the admission of a pool: created (old is nil) or updated.
// It returns all refusals and all warnings. It looks at the manifest alone, so
// that the verdict is the same offline.
//
// An update that leaves the spec as it is, and one of a pool that is being
// deleted, has no refusals. What the old spec was refused for already, by a rule
// that is newer than the pool, only warns: an update is refused for what it brings.
func Validate(old, pool *v1alpha1.PDPool) (refusals, warnings []kvlayout.Problem) {
	if pool.DeletionTimestamp != nil {
		return nil, nil
	}
	unchanged := old != nil && apiequality.Semantic.DeepEqual(old.Spec, pool.Spec)
	brings := func(kvlayout.Problem) bool { return !unchanged }
	after := resolveBare(pool)
	if old != nil && !unchanged {
		brings = broughtBy(old, pool, &after)
	}
	for _, p := range problemsOf(pool, &after, false) {
		if p.Severity == kvlayout.Refuse && brings(p) {
			refusals = append(refusals, p)
			continue
		}
		p.Severity = kvlayout.Warn
		warnings = append(warnings, p)
	}
	if old != nil && !unchanged {
		refusals = append(refusals, checkFixed(old, pool)...)
		if len(refusals) == 0 { // else nothing changes
			warnings = append(warnings, warnOfGeneration(old, pool, &after)...)
		}
	}
	return firstOf(refusals), firstOf(warnings)
}

// Check returns all problems of a pool, refusals first.
func Check(pool *v1alpha1.PDPool) []kvlayout.Problem {
	_, problems := Judge(pool)
	return problems
}

// Judge is Check, and what the pool is resolved to for it: by its spec alone, as if no
// earlier look had decided anything, and without the images of an installation.
func Judge(pool *v1alpha1.PDPool) (Resolved, []kvlayout.Problem) {
	r := resolveBare(pool)
	return r, problemsOf(pool, &r, false)
}

// problemsOf are the problems of a pool: those to tell, or with hidden also those that
// only follow from others.
func problemsOf(pool *v1alpha1.PDPool, r *Resolved, hidden bool) []kvlayout.Problem {
	var problems []kvlayout.Problem
	ofPair := kvlayout.Compatible
	if hidden {
		ofPair = kvlayout.Alone
	}
	for _, found := range [][]kvlayout.Problem{
		checkName(pool), checkSplit(r), checkVersion(pool, r), checkMover(pool, r, hidden), checkHost(r), checkArgs(&pool.Spec, r), checkEnv(&pool.Spec, r), checkPartition(&pool.Spec),
		checkTemplates(&pool.Spec, r), checkGPUs(&pool.Spec, r), checkMemory(pool.Spec.Engine.KVCacheMemory, r),
	} {
		problems = append(problems, found...)
	}
	for _, p := range ofPair(r.judged()) {
		if r.guessed(&pool.Spec, p) {
			continue
		}
		p = runnable(p)
		// What is refused here as well, for a reason of this version, is told once.
		if !slices.ContainsFunc(problems, func(o kvlayout.Problem) bool { return o.Rule == p.Rule && o.Field == p.Field }) {
			problems = append(problems, p)
		}
	}
	slices.SortStableFunc(problems, func(a, b kvlayout.Problem) int {
		return rank(a.Severity) - rank(b.Severity)
	})
	for i := range problems {
		problems[i] = brief(problems[i])
	}
	return problems
}

func rank(s kvlayout.Severity) int {
	if s == kvlayout.Refuse {
		return 0
	}
	return 1
}

// checkFixed holds what can't change while replicas exist. No schema does, since the
// API server would answer with that alone and hide what else is wrong.
func checkFixed(old, pool *v1alpha1.PDPool) []kvlayout.Problem {
	if value(old.Status.Prefill.Replicas)+value(old.Status.Decode.Replicas) == 0 {
		return nil
	}
	var out []kvlayout.Problem
	fixed := func(name, before, after, reason string) {
		if before != after {
			out = append(out, refuse("fixed-field", name, name+" changes from "+before+" to "+after+" while replicas exist", reason,
				"create a second pool"))
		}
	}
	fixed("model.name", old.Spec.Model.Name, pool.Spec.Model.Name, "clients would get another model under the same address")
	fixed("engine.type", string(old.Spec.Engine.Type), string(pool.Spec.Engine.Type), "engines of two types don't understand each other")
	return out
}

// warnOfGeneration tells of a change that replaces all instances at once. Those that run
// are what an earlier look chose, which another version of the operator may not choose.
func warnOfGeneration(old, pool *v1alpha1.PDPool, after *Resolved) []kvlayout.Problem {
	before := resolve(old, Defaults{})
	message := "instances of the old and of the new spec can't pair"
	switch {
	case before.Mover != after.Mover:
		message = "the mover changes from " + string(before.Mover) + " to " + string(after.Mover) + ": " + message
	case before.agreement(&old.Spec) == after.agreement(&pool.Spec):
		why := mixed(&before, after)
		if why == "" {
			return nil
		}
		message += " (" + why + ")"
	}
	return []kvlayout.Problem{{
		Rule: "generation-change", Severity: kvlayout.Warn, Field: "transfer", Message: message,
		Reason: "a whole new set of instances comes up beside the old one",
		Fix:    "leave as many GPUs free as the new set needs, or old pairs go before new ones are ready",
	}}
}

// mixed says why an old instance of one role and a new one of the other can't pair
// while one takes the place of the other, "" if they can.
func mixed(before, after *Resolved) string {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		was, is := before.Side(role).Layout, after.Side(role).Layout
		if was == is {
			continue
		}
		pair := after.Pair()
		if role == kvlayout.Prefill {
			pair.Prefill = before.Pair().Prefill
		} else {
			pair.Decode = before.Pair().Decode
		}
		for _, p := range kvlayout.Compatible(pair) {
			if p.Severity == kvlayout.Refuse {
				return fmt.Sprintf("%s of %s and what it would pair with, rule %s: %s", role, layoutText(was), p.Rule, p.Message)
			}
		}
	}
	return ""
}

// bareSpec is a pool without its status: decisions of earlier looks do not count.
func bareSpec(pool *v1alpha1.PDPool) *v1alpha1.PDPool {
	return &v1alpha1.PDPool{ObjectMeta: pool.ObjectMeta, Spec: pool.Spec}
}

// readable is a pool without templates that are no JSON, which can't be encoded, and
// without those that are beyond the bounds of one.
func readable(pool *v1alpha1.PDPool) *v1alpha1.PDPool {
	out := bareSpec(pool)
	for _, rs := range []*v1alpha1.RoleSpec{&out.Spec.Prefill, &out.Spec.Decode} {
		if rs.Template != nil && !fits(rs.Template.Raw) {
			rs.Template = nil
		}
		for _, list := range []*corev1.ResourceList{&rs.Resources.Limits, &rs.Resources.Requests} {
			if len(*list) > maxResources {
				*list = nil
			}
		}
	}
	return out
}

// FieldErrors turns refusals into the form in which API servers tell them: the
// path, its value where it has a plain one, and the sentence.
func FieldErrors(pool *v1alpha1.PDPool, refusals []kvlayout.Problem) field.ErrorList {
	if len(refusals) == 0 {
		return nil
	}
	find := finder(pool)
	var out field.ErrorList
	for _, p := range refusals {
		switch path, v := find(p.Field); v := v.(type) {
		case string:
			out = append(out, field.Invalid(path, clip(v, maxValue), p.String()))
		case int64:
			out = append(out, field.Invalid(path, v, p.String()))
		default:
			out = append(out, field.Forbidden(path, p.String()))
		}
	}
	return out
}

// finder finds what stands at the field of a problem, nil where that is nothing.
func finder(pool *v1alpha1.PDPool) func(string) (*field.Path, any) {
	tree := sync.OnceValue(func() map[string]any {
		root, err := runtime.DefaultUnstructuredConverter.ToUnstructured(readable(pool))
		if err != nil {
			return nil // a file may hold what can't be told; the sentences can
		}
		return root
	})
	return func(at string) (*field.Path, any) {
		root := tree()
		path, v := field.NewPath("spec"), root["spec"]
		if rest, ok := strings.CutPrefix(at, "metadata."); ok {
			path, v, at = field.NewPath("metadata"), root["metadata"], rest
		}
		for _, step := range splitPath(at) {
			path, v = descend(path, v, step)
		}
		return path, v
	}
}

// splitPath cuts "engine.args[3]" into "engine", "args", "[3]".
func splitPath(path string) []string {
	var out []string
	for part := range strings.SplitSeq(path, ".") {
		name, index, indexed := strings.Cut(part, "[")
		out = append(out, name)
		if indexed {
			out = append(out, "["+index)
		}
	}
	return out
}

func descend(path *field.Path, v any, step string) (*field.Path, any) {
	if inner, ok := strings.CutPrefix(step, "["); ok {
		n, err := strconv.Atoi(strings.TrimSuffix(inner, "]"))
		list, _ := v.([]any)
		if err != nil || n < 0 || n >= len(list) {
			return path.Index(max(n, 0)), nil
		}
		return path.Index(n), list[n]
	}
	m, _ := v.(map[string]any)
	return path.Child(step), m[step]
}

// Sentences are problems as lines of text, for admission warnings.
func Sentences(problems []kvlayout.Problem) []string {
	out := make([]string, 0, len(problems))
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}

func refuse(rule, field, message, reason, fix string) kvlayout.Problem {
	return kvlayout.Problem{Rule: rule, Severity: kvlayout.Refuse, Field: field, Message: message, Reason: reason, Fix: fix}
}
