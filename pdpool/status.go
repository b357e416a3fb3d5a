package pdpool

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Status is the status to write after plan was carried out; applyErr is what that
// ended with (a *ConflictError and a *RefusedError are found in it by errors.As).
// The shell writes it only where it differs semantically from the pool's. That of
// a pool that is being deleted stays as it is.
func Status(pool *v1alpha1.PDPool, seen Observed, plan Plan, applyErr error) v1alpha1.PDPoolStatus {
	if plan.found == nil {
		return *pool.Status.DeepCopy()
	}
	p := plan.found
	p.keepRefusals(plan.Create, applyErr)
	exist, isReady := p.routerReady()
	status := v1alpha1.PDPoolStatus{
		ObservedGeneration: pool.Generation,
		Layout:             layoutText(p.prefill.side.Layout) + " -> " + layoutText(p.decode.side.Layout),
		Pairing:            p.resolved.pairing,
		Transfer: v1alpha1.TransferStatus{
			Mode:        v1alpha1.TransferMode(p.resolved.Mode),
			Mover:       v1alpha1.Mover(p.resolved.Mover),
			MoverReason: p.resolved.MoverReason,
			Backend:     v1alpha1.Backend(p.resolved.Backend),
		},
		Prefill: p.roleStatus(p.prefill),
		Decode:  p.roleStatus(p.decode),
		Rollout: p.rollout,
		GPUs:    p.gpus.status,
	}
	if p.resolved.Router.Builtin {
		status.URL = fmt.Sprintf("http://%s.%s.svc", routerName(pool.Name), pool.Namespace)
		status.Router = v1alpha1.RouterStatus{Replicas: new(int32(exist)), ReadyReplicas: new(int32(isReady))}
	}
	outcome, reason, message := withError(plan, applyErr)
	c := conditions{old: pool.Status.Conditions, generation: pool.Generation, now: seen.Now}
	available := p.available(&c)
	if !available && outcome == Converged {
		// All is as the spec wants it, and it does not serve: the spec wants no replica.
		reason, message = c.list[0].Reason, c.list[0].Message
	}
	p.compatible(&c)
	c.set(v1alpha1.ConditionGPUsAvailable, p.gpus.fit, p.gpus.reason(), p.gpus.message)
	p.rolledOut(&c)
	c.set(v1alpha1.ConditionReady, available && outcome == Converged, reason, message)
	switch outcome {
	case Converged:
	case Blocked:
		c.set(v1alpha1.ConditionStalled, true, reason, message)
	case Progressing, Waiting:
		c.set(v1alpha1.ConditionReconciling, true, reason, message)
	}
	status.Conditions = c.list
	return status
}

// withError is the outcome of a plan with what went wrong while it was carried out.
func withError(plan Plan, err error) (Outcome, string, string) {
	var conflict *ConflictError
	var refused *RefusedError
	var leaving *LeavingError
	switch {
	case err == nil:
		return plan.Outcome, plan.Reason, plan.Message
	case errors.As(err, &conflict):
		return Blocked, v1alpha1.ReasonNameConflict, conflict.Error()
	case errors.As(err, &refused):
		return Waiting, v1alpha1.ReasonRefused, refused.Error()
	case errors.As(err, &leaving):
		return Waiting, v1alpha1.ReasonRemoving, leaving.Error()
	}
	return Progressing, v1alpha1.ReasonApplyFailed, err.Error()
}

// conditions builds the list anew; what did not change keeps its time.
type conditions struct {
	old        []metav1.Condition
	list       []metav1.Condition
	generation int64
	now        time.Time
}

// What the API takes of a condition's message and of an event's note, in bytes.
const (
	maxConditionMessage = 32768
	maxNote             = 1024
)

func (c *conditions) set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	n := metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: c.generation,
		LastTransitionTime: metav1.NewTime(c.now.Truncate(time.Second)),
		Reason:             reason, Message: clip(message, maxConditionMessage),
	}
	if o := meta.FindStatusCondition(c.old, kind); o != nil && o.Status == status {
		n.LastTransitionTime = o.LastTransitionTime
	}
	c.list = append(c.list, n)
}

// available tells whether a request that is sent now is served.
func (p *planner) available(c *conditions) bool {
	_, routers := p.routerReady()
	switch {
	case kvlayout.Refused(p.problems) && !p.pairReady():
		c.set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonIncompatible, "the spec breaks a rule: no prefill and decode instance may pair")
	case !p.pairReady():
		c.set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNoPair, "no prefill and decode instance that pair are ready")
	case p.resolved.Router.Builtin && routers == 0:
		c.set(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonNoRouter, "no router pod is ready")
	default:
		c.set(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonServing, "a prefill and a decode instance that pair are ready")
		return true
	}
	return false
}

