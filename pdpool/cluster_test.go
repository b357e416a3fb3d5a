package pdpool

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// cluster is an API server, a scheduler, kubelets and a shell in memory. Each step
// is one second.
type cluster struct {
	t            testing.TB
	pool         *v1alpha1.PDPool
	defaults     Defaults
	now          time.Time         // of the API server and the kubelets
	skew         time.Duration     // of the manager's clock
	objects      map[string]Object // by kind and name
	uids         int
	gpus         int             // in all, on one node
	nodes        []corev1.Node   // as the manager sees them
	start        int             // steps until a scheduled pod is ready
	drain        int             // steps until a deleted pod is gone
	lag          int             // steps until the scheduler looks again at a pod that found no node
	order        *rand.Rand      // of the scheduler: shuffles the pods at each step; by name if nil
	broken       map[string]bool // images that can't be pulled
	stuck        map[string]bool // names of pods whose deletion nothing confirms
	age          map[types.UID]int
	holdAvoiding bool                     // pods that avoid the node find no other
	refuse       func(p *corev1.Pod) bool // pods that a quota refuses
	rejects      func(p *corev1.Pod) bool // pods that the node turns away a second after they got it
	writes       int                      // of the last step
	log          []string
	// lags says whether the manager reads what it read the last time.
	lags   func() bool
	before Observed
	dead   bool // the manager, in this look
	// dies says whether the manager is killed now, after so many writes of a look. The
	// next second brings another one.
	dies func(writes int) bool
	// check runs after each step.
	check func(c *cluster)
}

func newCluster(t testing.TB, pool *v1alpha1.PDPool, gpus int) *cluster {
	return &cluster{
		t: t, pool: pool, defaults: testDefaults, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		objects: map[string]Object{}, gpus: gpus, start: 3, drain: 2, lag: 1,
		broken: map[string]bool{}, stuck: map[string]bool{}, age: map[types.UID]int{}, refuse: func(*corev1.Pod) bool { return false }, check: func(*cluster) {}, dies: func(int) bool { return false },
	}
}

func list[T any](c *cluster) []T {
	var out []T
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o, ok := any(c.objects[key]).(*T); ok {
			out = append(out, *o)
		}
	}
	return out
}

func (c *cluster) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if p, ok := c.objects[key].(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

func (c *cluster) observed() Observed {
	seen := Observed{
		Now: c.now.Add(c.skew), Entropy: [EntropyBytes]byte{0: byte(c.uids), 32: byte(c.uids)}, Pods: list[corev1.Pod](c), ControllerRevisions: list[appsv1.ControllerRevision](c),
		Deployments: list[appsv1.Deployment](c), Services: list[corev1.Service](c),
		ServiceAccounts: list[corev1.ServiceAccount](c), RoleBindings: list[rbacv1.RoleBinding](c),
		NetworkPolicies: list[networkingv1.NetworkPolicy](c),
	}
	seen.Devices = NewInventory(c.nodes, seen.Pods, seen.Now)
	for _, p := range c.pods() {
		if b, ok := PortBlock(p); ok {
			seen.PortBlocks = append(seen.PortBlocks, b)
		}
	}
	return seen
}

// read is what the manager's cache holds: now and then, the state of its last look.
func (c *cluster) read() Observed {
	seen := c.observed()
	before := c.before
	c.before = seen
	c.before.Pods = nil
	for i := range seen.Pods {
		c.before.Pods = append(c.before.Pods, *seen.Pods[i].DeepCopy())
	}
	if c.lags != nil && c.lags() && !before.Now.IsZero() {
		before.Now, before.Entropy = seen.Now, seen.Entropy
		return before
	}
	return seen
}

// reconcile is the shell: look, compute, write.
func (c *cluster) reconcile() Plan {
	seen := c.read()
	plan := Compute(c.pool, seen, c.defaults)
	c.writes, c.dead = 0, false
	var errs []error
	for _, o := range append(slices.Clone(plan.Create), plan.Apply...) {
		if p, ok := o.(*corev1.Pod); ok && c.refuse(p) {
			errs = append(errs, &RefusedError{Kind: "Pod", Name: p.Name, Err: errors.New("exceeded quota")})
			continue
		}
		c.write(o)
	}
	for _, o := range plan.Delete {
		c.delete(o)
	}
	status := Status(c.pool, seen, plan, errors.Join(errs...))
	if c.dead {
		return plan
	}
	for _, e := range plan.Events {
		c.log = append(c.log, e.Reason+": "+e.Message)
	}
	for _, e := range Transitions(c.pool.Status, status) {
		c.log = append(c.log, e.Reason+": "+e.Message)
	}
	if !apiequality.Semantic.DeepEqual(status, c.pool.Status) && c.alive() {
		c.pool.Status = status
	}
	return plan
}

func (c *cluster) write(o Object) {
	key := childKey(o)
	if live, ok := c.objects[key]; ok {
		if o.GetUID() == "" {
			return // exists already, and is ours
		}
		if o.GetUID() != live.GetUID() && c.lags == nil {
			c.t.Errorf("%s is applied to another object than the one seen", key)
		}
	}
	if !c.alive() {
		return
	}
	c.uids++
	o.SetUID(types.UID(fmt.Sprint("uid-", c.uids)))
	o.SetCreationTimestamp(metav1.NewTime(c.now))
	if d, ok := o.(*appsv1.Deployment); ok {
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{Replicas: n, ReadyReplicas: n, UpdatedReplicas: n}
	}
	if p, ok := o.(*corev1.Pod); ok {
		p.Status.Phase = corev1.PodPending
	}
	c.objects[key] = o
}

func (c *cluster) delete(o Object) {
	key := childKey(o)
	live, ok := c.objects[key]
	if !ok || live.GetUID() != o.GetUID() {
		return
	}
	if !c.alive() {
		return
	}
	p, ok := live.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed {
		delete(c.objects, key)
		return
	}
	c.terminate(p)
}

// alive counts a write, and says whether the manager lives to do it.
func (c *cluster) alive() bool {
	c.dead = c.dead || c.dies(c.writes)
	if !c.dead {
		c.writes++
	}
	return !c.dead
}

func (c *cluster) terminate(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		p.DeletionGracePeriodSeconds = new(*p.Spec.TerminationGracePeriodSeconds)
		p.DeletionTimestamp = new(metav1.NewTime(c.now.Add(time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second)))
		c.age[p.UID] = 0
	}
}

