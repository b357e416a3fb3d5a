package pdpool

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selects says whether a pod's node selector and required affinity admit a node.
func selects(spec *corev1.PodSpec, n *corev1.Node) bool {
	for key, value := range spec.NodeSelector {
		if v, ok := n.Labels[key]; !ok || v != value {
			return false
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return true
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return termSelects(&t, n) })
}

// termSelects says whether all of a term holds; one without requirements selects nothing.
func termSelects(t *corev1.NodeSelectorTerm, n *corev1.Node) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for i := range t.MatchExpressions {
		r := &t.MatchExpressions[i]
		value, ok := n.Labels[r.Key]
		if !holds(r, value, ok) {
			return false
		}
	}
	for i := range t.MatchFields {
		r := &t.MatchFields[i]
		if r.Key != metav1.ObjectNameField || !holds(r, n.Name, true) {
			return false
		}
	}
	return true
}

// holds decides on one requirement, as the scheduler does.
func holds(r *corev1.NodeSelectorRequirement, value string, set bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return set && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !set || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return set
	case corev1.NodeSelectorOpDoesNotExist:
		return !set
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !set || len(r.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		bound, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have > bound
		}
		return have < bound
	}
	return false
}

// nodeTaints begin the taints that Kubernetes itself makes of a node's conditions.
// What counts of them is told by the condition Ready and by spec.unschedulable.
const nodeTaints = "node.kubernetes.io/"

// untolerated is the first taint that keeps a pod off a node.
func untolerated(spec *corev1.PodSpec, n *corev1.Node) (string, bool) {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(t.Key, nodeTaints) {
			continue
		}
		if !slices.ContainsFunc(spec.Tolerations, func(o corev1.Toleration) bool { return tolerates(&o, t) }) {
			return t.ToString(), true
		}
	}
	return "", false
}

func tolerates(o *corev1.Toleration, t *corev1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return o.Key != "" && o.Value == t.Value
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		have, err := strconv.ParseInt(t.Value, 10, 64)
		bound, err2 := strconv.ParseInt(o.Value, 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		if o.Operator == corev1.TolerationOpLt {
			return have < bound
		}
		return have > bound
	}
	return false
}
