package pdpool

import (
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

func replicas(prefill, decode int32) func(*v1alpha1.PDPool) {
	return func(p *v1alpha1.PDPool) {
		p.Spec.Prefill.Replicas, p.Spec.Decode.Replicas = &prefill, &decode
	}
}

func TestPoolComesUp(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 1)), 16)
	plan := c.run(30)
	if plan.Reason != v1alpha1.ReasonConverged || !c.isTrue("Ready") || !c.isTrue("Available") || !c.isTrue("RolloutComplete") || !c.isTrue("Compatible") {
		t.Errorf("plan %+v, conditions %+v", plan.Reason, c.pool.Status.Conditions)
	}
	if len(c.pods()) != 3 {
		t.Errorf("pods %v", c.names())
	}
	if got := c.pool.Status; got.Prefill.Summary != "2/2" || got.Decode.Summary != "1/1" || got.Layout != "TP4 -> TP4 DCP4 I64" {
		t.Errorf("status %+v", got)
	}
}

func TestPairsAreMadeOneAfterTheOther(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 16)
	var order []string
	for range 3 {
		for _, o := range c.reconcile().Create {
			if p, ok := o.(*corev1.Pod); ok {
				order = append(order, p.Labels[v1alpha1.LabelReplica])
			}
		}
		c.turn()
	}
	if !slices.Equal(order, []string{"0", "0", "1", "1"}) {
		t.Errorf("pods are created in the order of replicas %v, expected both roles of each before the next", order)
	}
}

func TestIdlePoolWritesNothing(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	for _, o := range c.objects {
		// Others add what is theirs, and the server its defaults.
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["other.example/seen"] = "yes"
		o.SetAnnotations(annotations)
		if s, ok := o.(*corev1.Service); ok && s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP, s.Spec.Type, s.Spec.SessionAffinity = "10.0.0.7", corev1.ServiceTypeClusterIP, corev1.ServiceAffinityNone
		}
	}
	for range 600 {
		plan := c.reconcile()
		if c.writes != 0 || plan.Outcome != Converged {
			t.Fatalf("an idle pool made %d writes: %+v", c.writes, plan)
		}
		c.turn()
	}
}

func TestDriftIsHealed(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	for i := range c.objects {
		if s, ok := c.objects[i].(*corev1.Service); ok && s.Name == "r1-router" {
			s.Spec.Ports[0].Port = 81
		}
	}
	plan := c.reconcile()
	if len(plan.Apply) != 1 || plan.Apply[0].GetName() != "r1-router" || plan.Apply[0].GetUID() == "" {
		t.Errorf("plan applies %v", plan.Apply)
	}
	if want := "Service r1-router is brought in line with what is wanted"; plan.Message != want {
		t.Errorf("the plan says %q, not %q", plan.Message, want)
	}
}

func TestFailedPodIsReplacedOnceWithNextAttempt(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	for _, p := range c.pods() {
		if p.Labels[v1alpha1.LabelRole] == "decode" {
			c.fail(p)
		}
	}
	c.steps(1)
	if c.isTrue("Ready") || c.isTrue("Available") {
		t.Error("a pool without decode is Ready or Available")
	}
	c.run(30)
	want := map[string]string{"prefill 0": "0", "decode 0": "1"}
	if got := c.attempts(); !maps.Equal(got, want) {
		t.Errorf("attempts %v, want %v", got, want)
	}
	e := c.pool.Status.Decode.Instances[0]
	if *e.NextAttempt != 1 || *e.Failures != 1 || !strings.Contains(e.Reason, "exit code 137") || e.Node != "node-1" {
		t.Errorf("instance %+v", e)
	}
	c.now = c.now.Add(stable)
	c.steps(1)
	if e := c.pool.Status.Decode.Instances[0]; e.Failures != nil || e.Reason != "" || e.LastFailureTime != nil {
		t.Errorf("a failure is remembered after %s of health: %+v", stable, e)
	}
}