func gpusOf(p *corev1.Pod) int {
	q := p.Spec.Containers[0].Resources.Limits[v1alpha1.DefaultGPUResource]
	return int(q.Value())
}

// free is the number of devices that no pod on the node holds.
func (c *cluster) free() int {
	free := c.gpus
	for _, p := range c.pods() {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed {
			free -= gpusOf(p)
		}
	}
	return free
}

// turn is one second of scheduler and kubelets.
func (c *cluster) turn() {
	pods := c.pods()
	if c.order != nil {
		c.order.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	}
	for _, p := range pods {
		c.age[p.UID]++
		switch {
		case p.DeletionTimestamp != nil:
			if c.age[p.UID] >= c.drain && !c.stuck[p.Name] {
				delete(c.objects, childKey(p))
			}
		case p.Spec.NodeName == "":
			c.schedule(p)
		case p.Status.Phase == corev1.PodFailed:
		case !prepared(p) && c.rejects != nil && c.rejects(p):
			c.reject(p)
		case !prepared(p):
			c.prepare(p)
		case c.broken[p.Spec.Containers[0].Image]:
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Image: p.Spec.Containers[0].Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
			}}
		case c.age[p.UID] >= c.start:
			p.Status.Phase = corev1.PodRunning
			c.condition(p, corev1.PodReady, corev1.ConditionTrue, "")
		}
	}
	c.now = c.now.Add(time.Second)
}

func (c *cluster) schedule(p *corev1.Pod) {
	if len(p.Status.Conditions) > 0 && c.age[p.UID]%c.lag != 0 {
		return
	}
	if c.free() < gpusOf(p) || c.holdAvoiding && p.Annotations[v1alpha1.AnnotationAvoids] != "" {
		c.condition(p, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable)
		return
	}
	c.condition(p, corev1.PodScheduled, corev1.ConditionTrue, "")
	p.Spec.NodeName = "node-1"
	if c.rejects == nil {
		c.prepare(p)
	}
}

// prepare mounts the volumes of a pod that has a node.
func (c *cluster) prepare(p *corev1.Pod) {
	if c.objects["Secret "+keyName(c.pool.Name)] != nil {
		c.condition(p, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "")
	}
	c.age[p.UID] = 0
}

func (c *cluster) condition(p *corev1.Pod, kind corev1.PodConditionType, is corev1.ConditionStatus, reason string) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == kind })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: is, Reason: reason, Message: "insufficient devices", LastTransitionTime: metav1.NewTime(c.now)})
}

// fail ends a pod as its engine would.
func (c *cluster) fail(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	c.condition(p, corev1.PodReady, corev1.ConditionFalse, "PodFailed")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "engine", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}},
	}}
}

