package pdpool

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	merged, err := strategicpatch.StrategicMergePatch(encode(rendered), patch, corev1.PodTemplateSpec{})
	if err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("merge the template: %w", err)
	}
	var out corev1.PodTemplateSpec
	if err := json.Unmarshal(merged, &out); err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("read the merged template: %w", err)
	}
	return out, nil
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
