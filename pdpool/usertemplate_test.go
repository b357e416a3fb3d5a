package pdpool

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// merged is the spec of the pods of decode after a merge.
func merged(t *testing.T, template string, changes ...func(*v1alpha1.PDPool)) corev1.PodSpec {
	t.Helper()
	pool := simulatorPool(t, append(changes, decodeTemplate(template))...)
	r := Resolve(pool, testDefaults)
	out, err := r.podTemplate(pool, "decode", testDefaults, newMarks())
	if err != nil {
		t.Fatal(err)
	}
	return out.Spec
}

func TestTolerationsOfLostNodesStay(t *testing.T) {
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	for template, want := range map[string][]string{
		`{}`: {notReady, unreachable},
		`{"spec":{"tolerations":[{"key":"gpu","operator":"Exists"}]}}`:                                                           {"gpu", notReady, unreachable},
		`{"spec":{"tolerations":[{"operator":"Exists"}]}}`:                                                                       {"", notReady, unreachable},
		`{"spec":{"tolerations":[{"key":"` + notReady + `","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`: {notReady, unreachable},
		`{"spec":{"tolerations":[{"key":"` + unreachable + `","operator":"Exists","effect":"NoSchedule"}]}}`:                     {unreachable, notReady, unreachable},
	} {
		var got []string
		for _, o := range merged(t, template).Tolerations {
			got = append(got, o.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: tolerations %v, want %v", template, got, want)
		}
	}
}

func TestOneHostStaysOneHost(t *testing.T) {
	shared := spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory })
	got := merged(t, `{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
		{"topologyKey":"zone","labelSelector":{"matchLabels":{"a":"b"}}}]}}}}`, shared).Affinity
	terms := got.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	alone := merged(t, `{}`, shared).Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 2 || terms[0].TopologyKey != "zone" || len(alone) != 1 || !equality.Semantic.DeepEqual(terms[1], alone[0]) {
		t.Errorf("terms %+v, without a template %+v", terms, alone)
	}
}

// TestOwnedPartsAreCompared holds the last line of defence: parts of a pod that are
// changed by any way are found.
func TestOwnedPartsAreCompared(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodTemplateSpec){
		"spec.hostNetwork":                                            func(p *corev1.PodTemplateSpec) { p.Spec.HostNetwork = true },
		"spec.containers engine.command":                              func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Command = nil },
		"spec.initContainers transfer-agent.readinessProbe":           func(p *corev1.PodTemplateSpec) { p.Spec.InitContainers[0].ReadinessProbe = nil },
		"spec.initContainers transfer-agent.volumeMounts " + pathDoor: func(p *corev1.PodTemplateSpec) { p.Spec.InitContainers[0].VolumeMounts[1].Name = "x" },
		"spec.volumes " + volumeDoor:                                  func(p *corev1.PodTemplateSpec) { p.Spec.Volumes[1].HostPath = &corev1.HostPathVolumeSource{} },
		"metadata.labels " + v1alpha1.LabelManagedBy:                  func(p *corev1.PodTemplateSpec) { p.Labels = nil },
	} {
		c := templateCheck{root: "decode.template"}
		after := skeleton()
		change(&after)
		c.compare(skeleton(), after)
		if len(c.problems) != 1 || c.problems[0].Message != "the template changes "+name {
			t.Errorf("%s: problems %+v", name, c.problems)
		}
	}
}