func TestGroupOfTwoPodsIsReplacedWhole(t *testing.T) {
	twoPods := func(p *v1alpha1.PDPool) {
		p.Spec.Model.Name = "deepseek-ai/DeepSeek-V2-Lite"
		p.Spec.Decode.Layout = v1alpha1.LayoutSpec{TP: 2, DP: 4, DPLocal: 2}
	}
	for name, lose := range map[string]func(c *cluster, p *corev1.Pod){
		"failed":  func(c *cluster, p *corev1.Pod) { c.fail(p) },
		"deleted": func(c *cluster, p *corev1.Pod) { c.terminate(p) },
		"gone":    func(c *cluster, p *corev1.Pod) { delete(c.objects, childKey(p)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, simulatorPool(t, twoPods), 24)
			c.run(30)
			if len(c.pods()) != 3 {
				t.Fatalf("pods %v", c.names())
			}
			for _, p := range c.pods() {
				if strings.HasSuffix(p.Name, "-0-0-1") {
					lose(c, p)
				}
			}
			c.run(60)
			made := map[string]bool{}
			for _, p := range c.pods() {
				made[p.Labels[v1alpha1.LabelRole]+p.Labels[v1alpha1.LabelAttempt]+p.Labels[v1alpha1.LabelPod]] = true
			}
			if want := map[string]bool{"prefill00": true, "decode10": true, "decode11": true}; !maps.Equal(made, want) {
				t.Errorf("pods %v", c.names())
			}
		})
	}
}

func TestPartlyCreatedGroupIsCompleted(t *testing.T) {
	c := newCluster(t, simulatorPool(t, func(p *v1alpha1.PDPool) {
		p.Spec.Model.Name = "deepseek-ai/DeepSeek-V2-Lite"
		p.Spec.Decode.Layout = v1alpha1.LayoutSpec{TP: 2, DP: 4, DPLocal: 2}
	}), 24)
	c.reconcile() // records
	c.reconcile() // creates
	for key, o := range c.objects {
		if strings.HasSuffix(o.GetName(), "-0-0-1") {
			delete(c.objects, key) // a quota refused it
		}
	}
	c.run(30)
	if got := c.attempts(); got["decode 0"] != "0" || len(c.pods()) != 3 {
		t.Errorf("pods %v", c.names())
	}
}

func TestCrashLoopBacksOff(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	created := 0
	var reasons []string
	for range 1800 {
		plan := c.reconcile()
		c.invariants()
		created += podsIn(plan.Create)
		reasons = append(reasons, plan.Reason)
		for _, p := range c.pods() {
			if p.Labels[v1alpha1.LabelRole] == "decode" && p.DeletionTimestamp == nil && podReady(p) {
				c.fail(p)
			}
		}
		c.turn()
	}
	if created < 6 || created > 14 {
		t.Errorf("%d attempts in half an hour", created)
	}
	if !slices.Contains(reasons, v1alpha1.ReasonBackOff) {
		t.Error("nothing told of back-off")
	}
	if plan := c.reconcile(); plan.RequeueAfter <= 0 || plan.RequeueAfter > longBackOff {
		t.Errorf("requeue after %s", plan.RequeueAfter)
	}
}

func TestPodOnLostNodeDoesNotHoldItsReplica(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 32)
	c.run(30)
	for _, p := range c.pods() {
		c.stuck[p.Name] = true
		c.terminate(p)
	}
	c.steps(20)
	want := map[string]string{"prefill 0": "1", "decode 0": "1"}
	if got := c.attempts(); !maps.Equal(got, want) || !c.isTrue("Ready") {
		t.Errorf("attempts %v, want %v; %v", got, want, c.pool.Status.Conditions)
	}
}

func TestFailedRevisionIsForgotten(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.start = 1 << 20 // never ready
	c.steps(5)
	for range 3 {
		for _, p := range c.pods() {
			c.fail(p)
		}
		c.steps(2)
	}
	c.start = 3
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} })
	c.run(60)
	if n := len(c.observed().ControllerRevisions); n != 3 || len(c.pool.Status.Decode.Instances) != 1 {
		t.Errorf("%d revisions, instances %+v", n, c.pool.Status.Decode.Instances)
	}
}

