package pdpool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// recordVersion is the version of a record's form. A record of another one can't
// be read, and its pods are taken for those of an unknown revision.
const recordVersion = 1

// record is what a ControllerRevision holds of a role's revision: all that pods of
// it are made from, images of the operator included.
type record struct {
	Version int `json:"version"`
	// Marks stand in Template for what differs from pod to pod.
	Marks marks `json:"marks"`
	// Agent lacks Replica, Attempt, Pod, DPStart, Ports and DrainToken.
	Agent    agentconfig.Config     `json:"agent"`
	Template corev1.PodTemplateSpec `json:"template"`
}

// revision is a recorded revision as seen.
type revision struct {
	name   string
	hash   string
	number int64
	record record
}

// newRecord renders the revision that the spec asks for.
func (r *Resolved) newRecord(pool *v1alpha1.PDPool, role kvlayout.Role, d Defaults) (record, error) {
	s := r.Side(role)
	// A template that came past the webhook could make pods that the operator does
	// not know again.
	if bad := checkTemplate(s.Template, role, r.GPUResource); len(bad) > 0 {
		return record{}, errors.New(bad[0].String())
	}
	m := newMarks(string(encode(readable(pool).Spec)), s.Image, d.AgentImage)
	t, err := r.podTemplate(pool, role, d, m)
	if err != nil {
		return record{}, err
	}
	return record{Version: recordVersion, Marks: m, Agent: r.agentConfig(pool, role), Template: t}, nil
}

// controllerRevision is the object that keeps a record.
func controllerRevision(pool *v1alpha1.PDPool, role, hash, pairing string, number int64, data any) *appsv1.ControllerRevision {
	labels := childLabels(pool, role)
	labels[v1alpha1.LabelRevision] = hash
	if pairing != "" {
		labels[v1alpha1.LabelPairing] = pairing
	}
	return &appsv1.ControllerRevision{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevision"},
		ObjectMeta: childMeta(pool, revisionName(pool.Name, role, hash), labels),
		Data:       runtime.RawExtension{Raw: encode(data)},
		Revision:   number,
	}
}

// revisionsOf reads the recorded revisions of a role, oldest first.
func revisionsOf(seen []appsv1.ControllerRevision, role kvlayout.Role) []revision {
	var out []revision
	for i := range seen {
		c := &seen[i]
		if c.Labels[v1alpha1.LabelRole] != string(role) || c.DeletionTimestamp != nil {
			continue
		}
		v := revision{name: c.Name, hash: c.Labels[v1alpha1.LabelRevision], number: c.Revision}
		if json.Unmarshal(c.Data.Raw, &v.record) != nil || v.record.Version != recordVersion {
			continue
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b revision) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
	return out
}

// nextNumber is one above the highest revision of any role.
func nextNumber(seen []appsv1.ControllerRevision) int64 {
	n := int64(0)
	for i := range seen {
		n = max(n, seen[i].Revision)
	}
	return n + 1
}

// pod makes one pod of an attempt at a replica. block is the first port of the
// replica's block.
func (v *revision) pod(pool *v1alpha1.PDPool, replica, attempt, index, block int) (*corev1.Pod, error) {
	c := v.record.Agent
	c.Replica, c.Attempt, c.Pod = replica, attempt, index
	c.DPStart = index * c.Layout.DPLocal
	c.Ports = portsAt(block)
	name := podName(pool.Name, c.Role, v.hash, replica, attempt, index)
	token := drainToken(pool, name)
	if c.KeyDir != "" { // else its agent is older than the token
		c.DrainToken = hexSum(token)
	}
	config, err := c.Encode()
	if err != nil {
		return nil, fmt.Errorf("configure the agent of %s: %w", c.Role, err)
	}
	leader := podName(pool.Name, c.Role, v.hash, replica, attempt, 0)
	filled := v.record.Marks.fill(encode(v.record.Template), values{
		block: block, dpStart: c.DPStart,
		drain:  token,
		leader: fmt.Sprintf("%s.%s.%s.svc", leader, membersName(pool.Name), pool.Namespace),
	})
	var t corev1.PodTemplateSpec
	if err := json.Unmarshal(filled, &t); err != nil {
		return nil, fmt.Errorf("read the template of %s: %w", v.name, err)
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: childMeta(pool, name, t.Labels),
		Spec:       t.Spec,
	}
	pod.Annotations = t.Annotations
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelReplica] = strconv.Itoa(replica)
	pod.Labels[v1alpha1.LabelAttempt] = strconv.Itoa(attempt)
	pod.Labels[v1alpha1.LabelPod] = strconv.Itoa(index)
	pod.Annotations[v1alpha1.AnnotationPods] = strconv.Itoa(c.Pods)
	pod.Annotations[v1alpha1.AnnotationLayout] = c.Instance().Encode()
	pod.Annotations[v1alpha1.AnnotationPorts] = c.Ports.Encode()
	pod.Spec.Hostname = name
	setEnv(&pod.Spec, agentconfig.Env, string(config))
	return pod, nil
}

// setEnv sets a variable of the agent's container.
func setEnv(spec *corev1.PodSpec, name, value string) {
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.Name != v1alpha1.ContainerAgent {
			continue
		}
		for j := range c.Env {
			if c.Env[j].Name == name {
				c.Env[j].Value = value
			}
		}
	}
}

// childMeta is the metadata of a child: the pool is its controller.
func childMeta(pool *v1alpha1.PDPool, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: pool.Namespace, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind))},
	}
}

// childLabels are the labels that every child has.
func childLabels(pool *v1alpha1.PDPool, role string) map[string]string {
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPool: pool.Name}
	if role != "" {
		labels[v1alpha1.LabelRole] = role
	}
	return labels
}