// pairReady says whether a prefill and a decode instance are ready that may pair.
func (p *planner) pairReady() bool {
	for i := range p.prefill.all {
		for j := range p.decode.all {
			a, b := &p.prefill.all[i], &p.decode.all[j]
			if p.prefill.countReady(a.hash) > 0 && p.decode.countReady(b.hash) > 0 && mayPair(a, b) {
				return true
			}
		}
	}
	return false
}

func (p *planner) compatible(c *conditions) {
	if !kvlayout.Refused(p.problems) {
		c.set(v1alpha1.ConditionCompatible, true, v1alpha1.ReasonRulesHold, "the spec breaks no rule")
		return
	}
	var refusals []string
	for _, problem := range p.problems {
		if problem.Severity == kvlayout.Refuse {
			refusals = append(refusals, problem.String())
		}
	}
	c.set(v1alpha1.ConditionCompatible, false, camel(p.problems[0].Rule), strings.Join(refusals, "\n"))
}

// rolledOut tells whether every replica has come up in its revision.
func (p *planner) rolledOut(c *conditions) {
	for _, s := range p.roles() {
		for i := range s.replicas() {
			if len(s.older(i)) > 0 || s.lost(i) != nil || !s.book.served(s.hash, i) {
				c.set(v1alpha1.ConditionRolloutComplete, false, v1alpha1.ReasonRollingOut,
					fmt.Sprintf("%s %d is not of revision %s yet", s.role, i, s.hash))
				return
			}
		}
	}
	c.set(v1alpha1.ConditionRolloutComplete, true, v1alpha1.ReasonUpToDate, "every instance is of the revision that the spec asks for")
}

func (p *planner) roleStatus(s *roleState) v1alpha1.RoleStatus {
	all, isReady, updated := 0, 0, 0
	for _, g := range s.groups {
		if !g.alive() {
			continue
		}
		all++
		if g.state == ready {
			isReady++
			if g.revision == s.hash {
				updated++
			}
		}
	}
	out := v1alpha1.RoleStatus{
		Summary:         fmt.Sprintf("%d/%d", isReady, s.replicas()),
		Replicas:        new(int32(all)),
		ReadyReplicas:   new(int32(isReady)),
		UpdatedReplicas: new(int32(updated)),
		Revision:        s.hash,
		PodsPerReplica:  int32(s.side.Pods),
		GPUsPerPod:      int32(s.side.GPUs),
		BlockSize:       int32(s.side.BlockSize),
		Instances:       s.book.entries,
	}
	if p.resolved.HasGeometry {
		out.BytesPerToken = kvlayout.TokenBytes(p.resolved.Geometry, s.side.KVType, s.side.Layout) / int64(max(s.side.Layout.DCP, 1))
	}
	return out
}

// layoutText is a layout in short, such as "TP4 DCP4 I64"; degrees of 1 are left out.
func layoutText(l kvlayout.Layout) string {
	out := fmt.Sprintf("TP%d", l.TP)
	if l.DP > 1 {
		out += fmt.Sprintf(" DP%d", l.DP)
	}
	if l.DCP > 1 {
		out += fmt.Sprintf(" DCP%d I%d", l.DCP, l.Interleave)
	}
	return out
}

// camel spells a rule's id as a reason: dcp-mix is DcpMix.
func camel(rule string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(rule, "-") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// Transitions are the events of the way from one status to the next: one for each
// condition that changed its status or reason. The shell sends them, after
// Plan.Events, once the new status is written.
func Transitions(old, status v1alpha1.PDPoolStatus) []Event {
	var out []Event
	for _, c := range status.Conditions {
		o := meta.FindStatusCondition(old.Conditions, c.Type)
		if o != nil && o.Status == c.Status && o.Reason == c.Reason {
			continue
		}
		switch c.Type {
		case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled: // Ready tells the same
			continue
		}
		kind := corev1.EventTypeNormal
		lost := c.Status == metav1.ConditionFalse && o != nil && o.Status == metav1.ConditionTrue
		broken := c.Type == v1alpha1.ConditionCompatible && c.Status == metav1.ConditionFalse ||
			c.Type == v1alpha1.ConditionReady && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)
		if lost && c.Type == v1alpha1.ConditionAvailable || broken || warns(c.Reason) {
			kind = corev1.EventTypeWarning
		}
		out = append(out, Event{Type: kind, Reason: c.Reason, Message: clip(c.Message, maxNote)})
	}
	return out
}

// warns says whether a reason is bad news by itself.
func warns(reason string) bool {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonIncompatible, v1alpha1.ReasonNameConflict, v1alpha1.ReasonRefused,
		v1alpha1.ReasonBackOff, v1alpha1.ReasonNotReady, v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerWaiting, v1alpha1.ReasonUnschedulable, v1alpha1.ReasonApplyFailed, v1alpha1.ReasonDevicesLack:
		return true
	}
	return false
}