func TestScale(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(1, 1)), 64)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(3)) })
	c.run(30)
	if len(c.pods()) != 4 {
		t.Errorf("pods %v", c.names())
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(1)); s.Prefill.Replicas = new(int32(0)) })
	c.run(30)
	if got := c.attempts(); !maps.Equal(got, map[string]string{"decode 0": "0"}) {
		t.Errorf("pods %v", c.names())
	}
	if c.isTrue("Available") {
		t.Error("available without prefill")
	}
}

// dcp changes both layouts so that old and new can't pair.
func dcp(s *v1alpha1.PDPoolSpec) {
	s.Prefill.Layout = v1alpha1.LayoutSpec{TP: 4, DCP: 2, Interleave: 16}
	s.Decode.Layout = v1alpha1.LayoutSpec{TP: 4, DCP: 2, Interleave: 16}
}

func TestChangeOfGenerationWithDevicesFree(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.PDPoolSpec){
		"layouts that don't pair": dcp,
		"another pairing key":     func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 128 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, simulatorPool(t, replicas(2, 2)), 64)
			c.run(30)
			old := c.names()
			c.check = func(c *cluster) {
				if !c.isTrue("Available") {
					t.Errorf("not available at %s: %v", c.now, c.pool.Status.Conditions)
				}
				if c.isTrue("Ready") && c.pool.Status.Conditions[0].ObservedGeneration < 2 {
					t.Error("Ready for an old generation")
				}
			}
			c.change(edit)
			c.run(60)
			for _, n := range c.names() {
				if slices.Contains(old, n) {
					t.Errorf("%s is still there", n)
				}
			}
			if len(c.pods()) != 4 || !c.isTrue("Ready") {
				t.Errorf("pods %v", c.names())
			}
			if n := len(c.observed().ControllerRevisions); n != 3 {
				t.Errorf("%d revisions are kept", n)
			}
			if !slices.ContainsFunc(c.log, func(l string) bool { return strings.HasPrefix(l, v1alpha1.ReasonChangingGeneration) }) {
				t.Errorf("no event tells of the change:\n%s", strings.Join(c.log, "\n"))
			}
		})
	}
}

func TestChangeOfGenerationWithoutDevices(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(3, 3)), 24)
	c.lag = 9
	c.run(30)
	lowest := 6
	c.check = func(c *cluster) {
		n := 0
		for _, p := range c.pods() {
			if podReady(p) && p.DeletionTimestamp == nil {
				n++
			}
		}
		lowest = min(lowest, n)
	}
	c.change(dcp)
	c.run(600)
	if lowest < 4 {
		t.Errorf("only %d of 6 instances were ready at some time", lowest)
	}
	if !c.isTrue("Ready") || c.pool.Status.Rollout != (v1alpha1.RolloutStatus{}) {
		t.Errorf("status %+v", c.pool.Status)
	}
}

func TestManyChangesInARowDoNotPileUp(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 1000)
	c.run(30)
	for i := range 12 {
		c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = int32(64 * (i + 2)) })
		c.steps(2)
		if n := len(c.names()); n > 8 {
			t.Fatalf("%d pods after %d changes", n, i)
		}
	}
	c.run(60)
	if len(c.pods()) != 4 {
		t.Errorf("pods %v", c.names())
	}
}

func TestRollingReplacesOneAtATimeDecodeFirst(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 64)
	c.run(30)
	c.check = func(c *cluster) {
		if !c.isTrue("Available") {
			t.Errorf("not available: %v", c.pool.Status.Conditions)
		}
		if n := len(c.names()); n > 5 {
			t.Errorf("%d pods at once: %v", n, c.names())
		}
	}
	prefill := c.pool.Status.Prefill.Revision
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = []string{"--sim-max-queue", "7"} })
	c.run(90)
	if c.pool.Status.Prefill.Revision != prefill {
		t.Error("a change of decode alone changed prefill's revision")
	}
	for _, p := range c.pods() {
		if p.Labels[v1alpha1.LabelRole] == "prefill" && !strings.HasSuffix(p.Name, "-0-0") {
			t.Errorf("prefill was touched: %s", p.Name)
		}
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} })
	var order []string
	c.check = func(c *cluster) {
		for _, p := range c.pods() {
			if name := p.Labels[v1alpha1.LabelRole] + p.Labels[v1alpha1.LabelReplica]; p.Labels[v1alpha1.LabelRevision] == c.revision(p) && !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	c.run(120)
	if want := []string{"decode0", "decode1", "prefill0", "prefill1"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// revision is the current revision of a pod's role.
func (c *cluster) revision(p *corev1.Pod) string {
	if p.Labels[v1alpha1.LabelRole] == "prefill" {
		return c.pool.Status.Prefill.Revision
	}
	return c.pool.Status.Decode.Revision
}

func TestRollingWithoutDevicesGivesUpTheOldFirst(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(1, 1)), 8)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} })
	c.run(120)
	if len(c.pods()) != 2 {
		t.Errorf("pods %v", c.names())
	}
}

