package pdpool

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// ownedMount says whether a path is where the engine and its agent meet.
func ownedMount(at string) bool {
	at = path.Clean(at)
	return at == pathDoor || at == pathShared || at == pathKey
}

func ownedLabel(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == v1alpha1.GroupVersion.Group || name == v1alpha1.LabelManagedBy || name == v1alpha1.LabelComponent
}

// ownedParts are the parts of a pod that the operator keeps to itself, as JSON by path.
func ownedParts(t corev1.PodTemplateSpec) map[string]string {
	out := map[string]string{}
	put := func(at string, v any) {
		if v != nil {
			out[at] = string(encode(v))
		}
	}
	tree, _ := decode(encode(t)).(map[string]any)
	spec, _ := tree["spec"].(map[string]any)
	for key := range podFields {
		put("spec."+key, spec[key])
	}
	for name, value := range t.Labels {
		if ownedLabel(name) {
			put("metadata.labels "+name, value)
		}
	}
	ours := func(list, name string, fields map[string]string) {
		c := named(spec[list], name)
		for key := range fields {
			put("spec."+list+" "+name+"."+key, c[key])
		}
		for _, m := range elements(c["volumeMounts"]) {
			if at, ok := m["mountPath"].(string); ok && ownedMount(at) {
				put("spec."+list+" "+name+".volumeMounts "+at, m)
			}
		}
	}
	ours("initContainers", v1alpha1.ContainerAgent, agentFields)
	ours("containers", v1alpha1.ContainerEngine, engineFields)
	for _, name := range []string{volumeDoor, volumeShared, volumeKey} {
		if v := named(spec["volumes"], name); v != nil {
			put("spec.volumes "+name, v)
		}
	}
	return out
}

// compare refuses what the merge changes of parts that are the operator's. The
// checks before it know each way and its cure; this one holds whatever they miss.
func (c *templateCheck) compare(before, after corev1.PodTemplateSpec) {
	was, is := ownedParts(before), ownedParts(after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if was[at] != is[at] {
			c.owned("", "the template changes "+at, "remove what changes it")
		}
	}
}

// elements are the objects of a list.
func elements(list any) []map[string]any {
	l, _ := list.([]any)
	out := make([]map[string]any, 0, len(l))
	for _, e := range l {
		m, _ := e.(map[string]any)
		out = append(out, m)
	}
	return out
}

// named is the element of a list that has a name, or nil.
func named(list any, name string) map[string]any {
	for _, e := range elements(list) {
		if e["name"] == name {
			return e
		}
	}
	return nil
}

// mounts refuses mounts where the engine and its agent meet.
func (c *templateCheck) mounts(at string, mounts []corev1.VolumeMount) {
	for i, m := range mounts {
		if ownedMount(m.MountPath) {
			c.owned(fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i), "the template mounts "+m.MountPath, "choose another path: engine and agent meet there")
		}
	}
}

// ports refuses a second port of the name that probes and people know the engine's by.
func (c *templateCheck) ports(at string, ports []corev1.ContainerPort) {
	for i, p := range ports {
		if p.Name == enginePort {
			c.owned(fmt.Sprintf("%s.ports[%d].name", at, i), "the template names a port of the engine "+enginePort, "choose another name")
		}
	}
}

// shm leaves the user the size of the engine's shared memory, and not its kind.
func (c *templateCheck) shm(at string, v map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if key != "name" && key != "emptyDir" {
			c.owned(at+"."+key, "the template makes another volume of "+volumeShm, "set only its emptyDir.sizeLimit, or choose another name")
		}
	}
	dir, _ := v["emptyDir"].(map[string]any)
	if medium, set := dir["medium"]; set && medium != string(corev1.StorageMediumMemory) {
		c.owned(at+".emptyDir.medium", fmt.Sprintf("the template sets the medium of %s to %q", volumeShm, medium), "remove it: the collectives of the engine take it for memory")
	}
}
