package pdpool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// note is something that keeps a pool from being converged.
type note struct {
	outcome Outcome
	reason  string
	message string
}

// weight orders reasons: what a person has to look at first comes first.
var weight = []string{
	v1alpha1.ReasonInvalidSpec,
	v1alpha1.ReasonIncompatible,
	v1alpha1.ReasonImageUnavailable,
	v1alpha1.ReasonContainerWaiting,
	v1alpha1.ReasonUnschedulable,
	v1alpha1.ReasonBackOff,
	v1alpha1.ReasonNotReady,
	v1alpha1.ReasonChangingGeneration,
	v1alpha1.ReasonReplacing,
	v1alpha1.ReasonRecovering,
	v1alpha1.ReasonRemoving,
	v1alpha1.ReasonCreating,
	v1alpha1.ReasonApplying,
	v1alpha1.ReasonStarting,
}

func (p *planner) note(o Outcome, reason, message string) {
	p.notes = append(p.notes, note{o, reason, message})
}

// finish sums the notes up.
func (p *planner) finish() Plan {
	p.noteRules()
	p.notePods()
	p.noteRouter()
	p.plan.found = p
	slices.SortStableFunc(p.plan.Create, func(a, b Object) int { return cmp.Compare(turn(a), turn(b)) })
	if p.mode != generation && p.mode != rolling && !p.yields {
		p.rollout = v1alpha1.RolloutStatus{}
	}
	if len(p.notes) == 0 {
		p.plan.Outcome, p.plan.Reason, p.plan.Message = Converged, v1alpha1.ReasonConverged, "all instances are ready"
		return p.plan
	}
	first := slices.MinFunc(p.notes, func(a, b note) int {
		return slices.Index(weight, a.reason) - slices.Index(weight, b.reason)
	})
	p.plan.Outcome, p.plan.Reason, p.plan.Message = first.outcome, first.reason, first.message
	if first.reason == v1alpha1.ReasonIncompatible {
		p.plan.Reason = camel(p.problems[0].Rule)
	}
	if more := p.others(first); more > 0 {
		p.plan.Message += fmt.Sprintf(" (and %d more)", more)
	}
	return p.plan
}

// turn orders creations: records first, then pods by replica over both roles, so
// that the scheduler places a whole pair before it comes to the next one, and GPUs
// that are too few for all serve somebody.
func turn(obj Object) int {
	if _, pod := obj.(*corev1.Pod); !pod {
		return -1
	}
	replica, err := strconv.Atoi(obj.GetLabels()[v1alpha1.LabelReplica])
	if err != nil {
		return 0
	}
	return replica
}

// others counts the notes of the same reason.
func (p *planner) others(first note) int {
	n := 0
	for _, o := range p.notes {
		if o.reason == first.reason && o.message != first.message {
			n++
		}
	}
	return n
}

// noteRules blocks a pool that breaks a rule.
func (p *planner) noteRules() {
	if kvlayout.Refused(p.problems) {
		p.note(Blocked, v1alpha1.ReasonIncompatible, p.problems[0].String())
	}
}

// notePods tells of pods that are not ready.
func (p *planner) notePods() {
	for _, s := range p.roles() {
		for _, g := range s.groups {
			switch {
			case !g.alive() || g.state == ready:
			case g.image != "":
				p.note(Waiting, v1alpha1.ReasonImageUnavailable, g.image)
			case g.stuck != "":
				p.note(Waiting, v1alpha1.ReasonContainerWaiting, g.stuck)
			case g.unschedulable != "":
				p.note(Waiting, v1alpha1.ReasonUnschedulable, g.unschedulable+p.heldBy())
			case g.lapsed != "":
				p.note(Waiting, v1alpha1.ReasonNotReady, fmt.Sprintf("%s is not ready any more: %s", g, g.lapsed))
			default:
				p.note(Progressing, v1alpha1.ReasonStarting, fmt.Sprintf("%s is starting", g))
			}
		}
	}
}

// heldBy says which node a pool is held on by pods that are ending, where its
// backend keeps it on one. They count for the scheduler until they are gone, which
// on a dead node is when somebody removes the node or forces the pods' deletion.
func (p *planner) heldBy() string {
	if !p.resolved.oneHost() {
		return ""
	}
	for _, s := range p.roles() {
		for _, g := range s.groups {
			for _, pod := range g.pods {
				if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
					return fmt.Sprintf(" (backend %s keeps all pods on one node, and pod %s is ending on %s: if that node is lost, delete the node or force the pod's deletion)",
						p.resolved.Backend, pod.Name, pod.Spec.NodeName)
				}
			}
		}
	}
	return ""
}

// noteRouter tells of a router that is not as the spec wants it, pods of an older
// revision among it.
func (p *planner) noteRouter() {
	if !p.resolved.Router.Builtin {
		return
	}
	want := int32(p.resolved.Router.Replicas)
	d := p.routerDeployment()
	if d == nil {
		p.note(Progressing, v1alpha1.ReasonStarting, fmt.Sprintf("0 of %d router pods are ready", want))
		return
	}
	s := &d.Status
	if s.ObservedGeneration >= d.Generation && s.Replicas == want && s.UpdatedReplicas == want && s.ReadyReplicas == want {
		return
	}
	p.note(Progressing, v1alpha1.ReasonStarting, fmt.Sprintf("%d of %d router pods are ready, %d are of the revision wanted%s",
		s.ReadyReplicas, want, s.UpdatedReplicas, trouble(s.Conditions)))
}

// trouble is what a Deployment says of pods that it can't make or that don't come up.
func trouble(conditions []appsv1.DeploymentCondition) string {
	for _, c := range conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return ": " + clip(c.Message, maxReason)
		}
	}
	return ""
}
