package pdpool

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// mergeTemplate merges a user's partial template over a rendered one. The engine's
// args and env are not taken from it: they are among the rendered ones already.
func mergeTemplate(rendered corev1.PodTemplateSpec, user []byte) (corev1.PodTemplateSpec, error) {
	if len(user) == 0 {
		return rendered, nil
	}
	patch, err := withoutEngineArgs(user)
	if err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("read the template: %w", err)
	}
	// The merge compares names without a look at their types, and panics at a list.
	if err := json.Unmarshal(patch, new(corev1.PodTemplateSpec)); err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("read the template: %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(encode(rendered), patch, corev1.PodTemplateSpec{})
	if err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("merge the template: %w", err)
	}
	var out corev1.PodTemplateSpec
	if err := json.Unmarshal(merged, &out); err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("read the merged template: %w", err)
	}
	keepTolerations(&out.Spec, rendered.Spec.Tolerations)
	keepAffinity(&out.Spec, rendered.Spec.Affinity)
	return out, nil
}

// keepTolerations appends the rendered ones, as a merge replaces the list. A user's
// for the same taint stands in their place.
func keepTolerations(spec *corev1.PodSpec, rendered []corev1.Toleration) {
	for _, ours := range rendered {
		same := func(t corev1.Toleration) bool {
			return t.Key == ours.Key && (t.Effect == "" || t.Effect == ours.Effect)
		}
		if !slices.ContainsFunc(spec.Tolerations, same) {
			spec.Tolerations = append(spec.Tolerations, ours)
		}
	}
}

// keepAffinity appends the rendered terms of pod affinity, as a merge replaces the
// list. All terms have to hold, so that a user's only narrow them.
func keepAffinity(spec *corev1.PodSpec, rendered *corev1.Affinity) {
	if rendered == nil || rendered.PodAffinity == nil {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.PodAffinity == nil {
		spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	terms := &spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for _, ours := range rendered.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		same := func(t corev1.PodAffinityTerm) bool { return equality.Semantic.DeepEqual(t, ours) }
		if !slices.ContainsFunc(*terms, same) {
			*terms = append(*terms, ours)
		}
	}
}

func withoutEngineArgs(user []byte) ([]byte, error) {
	var tree map[string]any
	if err := json.Unmarshal(user, &tree); err != nil {
		return nil, err
	}
	spec, _ := tree["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok && c["name"] == v1alpha1.ContainerEngine {
			delete(c, "args")
			delete(c, "env")
		}
	}
	return json.Marshal(tree)
}

// templateEngine is what a template says of the engine's container.
type templateEngine struct {
	path string // of the container, in the template
	args []string
	env  []corev1.EnvVar
}

func engineIn(raw []byte) templateEngine {
	if len(raw) == 0 {
		return templateEngine{}
	}
	var t corev1.PodTemplateSpec
	if json.Unmarshal(raw, &t) != nil {
		return templateEngine{}
	}
	for i := range t.Spec.Containers {
		if k := &t.Spec.Containers[i]; k.Name == v1alpha1.ContainerEngine {
			return templateEngine{path: fmt.Sprintf("spec.containers[%d]", i), args: k.Args, env: k.Env}
		}
	}
	return templateEngine{}
}
