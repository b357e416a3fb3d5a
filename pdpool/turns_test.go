package pdpool

import (
	"flag"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// revised gives a pool revisions of other names, and nothing else that counts.
func revised(seed int) func(*v1alpha1.PDPool) {
	return func(p *v1alpha1.PDPool) { p.Spec.Model.MaxLength -= int32(seed) }
}

var (
	orders     = flag.Int("sim.orders", 4, "orders of the scheduler that each case is tried in")
	firstOrder = flag.Int("sim.first", 0, "the seed of the first order, up to 4000")
)

// seeds are those of the orders of the scheduler that each case is tried in.
func seeds() []int {
	out := make([]int, *orders)
	for i := range out {
		out[i] = *firstOrder + i
	}
	return out
}

// TestNoOrderOfTheSchedulerStrandsAStart starts pools for which devices lack, and has
// the node turn pods away meanwhile: as many pairs serve as there are devices for.
func TestNoOrderOfTheSchedulerStrandsAStart(t *testing.T) {
	for _, start := range []struct {
		prefill, decode int32
		gpus, pairs     int
	}{
		{2, 2, 8, 1}, {2, 2, 12, 1}, {3, 3, 20, 2}, {4, 4, 12, 1}, {1, 3, 8, 1}, {3, 1, 8, 1},
	} {
		for _, rejecting := range []bool{false, true} {
			t.Run(fmt.Sprint(start, rejecting), func(t *testing.T) {
				for _, seed := range seeds() {
					c := newCluster(t, simulatorPool(t, replicas(start.prefill, start.decode), revised(seed)), start.gpus)
					c.order = rand.New(rand.NewSource(int64(seed)))
					left := 3
					c.rejects = func(*corev1.Pod) bool {
						rejected := rejecting && left > 0 && c.order.Intn(2) == 0
						if rejected {
							left--
						}
						return rejected
					}
					seconds := 20
					if rejecting {
						seconds = 50 // a back-off or two
					}
					c.steps(seconds)
					if n := c.serving(); n != start.pairs {
						t.Fatalf("seed %d: %d pairs serve, there are devices for %d: %v\n%s", seed, n, start.pairs, c.names(), strings.Join(c.log, "\n"))
					}
				}
			})
		}
	}
}

// TestNoOrderOfTheSchedulerStrandsAChange holds what passages promise, for changes of
// generation with no device free.
func TestNoOrderOfTheSchedulerStrandsAChange(t *testing.T) {
	for _, n := range []int32{2, 3} {
		for _, seed := range seeds() {
			c := newCluster(t, simulatorPool(t, replicas(n, n), revised(seed)), int(8*n))
			c.order, c.lag = rand.New(rand.NewSource(int64(seed))), 1+seed%3
			c.run(60)
			c.check = passage{name: fmt.Sprintf("seed %d", seed), pairs: 1, most: int(4 * n)}.check
			c.change(dcp)
			c.run(900)
		}
	}
}

// TestNoOrderOfTheSchedulerStrandsARecovery loses every instance, and half of the
// devices for good.
func TestNoOrderOfTheSchedulerStrandsARecovery(t *testing.T) {
	for _, seed := range seeds() {
		c := newCluster(t, simulatorPool(t, replicas(2, 2), revised(seed)), 16)
		c.order = rand.New(rand.NewSource(int64(seed)))
		c.run(60)
		for _, p := range c.pods() {
			c.fail(p)
		}
		c.gpus = 8
		c.steps(60)
		if n := c.serving(); n != 1 {
			t.Fatalf("seed %d: %d pairs serve: %v", seed, n, c.names())
		}
	}
}

// TestNoOrderOfTheSchedulerStrandsALoss has a pool that lacks devices for good, whose
// later instances wait for some, lose instances of what serves: the scheduler may give
// their devices to the other role.
func TestNoOrderOfTheSchedulerStrandsALoss(t *testing.T) {
	for _, c := range []struct {
		prefill, decode int32
		gpus            int
		loses           string
	}{
		{2, 2, 8, "prefill0"},
		{2, 2, 8, "decode0"},
		{2, 2, 12, "prefill0"},
		{3, 3, 12, "prefill0 decode0"},
		{1, 3, 12, "prefill0"},
		{3, 1, 12, "decode0"},
		{4, 4, 16, "prefill0 prefill1"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for _, seed := range seeds() {
				w := newCluster(t, simulatorPool(t, replicas(c.prefill, c.decode), revised(seed)), c.gpus)
				w.order = rand.New(rand.NewSource(int64(seed)))
				w.steps(25)
				for _, p := range w.pods() {
					if podReady(p) && strings.Contains(c.loses, p.Labels[v1alpha1.LabelRole]+p.Labels[v1alpha1.LabelReplica]) {
						w.fail(p)
					}
				}
				w.steps(80)
				if n := w.serving(); n < 1 {
					t.Fatalf("seed %d: no pair serves: %v\n%s", seed, w.names(), strings.Join(w.log, "\n"))
				}
			}
		})
	}
}

