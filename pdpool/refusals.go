package pdpool

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// attemptOf tells which attempt a pod belongs to.
type attemptOf struct{ role, revision, replica, attempt string }

func attemptOfPod(p *corev1.Pod) attemptOf {
	return attemptOf{
		p.Labels[v1alpha1.LabelRole], p.Labels[v1alpha1.LabelRevision],
		p.Labels[v1alpha1.LabelReplica], p.Labels[v1alpha1.LabelAttempt],
	}
}

// keepRefusals remembers which attempts lack pods since the server refused them. An
// attempt that has no other pod needs no memory: it is started again as a whole.
func (p *planner) keepRefusals(create []Object, err error) {
	refused := refusedPods(err)
	if len(refused) == 0 {
		return
	}
	begun, lacking := map[attemptOf]bool{}, map[attemptOf]error{}
	for _, o := range create {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		if err := refused[pod.Name]; err != nil {
			lacking[attemptOfPod(pod)] = err
		} else {
			begun[attemptOfPod(pod)] = true
		}
	}
	for _, s := range p.roles() {
		for _, g := range s.groups {
			if g.alive() {
				begun[attemptOfPod(g.pods[0])] = true
			}
		}
		for a, err := range lacking {
			if replica, wrong := strconv.Atoi(a.replica); a.role == string(s.role) && begun[a] && wrong == nil {
				s.book.entry(a.revision, replica).Refused = clip(err.Error(), maxReason)
			}
		}
		s.book.sort()
	}
}

// refusedPods finds the refusals of pods in what carrying out a plan ended with.
func refusedPods(err error) map[string]error {
	out := map[string]error{}
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case nil:
	case *RefusedError:
		if e.Kind == "Pod" {
			out[e.Name] = e
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			maps.Copy(out, refusedPods(inner))
		}
	case interface{ Unwrap() error }:
		return refusedPods(e.Unwrap())
	}
	return out
}
