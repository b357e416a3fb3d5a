package pdpool

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// demand is what the replicas of a role ask of nodes.
type demand struct {
	role     kvlayout.Role
	replicas int
	pods     int // of a replica
	device   corev1.ResourceName
	gpu      v1alpha1.GPUSpec
	// need is the extended resources of one pod, its devices among them.
	need map[corev1.ResourceName]int64
	// place is a pod as far as its place depends on it.
	place corev1.PodSpec
}

// demand renders what matters for the place of a role's pods. A template that can't
// be merged counts as none: another rule tells of it.
func (r *Resolved) demand(spec *v1alpha1.PDPoolSpec, role kvlayout.Role) demand {
	s := r.Side(role)
	bare := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Tolerations:    tolerations(),
		InitContainers: []corev1.Container{{Name: v1alpha1.ContainerAgent, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Name: v1alpha1.ContainerEngine, Resources: withGPUs(s.Resources, r.GPUResource, s.GPUs)}},
	}}
	t, err := mergeTemplate(bare, s.Template)
	if err != nil {
		t = bare
	}
	onDevices(&t.Spec, spec.GPU)
	return demand{
		role: role, replicas: s.Replicas, pods: s.Pods, device: corev1.ResourceName(r.GPUResource), gpu: spec.GPU,
		need: extended(&t.Spec), place: t.Spec,
	}
}

// String is what one replica takes, such as "2 pods with 8 amd.com/gpu each".
func (d *demand) String() string {
	var parts []string
	for name, count := range d.need {
		if name != d.device {
			parts = append(parts, fmt.Sprintf("%d %s", count, name))
		}
	}
	slices.Sort(parts)
	each := strings.Join(append([]string{fmt.Sprintf("%d %s", d.need[d.device], d.device)}, parts...), " and ")
	if d.pods == 1 {
		return each
	}
	return fmt.Sprintf("%d pods with %s each", d.pods, each)
}

// onDevices keeps pods on nodes whose labels tell of the devices that the spec asks
// for. Terms of the user stand side by side, so that each is combined with each
// spelling of the labels.
func onDevices(spec *corev1.PodSpec, gpu v1alpha1.GPUSpec) {
	ours := deviceTerms(gpu)
	if len(ours) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: ours}
		return
	}
	var all []corev1.NodeSelectorTerm
	for _, t := range (*required).NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue // selects nothing, and must not begin to
		}
		for _, o := range ours {
			all = append(all, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(t.MatchExpressions, o.MatchExpressions), MatchFields: t.MatchFields,
			})
		}
	}
	if len(all) > 0 {
		(*required).NodeSelectorTerms = all
	}
}

// deviceTerms are a term for each way to spell the labels that are asked for.
func deviceTerms(gpu v1alpha1.GPUSpec) []corev1.NodeSelectorTerm {
	terms := []corev1.NodeSelectorTerm{{}}
	ask := func(spellings, values []string) {
		var out []corev1.NodeSelectorTerm
		for _, t := range terms {
			for _, key := range spellings {
				out = append(out, corev1.NodeSelectorTerm{MatchExpressions: append(slices.Clone(t.MatchExpressions),
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values})})
			}
		}
		terms = out
	}
	if len(gpu.DeviceIDs) > 0 {
		ask(deviceIDLabels, slices.Sorted(slices.Values(gpu.DeviceIDs)))
	}
	if gpu.Partition != "" {
		ask(partitionLabels, []string{gpu.Partition})
	}
	if len(terms[0].MatchExpressions) == 0 {
		return nil
	}
	return terms
}