// TestNoOrderOfTheSchedulerStrandsALossInAChange has instances of the new set lost while
// it comes up on devices of the old one.
func TestNoOrderOfTheSchedulerStrandsALossInAChange(t *testing.T) {
	lost := 0
	for _, seed := range seeds() {
		c := newCluster(t, simulatorPool(t, replicas(3, 3), revised(seed)), 24)
		c.order, c.lag = rand.New(rand.NewSource(int64(seed))), 1+seed%3
		c.run(60)
		old := map[string]string{"decode": c.pool.Status.Decode.Revision, "prefill": c.pool.Status.Prefill.Revision}
		left := 3
		c.check = func(*cluster) {
			for _, p := range c.pods() {
				isNew := p.Labels[v1alpha1.LabelRevision] != old[p.Labels[v1alpha1.LabelRole]]
				if left > 0 && isNew && prepared(p) && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && c.order.Intn(15) == 0 {
					c.fail(p)
					left--
					lost++
				}
			}
		}
		c.change(dcp)
		c.run(1500)
		if !c.isTrue("Ready") {
			t.Errorf("seed %d: %d left to lose, pods %v", seed, left, c.names())
		}
	}
	if lost <= *orders {
		t.Errorf("%d instances lost in %d changes", lost, *orders)
	}
}

// TestNobodyGivesWayForNothing has all prefill instances lost, and no node that decode
// instances hold devices of would take them.
func TestNobodyGivesWayForNothing(t *testing.T) {
	for _, cordoned := range []bool{false, true} {
		c := newCluster(t, simulatorPool(t, replicas(1, 3)), 16)
		devices := corev1.ResourceList{v1alpha1.DefaultGPUResource: resource.MustParse("16")}
		c.nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Capacity: devices, Allocatable: devices}}}
		c.run(60)
		c.nodes[0].Spec.Unschedulable = cordoned
		c.gpus = 12
		for _, p := range c.pods() {
			if p.Labels[v1alpha1.LabelRole] == "prefill" {
				c.fail(p)
			}
		}
		c.steps(int(settle.Seconds()))
		if n := len(c.names()); n != 4 {
			t.Errorf("the scheduler had no time: %v", c.names())
		}
		c.steps(10)
		if n := c.serving(); (n == 1) == cordoned {
			t.Errorf("cordoned %v: %d pairs serve: %v", cordoned, n, c.names())
		}
		if stayed := c.attempts()["decode 2"] == "0"; stayed != cordoned {
			t.Errorf("cordoned %v: %v", cordoned, c.names())
		}
		c.nodes[0].Spec.Unschedulable, c.gpus = false, 16
		c.run(60)
		if got := c.attempts(); len(got) != 4 || got["decode 0"] != "0" || got["decode 1"] != "0" {
			t.Errorf("cordoned %v: attempts %v", cordoned, got)
		}
	}
}

