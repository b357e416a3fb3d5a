package pdpool

import (
	"fmt"
	"slices"

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
	v1alpha1.ReasonUnschedulable,
	v1alpha1.ReasonBackOff,
	v1alpha1.ReasonChangingGeneration,
	v1alpha1.ReasonReplacing,
	v1alpha1.ReasonRecovering,
	v1alpha1.ReasonRemoving,
	v1alpha1.ReasonCreating,
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
	if p.mode != generation {
		p.rollout = v1alpha1.RolloutStatus{}
	}
	if len(p.notes) == 0 {
		p.plan.Outcome, p.plan.Reason, p.plan.Message = Converged, v1alpha1.ReasonConverged, "all instances are ready"
		if len(p.plan.Apply)+len(p.plan.Delete) > 0 {
			p.plan.Outcome = Progressing
		}
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
			case g.unschedulable != "":
				p.note(Waiting, v1alpha1.ReasonUnschedulable, g.unschedulable)
			default:
				p.note(Progressing, v1alpha1.ReasonStarting, fmt.Sprintf("%s is starting", g))
			}
		}
	}
}

// noteRouter tells of router pods that are not ready.
func (p *planner) noteRouter() {
	if !p.resolved.Router.Builtin {
		return
	}
	if _, n := p.routerReady(); n < p.resolved.Router.Replicas {
		p.note(Progressing, v1alpha1.ReasonStarting, fmt.Sprintf("%d of %d router pods are ready", n, p.resolved.Router.Replicas))
	}
}
