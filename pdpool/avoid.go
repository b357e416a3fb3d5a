package pdpool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// A node that turns a replica's pods away, since a device of it is broken while the
// scheduler still counts it, gets the next attempts too if nothing keeps them off.
const (
	// rejectionsToAvoid is how often a node may do so.
	rejectionsToAvoid = 2
	// avoidFor is how long it is avoided after the last time.
	avoidFor = 10 * time.Minute
	// maxRejections bounds how many nodes the status remembers of a replica.
	maxRejections = 8
)

// reject notes that a node turned a pod of a replica away.
func reject(e *v1alpha1.InstanceStatus, node string, now time.Time) {
	e.Rejections = slices.DeleteFunc(e.Rejections, func(r v1alpha1.NodeRejections) bool { return left(r, now) <= 0 })
	i := slices.IndexFunc(e.Rejections, func(r v1alpha1.NodeRejections) bool { return r.Node == node })
	if i < 0 {
		if len(e.Rejections) == maxRejections {
			e.Rejections = slices.Delete(e.Rejections, 0, 1)
		}
		i = len(e.Rejections)
		e.Rejections = append(e.Rejections, v1alpha1.NodeRejections{Node: node})
	}
	r := &e.Rejections[i]
	r.Count, r.LastTime = new(int32(value(r.Count)+1)), stamp(now)
}

// left is how long what a node did counts still.
func left(r v1alpha1.NodeRejections, now time.Time) time.Duration {
	if r.LastTime == nil {
		return 0
	}
	return r.LastTime.Add(avoidFor).Sub(now)
}

// avoided are the nodes that the next attempt at a replica keeps off, and how long
// the first of them is still avoided.
func (b *book) avoided(revision string, replica int, now time.Time) (nodes []string, first time.Duration) {
	e := b.find(revision, replica)
	if e == nil {
		return nil, 0
	}
	for _, r := range e.Rejections {
		if d := left(r, now); d > 0 && value(r.Count) >= rejectionsToAvoid {
			if nodes = append(nodes, r.Node); first == 0 || d < first {
				first = d
			}
		}
	}
	slices.Sort(nodes)
	return nodes, first
}

// avoid keeps a pod off nodes. Terms of the user stand side by side, so that each
// gets the condition.
func avoid(pod *corev1.Pod, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	pod.Annotations[v1alpha1.AnnotationAvoids] = strings.Join(nodes, ",")
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		t := &(*required).NodeSelectorTerms[i]
		for _, n := range nodes {
			t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{n},
			})
		}
	}
}

// avoids are the nodes that a group's pods keep off.
func (g *group) avoids() []string {
	for _, p := range g.pods {
		if list := p.Annotations[v1alpha1.AnnotationAvoids]; list != "" {
			return strings.Split(list, ",")
		}
	}
	return nil
}

// relent gives a group up that finds no node while it keeps off one that may be
// tried again.
func (p *planner) relent(s *roleState, g *group) {
	nodes := g.avoids()
	if g.unschedulable == "" || len(nodes) == 0 {
		return
	}
	still, first := s.book.avoided(g.revision, g.replica, p.seen.Now)
	for _, n := range nodes {
		if !slices.Contains(still, n) {
			s.book.ends(g)
			p.event(corev1.EventTypeNormal, v1alpha1.ReasonRecovering, fmt.Sprintf("%s is made anew: it finds no other node, and node %s may be tried again", g, n))
			p.remove(g)
			return
		}
	}
	p.again(first)
	g.unschedulable += fmt.Sprintf(" (node %s, which rejected it, is avoided until %s)", strings.Join(nodes, ", "), clock(p.seen.Now.Add(first)))
}