// TestLostInstanceWaitsForNoPair holds that a replica which served comes back at once
// though another one finds no devices, and one that is new does not.
func TestLostInstanceWaitsForNoPair(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 3)), 20)
	c.run(60)
	c.gpus = 16
	for _, p := range c.pods() {
		if r := p.Labels[v1alpha1.LabelRole] + p.Labels[v1alpha1.LabelReplica]; r == "prefill0" {
			c.fail(p)
		}
	}
	c.steps(10)
	c.gpus = 12
	for _, p := range c.pods() {
		if r := p.Labels[v1alpha1.LabelRole] + p.Labels[v1alpha1.LabelReplica]; r == "decode2" {
			c.fail(p)
		}
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(4)) })
	c.steps(10)
	got := c.attempts()
	if _, made := got["decode 3"]; got["prefill 0"] != "1" || got["decode 2"] != "1" || made {
		t.Errorf("attempts %v", got)
	}
	c.gpus = 64
	c.run(60)
	if len(c.pods()) != 6 {
		t.Errorf("pods %v", c.names())
	}
}

func TestPlaced(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(node string, since time.Duration, more ...corev1.PodCondition) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = append(more, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-since)),
		})
		return p
	}
	letIn := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	for name, c := range map[string]struct {
		state state
		pods  []*corev1.Pod
		want  bool
		again time.Duration
	}{
		"no node":                    {starting, []*corev1.Pod{{}}, false, 0},
		"let in":                     {starting, []*corev1.Pod{pod("a", 0, letIn)}, true, 0},
		"a moment ago":               {starting, []*corev1.Pod{pod("a", time.Second)}, false, settle - time.Second},
		"long ago":                   {starting, []*corev1.Pod{pod("a", settle)}, true, 0},
		"by a clock that is ahead":   {starting, []*corev1.Pod{pod("a", -time.Second)}, false, settle + time.Second},
		"by a clock that is wrong":   {starting, []*corev1.Pod{pod("a", -time.Hour)}, true, 0},
		"one of two":                 {starting, []*corev1.Pod{pod("a", 0, letIn), {}}, false, 0},
		"pods lack":                  {partial, []*corev1.Pod{pod("a", 0, letIn)}, false, 0},
		"failed":                     {failed, []*corev1.Pod{pod("a", 0, letIn)}, false, 0},
		"ready without a sandbox":    {ready, []*corev1.Pod{pod("a", 0, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})}, true, 0},
		"let in, and a moment ago":   {starting, []*corev1.Pod{pod("a", 0, letIn), pod("b", 0)}, false, settle},
		"let in, and unready by now": {starting, []*corev1.Pod{pod("a", time.Hour, letIn)}, true, 0},
	} {
		p := &planner{seen: Observed{Now: now}}
		if got := p.placed(&group{state: c.state, pods: c.pods}); got != c.want || p.plan.RequeueAfter != c.again {
			t.Errorf("%s: %v, again after %s; want %v, %s", name, got, p.plan.RequeueAfter, c.want, c.again)
		}
	}
}

// TestManagerKilledBetweenTheLastOldPair kills the manager when the last old decode is
// deleted and the last old prefill, which may pair with the new decodes, is not.
func TestManagerKilledBetweenTheLastOldPair(t *testing.T) {
	for _, seed := range seeds() {
		c := newCluster(t, simulatorPool(t, replicas(2, 2), revised(seed)), 16)
		c.order = rand.New(rand.NewSource(int64(seed)))
		c.run(60)
		old := map[string]string{"decode": c.pool.Status.Decode.Revision, "prefill": c.pool.Status.Prefill.Revision}
		killed := false
		c.dies = func(int) bool {
			left := map[string]int{}
			for _, p := range c.pods() {
				if role := p.Labels[v1alpha1.LabelRole]; p.DeletionTimestamp == nil && p.Labels[v1alpha1.LabelRevision] == old[role] {
					left[role]++
				}
			}
			dies := !killed && left["decode"] == 0 && left["prefill"] > 0
			killed = killed || dies
			return dies
		}
		c.check = passage{name: fmt.Sprintf("seed %d", seed), pairs: 1, most: 8}.check
		c.change(dcp)
		c.run(900)
		if !killed || !c.isTrue("Ready") {
			t.Errorf("seed %d: killed %v, pods %v", seed, killed, c.names())
		}
	}
}
