package pdpool

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// passage is a change of a running pool that the manager is killed in.
type passage struct {
	name   string
	gpus   int
	change func(*v1alpha1.PDPoolSpec)
	// pairs serve at any time.
	pairs int
	// most pods are alive at once.
	most int
}

func passages() []passage {
	args := func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} }
	return []passage{
		{"rolling, devices free", 64, args, 2, 5},
		{"rolling, no device free", 16, args, 1, 5},
		{"generations, devices free", 64, dcp, 2, 8},
		{"generations, no device free", 16, dcp, 1, 8},
	}
}

// start is a pool of two replicas of each role that runs. The seed names its
// revisions, and so its pods, and tells the order in which the scheduler takes them.
func (p passage) start(t *testing.T, seed int) *cluster {
	c := newCluster(t, simulatorPool(t, replicas(2, 2), revised(seed)), p.gpus)
	c.order = rand.New(rand.NewSource(int64(seed)))
	c.run(60)
	c.check = p.check
	return c
}

// check holds what a passage promises at each second of it.
func (p passage) check(c *cluster) {
	c.t.Helper()
	if n := len(c.names()); n > p.most {
		c.t.Errorf("%s: %d pods at once: %v", p.name, n, c.names())
	}
	if n := c.serving(); n < p.pairs {
		c.t.Fatalf("%s: %d pairs serve, %d have to\n%s", p.name, n, p.pairs, strings.Join(c.log, "\n"))
	}
}

// serving is the number of pairs that a router can use side by side: instances that
// may pair, ready and not ending.
func (c *cluster) serving() int {
	p := newPlanner(c.pool, c.observed(), c.defaults)
	best := 0
	for i := range p.prefill.all {
		for j := range p.decode.all {
			prefills, decodes := 0, 0
			for k := range p.prefill.all {
				if mayPair(&p.prefill.all[k], &p.decode.all[j]) {
					prefills += p.prefill.countReady(p.prefill.all[k].hash)
				}
			}
			for k := range p.decode.all {
				if mayPair(&p.prefill.all[i], &p.decode.all[k]) {
					decodes += p.decode.countReady(p.decode.all[k].hash)
				}
			}
			if mayPair(&p.prefill.all[i], &p.decode.all[j]) {
				best = max(best, min(prefills, decodes))
			}
		}
	}
	return best
}

// end is what a passage leads to: the living instances, whatever attempts they took.
func (c *cluster) end() string {
	var out []string
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil {
			out = append(out, fmt.Sprint(p.Labels[v1alpha1.LabelRole], p.Labels[v1alpha1.LabelReplica], p.Labels[v1alpha1.LabelRevision], p.Status.Phase))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestManagerKilledAfterEachWrite kills the manager before each single write of a
// passage, those of the status included: what follows leads to the same end, and
// nothing is lost on the way.
func TestManagerKilledAfterEachWrite(t *testing.T) {
	for _, p := range passages() {
		t.Run(p.name, func(t *testing.T) {
			c := p.start(t, 0)
			total := 0
			c.dies = func(int) bool { total++; return false }
			c.change(p.change)
			c.run(900)
			want := c.end()
			tested := 0
			for k := 1; k <= total; k++ {
				c := p.start(t, 0)
				c.order = rand.New(rand.NewSource(int64(k)))
				n := 0
				c.dies = func(int) bool { n++; return n == k }
				c.change(p.change)
				c.run(900)
				if got := c.end(); got != want {
					t.Fatalf("killed before write %d: ends with\n%s\nnot with\n%s", k, got, want)
				}
				tested++
			}
			if tested < 10 {
				t.Errorf("only %d writes were tested", tested)
			}
		})
	}
}

// TestManagerThatNeverGetsFar kills the manager after the first write of each look.
func TestManagerThatNeverGetsFar(t *testing.T) {
	for _, p := range passages() {
		t.Run(p.name, func(t *testing.T) {
			c := p.start(t, 0)
			c.change(p.change)
			c.run(900)
			want := c.end()
			c = p.start(t, 0)
			c.dies = func(writes int) bool { return writes > 0 }
			c.change(p.change)
			c.run(1800)
			if got := c.end(); got != want {
				t.Errorf("ends with\n%s\nnot with\n%s", got, want)
			}
		})
	}
}

// TestManagerKilledWhilePoolComesUp holds the same of a pool's first pods, and of the
// replacement of one that failed.
func TestManagerKilledWhilePoolComesUp(t *testing.T) {
	grow := func(t *testing.T, dies func(int) bool) *cluster {
		c := newCluster(t, simulatorPool(t, replicas(2, 2)), 64)
		c.dies = dies
		c.run(120)
		c.fail(c.pods()[0])
		c.run(120)
		return c
	}
	total := 0
	want := grow(t, func(int) bool { total++; return false }).end()
	for k := 1; k <= total; k++ {
		n := 0
		c := grow(t, func(int) bool { n++; return n == k })
		if got := c.end(); got != want {
			t.Fatalf("killed before write %d: ends with\n%s\nnot with\n%s", k, got, want)
		}
		for _, p := range list[corev1.Pod](c) {
			if p.Status.Phase == corev1.PodFailed {
				t.Errorf("killed before write %d: pod %s is left", k, p.Name)
			}
		}
	}
}

// TestCacheThatLags lets the manager decide by what it saw the last time, every other
// look or so, as a cache behind its own writes has it: that may cost time, and no more.
func TestCacheThatLags(t *testing.T) {
	for _, p := range passages() {
		t.Run(p.name, func(t *testing.T) {
			c := p.start(t, 0)
			c.change(p.change)
			c.run(900)
			want := c.end()
			for seed := range int64(3) {
				r := rand.New(rand.NewSource(seed))
				c := p.start(t, 0)
				c.lags = func() bool { return r.Intn(2) == 0 }
				c.change(p.change)
				c.steps(300)
				c.lags = nil
				c.run(900)
				if got := c.end(); got != want {
					t.Fatalf("seed %d: ends with\n%s\nnot with\n%s", seed, got, want)
				}
			}
		})
	}
}