// change edits the spec as a user does.
func (c *cluster) change(edit func(*v1alpha1.PDPoolSpec)) {
	edit(&c.pool.Spec)
	c.pool.Generation++
}

// run steps until the plan is converged and nothing moves, at most so many seconds.
func (c *cluster) run(seconds int) Plan {
	c.t.Helper()
	var plan Plan
	var seen string
	var due time.Time
	for i := range seconds {
		// A look comes by a watch, by the manager's own writes, or when it is due.
		if now := c.sign(); i == 0 || now != seen || c.writes > 0 || c.dead || !due.IsZero() && !c.now.Before(due) {
			seen, due = now, time.Time{}
			if plan = c.reconcile(); plan.RequeueAfter > 0 {
				due = c.now.Add(plan.RequeueAfter)
			}
			c.invariants()
			c.check(c)
			if plan.Outcome == Converged && c.writes == 0 && !c.moving() {
				return plan
			}
		}
		c.turn()
	}
	c.t.Fatalf("not converged after %d s: %s %s: %s\n%s", seconds, plan.Outcome, plan.Reason, plan.Message, strings.Join(c.log, "\n"))
	return plan
}

// steps runs a number of seconds, converged or not.
func (c *cluster) steps(seconds int) Plan {
	c.t.Helper()
	var plan Plan
	for range seconds {
		plan = c.reconcile()
		c.invariants()
		c.check(c)
		c.turn()
	}
	return plan
}

// sign tells states of the world apart for which a watch would call the manager.
func (c *cluster) sign() string {
	var b strings.Builder
	fmt.Fprint(&b, c.pool.Generation, len(c.objects))
	for _, p := range c.pods() {
		fmt.Fprint(&b, p.Name, p.Spec.NodeName, p.DeletionTimestamp != nil, p.Status.Phase, len(p.Status.Conditions), podReady(p), len(p.Status.ContainerStatuses))
		for _, o := range p.Status.Conditions {
			b.WriteString(string(o.Status))
		}
	}
	return b.String()
}

func (c *cluster) moving() bool {
	return slices.ContainsFunc(c.pods(), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !podReady(p) })
}

// invariants hold after every step.
func (c *cluster) invariants() {
	c.t.Helper()
	living := map[string]string{}
	perReplica := map[string]int{}
	for _, s := range []*roleState{{role: "prefill"}, {role: "decode"}} {
		for _, g := range groupsOf(list[corev1.Pod](c), s.role) {
			if !g.alive() {
				continue
			}
			key := fmt.Sprint(g.role, g.revision, g.replica)
			if other, ok := living[key]; ok {
				c.t.Errorf("two living groups of %s %d in revision %s: attempts %s and %d", g.role, g.replica, g.revision, other, g.attempt)
			}
			living[key] = fmt.Sprint(g.attempt)
			perReplica[fmt.Sprint(g.role, g.replica)]++
		}
	}
	for replica, n := range perReplica {
		if n > 3 {
			c.t.Errorf("%d living groups of %s", n, replica)
		}
	}
	if n := len(c.pods()); n > 60 {
		c.t.Fatalf("%d pods pile up", n)
	}
	for _, p := range c.pods() {
		if len(p.Name) > 63 {
			c.t.Errorf("pod name %q has %d characters", p.Name, len(p.Name))
		}
	}
}

func (c *cluster) isTrue(kind string) bool {
	return slices.ContainsFunc(c.pool.Status.Conditions, func(o metav1.Condition) bool { return o.Type == kind && o.Status == metav1.ConditionTrue })
}

func (c *cluster) reason(kind string) string {
	for _, o := range c.pool.Status.Conditions {
		if o.Type == kind {
			return o.Reason
		}
	}
	return ""
}

// names are the pods that are not being deleted.
func (c *cluster) names() []string {
	var out []string
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil {
			out = append(out, p.Name)
		}
	}
	return out
}

// attempts are the attempts of living pods by role and replica.
func (c *cluster) attempts() map[string]string {
	out := map[string]string{}
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil {
			out[p.Labels[v1alpha1.LabelRole]+" "+p.Labels[v1alpha1.LabelReplica]] = p.Labels[v1alpha1.LabelAttempt]
		}
	}
	return out
}

func (c *cluster) pick(r *rand.Rand) *corev1.Pod {
	pods := slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || p.Spec.NodeName == "" })
	if len(pods) == 0 {
		return nil
	}
	return pods[r.Intn(len(pods))]
}