func TestBadImageDoesNotBlockItsCorrection(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 64)
	c.broken["typo"] = true
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "typo" })
	c.steps(30)
	if got := c.reason("Ready"); got != v1alpha1.ReasonImageUnavailable {
		t.Errorf("reason %s", got)
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "" })
	c.steps(2)
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == "typo" {
			t.Errorf("%s, which has never served, holds up its correction", p.Name)
		}
	}
	c.run(30)

	// In the middle of a roll-out nothing that serves is given up.
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "typo" })
	c.steps(60)
	if c.pool.Status.Decode.Summary != "2/2" || c.pool.Status.Prefill.Summary != "2/2" || !c.isTrue("Available") {
		t.Errorf("status %+v", c.pool.Status)
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "" })
	c.run(60)
}

func TestLostInstanceComesBackInItsOwnRevision(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(1, 1)), 64)
	c.run(30)
	old := c.pool.Status.Decode.Revision
	c.start = 60 // the new set takes long
	c.change(dcp)
	c.steps(5)
	c.start = 3
	for _, p := range c.pods() {
		if p.Labels[v1alpha1.LabelRevision] == old {
			c.fail(p)
		}
	}
	c.start = 60
	c.steps(10)
	found := false
	for _, p := range c.pods() {
		found = found || p.Labels[v1alpha1.LabelRevision] == old && p.Labels[v1alpha1.LabelAttempt] == "1"
	}
	if !found {
		t.Errorf("pods %v, old revision %s", c.names(), old)
	}
	c.start = 3
	c.run(120)
	if len(c.pods()) != 2 {
		t.Errorf("pods %v", c.names())
	}
}

func TestLostInstanceIsReplacedByTheNewRevision(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(1, 1)), 64)
	c.run(30)
	for _, p := range c.pods() {
		c.fail(p)
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} })
	c.check = func(c *cluster) {
		for _, p := range c.pods() {
			// Decode rolls first, and until then prefill comes back as it was.
			if p.Labels[v1alpha1.LabelRole] == "decode" && p.Labels[v1alpha1.LabelAttempt] != "0" {
				t.Errorf("%s is made beside the new revision", p.Name)
			}
		}
	}
	c.steps(1)
	c.run(60)
}

func TestOneOlderInstanceOfAReplicaIsKept(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(1, 1)), 64)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = []string{"--sim-max-queue", "1"} })
	for c.readyDecodes() < 2 {
		c.reconcile()
		c.turn()
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = []string{"--sim-max-queue", "2"} })
	c.steps(2)
	if n := c.readyDecodes(); n != 1 {
		t.Errorf("%d older instances of one replica: %v", n, c.names())
	}
	c.run(60)
}

func (c *cluster) readyDecodes() int {
	n := 0
	for _, p := range c.pods() {
		if p.Labels[v1alpha1.LabelRole] == "decode" && p.DeletionTimestamp == nil && podReady(p) {
			n++
		}
	}
	return n
}

