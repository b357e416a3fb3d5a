package pdpool

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// TestOrderOfTheCacheDoesNotCount holds that a look at the same objects in another order
// decides and says the same. The cache has none, and a status that changes with it
// brings another look.
func TestOrderOfTheCacheDoesNotCount(t *testing.T) {
	oneHost := spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory })
	for name, c := range map[string]struct {
		pool *v1alpha1.PDPool
		gpus int
		edit func(*v1alpha1.PDPoolSpec)
		lose func(c *cluster, p *corev1.Pod)
	}{
		"generations":       {simulatorPool(t, replicas(2, 2)), 16, dcp, nil},
		"a dead node":       {simulatorPool(t, oneHost), 8, nil, func(c *cluster, p *corev1.Pod) { c.terminate(p); c.stuck[p.Name] = true }},
		"failures":          {simulatorPool(t, replicas(2, 2)), 16, nil, (*cluster).fail},
		"no router":         {vllmPool(t), 16, func(s *v1alpha1.PDPoolSpec) { s.Router.Mode = v1alpha1.RouterNone }, nil},
		"devices lack":      {simulatorPool(t, replicas(3, 3)), 8, nil, nil},
		"several revisions": {simulatorPool(t, replicas(2, 2)), 16, func(s *v1alpha1.PDPoolSpec) { s.Decode.MaxLength = 4096 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, c.pool, c.gpus)
			random := rand.New(rand.NewSource(1))
			w.check = func(*cluster) {
				seen := w.observed()
				want := toldOf(w, seen)
				for range 3 {
					shuffle(random, seen)
					if got := toldOf(w, seen); got != want {
						t.Fatalf("in another order\n%s\nnot\n%s", got, want)
					}
				}
			}
			w.steps(15)
			if c.edit != nil {
				w.change(c.edit)
			}
			for _, p := range w.pods() {
				if c.lose != nil {
					c.lose(w, p)
				}
			}
			w.check(w) // before anything is done about it
			w.steps(30)
		})
	}
}

// shuffle puts what was seen in another order.
func shuffle(r *rand.Rand, seen Observed) {
	for _, list := range []struct {
		n    int
		swap func(i, j int)
	}{
		{len(seen.Pods), swapOf(seen.Pods)},
		{len(seen.ControllerRevisions), swapOf(seen.ControllerRevisions)},
		{len(seen.Services), swapOf(seen.Services)},
		{len(seen.ServiceAccounts), swapOf(seen.ServiceAccounts)},
		{len(seen.RoleBindings), swapOf(seen.RoleBindings)},
		{len(seen.NetworkPolicies), swapOf(seen.NetworkPolicies)},
		{len(seen.PortBlocks), swapOf(seen.PortBlocks)},
	} {
		r.Shuffle(list.n, list.swap)
	}
}

func swapOf[T any](list []T) func(i, j int) {
	return func(i, j int) { list[i], list[j] = list[j], list[i] }
}

// toldOf is what a plan does, in any order but that of creations, and what it says.
func toldOf(c *cluster, seen Observed) string {
	plan := Compute(c.pool, seen, c.defaults)
	names := func(list []Object) []string {
		var out []string
		for _, o := range list {
			out = append(out, childKey(o)+" "+string(encode(o)))
		}
		return out
	}
	apply, remove := names(plan.Apply), names(plan.Delete)
	slices.Sort(apply)
	slices.Sort(remove)
	return fmt.Sprintf("create %v\napply %v\ndelete %v\n%s %s %s after %s\n%v\n%s",
		names(plan.Create), apply, remove, plan.Outcome, plan.Reason, plan.Message, plan.RequeueAfter, plan.Events,
		encode(Status(c.pool, seen, plan, nil)))
}