// TestLostNodeDoesNotHoldUpAChange takes devices away with pods that never go.
func TestLostNodeDoesNotHoldUpAChange(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 16)
	c.run(30)
	for _, p := range c.pods() {
		c.stuck[p.Name] = p.Labels[v1alpha1.LabelReplica] == "1"
	}
	c.change(dcp)
	c.steps(400)
	isNew := 0
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil && podReady(p) && p.Labels[v1alpha1.LabelRevision] == c.revision(p) {
			isNew++
		}
	}
	if isNew != 2 || !c.isTrue("Available") {
		t.Errorf("%d instances of the new set serve: %v", isNew, c.names())
	}
}

func TestDoublesAreRemoved(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	seen := c.observed()
	double := seen.Pods[0].DeepCopy()
	double.Name, double.UID = double.Name+"x", "another"
	double.Labels[v1alpha1.LabelAttempt] = "1"
	seen.Pods = append(seen.Pods, *double)
	plan := Compute(c.pool, seen, c.defaults)
	if len(plan.Delete) != 1 || plan.Delete[0].GetName() != seen.Pods[0].Name {
		t.Errorf("plan deletes %v", plan.Delete)
	}
}

func TestOperatorUpgradeTouchesNoPod(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	c.defaults = Defaults{RouterImage: "pdpool/router:v2", AgentImage: "pdpool/transfer-agent:v2", SimulatorImage: "pdpool/enginesim:v2", Ports: PortRange{First: 40000, Last: 41000}}
	plan := c.reconcile()
	if plan.Outcome != Converged || c.writes != 0 {
		t.Errorf("an upgrade of the operator made %d writes: %+v", c.writes, plan)
	}
	// What is lost then comes back as it was; what the user changes is new.
	c.fail(c.pods()[0])
	c.run(30)
	for _, p := range c.pods() {
		if p.Spec.InitContainers[0].Image != "pdpool/transfer-agent:v1" {
			t.Errorf("%s has agent %s", p.Name, p.Spec.InitContainers[0].Image)
		}
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = []string{"--sim-max-queue", "8"} })
	c.run(90)
	if p, d := c.pool.Status.Prefill.Instances[0].AgentImage, c.pool.Status.Decode.Instances[0].AgentImage; p != "pdpool/transfer-agent:v1" || d != "pdpool/transfer-agent:v2" {
		t.Errorf("status tells of agents %s and %s", p, d)
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "9"} })
	c.run(90)
	for _, p := range c.pods() {
		if p.Spec.InitContainers[0].Image != "pdpool/transfer-agent:v2" {
			t.Errorf("%s has agent %s", p.Name, p.Spec.InitContainers[0].Image)
		}
	}
}

func TestDeletedPoolGetsNothing(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	c.pool.DeletionTimestamp = new(metav1.NewTime(c.now))
	for _, p := range c.pods() {
		delete(c.objects, childKey(p))
	}
	plan := c.reconcile()
	if len(plan.Create)+len(plan.Apply)+len(plan.Delete)+len(plan.Events) != 0 || plan.RequeueAfter != 0 || c.writes != 0 {
		t.Errorf("plan %+v", plan)
	}
}

func TestPoolThatBreaksARule(t *testing.T) {
	wrong := func(s *v1alpha1.PDPoolSpec) {
		s.Prefill.Layout = v1alpha1.LayoutSpec{TP: 4, DCP: 2, Interleave: 64}
	}
	t.Run("new", func(t *testing.T) {
		c := newCluster(t, simulatorPool(t, func(p *v1alpha1.PDPool) { wrong(&p.Spec) }), 64)
		plan := c.steps(20)
		if len(c.pods()) != 2 || plan.Outcome != Blocked || plan.Reason != "DcpMix" {
			t.Errorf("%d pods, plan %s %s", len(c.pods()), plan.Outcome, plan.Reason)
		}
		if c.isTrue("Compatible") || c.isTrue("Ready") || c.isTrue("Available") || !c.isTrue("Stalled") || c.reason("Compatible") != "DcpMix" {
			t.Errorf("conditions %+v", c.pool.Status.Conditions)
		}
	})
	t.Run("changed past the webhook", func(t *testing.T) {
		c := newCluster(t, simulatorPool(t), 64)
		c.run(30)
		names := c.names()
		c.change(wrong)
		c.steps(20)
		if !slices.Equal(c.names(), names) || !c.isTrue("Available") || c.isTrue("Ready") {
			t.Errorf("pods %v, conditions %+v", c.names(), c.pool.Status.Conditions)
		}
		for _, p := range c.pods() {
			c.fail(p)
		}
		c.steps(20)
		if got := c.attempts(); !maps.Equal(got, map[string]string{"prefill 0": "1", "decode 0": "1"}) {
			t.Errorf("attempts %v", got)
		}
		c.change(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout = v1alpha1.LayoutSpec{TP: 4} })
		c.run(30)
	})
}

func TestSpecThatCannotBeRendered(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mode = v1alpha1.TransferRead })
	plan := c.steps(10)
	if plan.Outcome != Blocked || plan.Reason != v1alpha1.ReasonInvalidSpec || len(c.pods()) != 2 {
		t.Errorf("plan %s %s %s", plan.Outcome, plan.Reason, plan.Message)
	}
}

func TestRouterNoneRemovesTheRouter(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Router.Mode = v1alpha1.RouterNone })
	c.run(30)
	seen := c.observed()
	if len(seen.Deployments)+len(seen.RoleBindings)+len(seen.ServiceAccounts) != 0 || len(seen.Services) != 1 || len(c.pods()) != 2 {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(c.objects)))
	}
	if !c.isTrue("Available") || c.pool.Status.URL != "" {
		t.Errorf("status %+v", c.pool.Status)
	}
}

// TestRandomHistories lets users and failures do what they do, then waits for peace.
func TestRandomHistories(t *testing.T) {
	edits := []func(*v1alpha1.PDPoolSpec){
		dcp,
		func(s *v1alpha1.PDPoolSpec) {
			s.Prefill.Layout, s.Decode.Layout = v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 4, DCP: 4, Interleave: 64}
		},
		func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 128 },
		func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 64 },
		func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(3)) },
		func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas, s.Prefill.Replicas = new(int32(1)), new(int32(2)) },
		func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--sim-max-queue", "1"} },
		func(s *v1alpha1.PDPoolSpec) { s.Engine.Args, s.Engine.Image = nil, "typo" },
		func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "" },
	}
	for seed := range int64(25) {
		r := rand.New(rand.NewSource(seed))
		c := newCluster(t, simulatorPool(t, replicas(2, 2)), 16+8*r.Intn(5))
		c.broken["typo"] = true
		c.run(60)
		for range 150 {
			c.steps(1)
			if r.Intn(20) == 0 {
				c.change(edits[r.Intn(len(edits))])
			}
			if p := c.pick(r); p != nil && r.Intn(12) == 0 {
				switch r.Intn(3) {
				case 0:
					c.fail(p)
				case 1:
					c.terminate(p)
				default:
					delete(c.objects, childKey(p))
				}
			}
		}
		c.change(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Image = ""
			s.Prefill.Replicas, s.Decode.Replicas = new(int32(2)), new(int32(2))
		})
		c.run(3000)
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(c.log, "\n"))
		}
		if len(c.pods()) != 4 || !c.isTrue("Ready") {
			t.Fatalf("seed %d: pods %v", seed, c.names())
		}
	}
}

func TestTwoLooksAtOneStateAgree(t *testing.T) {
	c := newCluster(t, simulatorPool(t, replicas(2, 2)), 24)
	c.check = func(c *cluster) {
		seen := c.observed()
		a, b := Compute(c.pool, seen, c.defaults), Compute(c.pool, seen, c.defaults)
		a.found, b.found = nil, nil
		if string(encode(a)) != string(encode(b)) {
			t.Errorf("plans differ:\n%s\n%s", encode(a), encode(b))
		}
	}
	c.run(30)
	c.change(dcp)
	c.run(600)
}

func TestBackOff(t *testing.T) {
	for failures, want := range []time.Duration{0, 0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, longBackOff, longBackOff} {
		if got := backOff(failures); got != want {
			t.Errorf("back-off after %d failures is %s, want %s", failures, got, want)
		}
	}
	if got := backOff(1 << 30); got != longBackOff {
		t.Errorf("back-off is %s", got)
	}
}
