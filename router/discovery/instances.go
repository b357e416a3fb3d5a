package discovery

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// member is one pod with what its labels and annotations say.
type member struct {
	pod      *corev1.Pod
	of       group
	pods     int // of the replica
	instance agentconfig.Instance
	ports    agentconfig.Ports
}

// group are the pods of one replica and attempt.
type group struct {
	namespace, pool, role, revision, pairing string
	replica, attempt                         int
}

// Instances makes instances of the pods of a pool. One whose pods are not all there,
// not all ready or partly being deleted is listed and not routable, so that no other
// source makes it so. Pods that say too little of themselves to belong to one are
// in problems, by name.
func Instances(pods []*corev1.Pod) (instances []router.Instance, problems map[string]string) {
	problems = map[string]string{}
	groups := map[group][]member{}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // it does not come back, and its address may be another's
		}
		m, err := read(pod)
		if err != nil {
			problems[pod.Name] = err.Error()
			continue
		}
		groups[m.of] = append(groups[m.of], m)
	}
	for _, members := range groups {
		slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.instance.Pod, b.instance.Pod) })
		i, err := join(members)
		if err != nil {
			problems[members[0].pod.Name] = err.Error()
			continue
		}
		instances = append(instances, i)
	}
	slices.SortFunc(instances, func(a, b router.Instance) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Revision, b.Revision))
	})
	return instances, problems
}

func read(pod *corev1.Pod) (member, error) {
	m := member{pod: pod, of: group{
		namespace: pod.Namespace, pool: pod.Labels[v1alpha1.LabelPool], role: pod.Labels[v1alpha1.LabelRole],
		revision: pod.Labels[v1alpha1.LabelRevision], pairing: pod.Labels[v1alpha1.LabelPairing],
	}}
	if m.of.pairing == "" {
		return m, fmt.Errorf("label %s is missing", v1alpha1.LabelPairing)
	}
	for _, n := range []struct {
		to   *int
		key  string
		from map[string]string
	}{
		{&m.of.replica, v1alpha1.LabelReplica, pod.Labels},
		{&m.of.attempt, v1alpha1.LabelAttempt, pod.Labels},
		{&m.pods, v1alpha1.AnnotationPods, pod.Annotations},
	} {
		v, err := strconv.Atoi(n.from[n.key])
		if err != nil || v < 0 {
			return m, fmt.Errorf("%s is %.64q, which is no count", n.key, n.from[n.key])
		}
		*n.to = v
	}
	var err error
	if m.instance, err = agentconfig.ParseInstance(pod.Annotations[v1alpha1.AnnotationLayout]); err != nil {
		return m, err
	}
	if m.ports, err = agentconfig.ParsePorts(pod.Annotations[v1alpha1.AnnotationPorts]); err != nil {
		return m, err
	}
	return m, nil
}

// join makes an instance of the pods of a group, which are sorted by index.
func join(members []member) (router.Instance, error) {
	first := members[0]
	i := router.Instance{
		Namespace: first.of.namespace, Pool: first.of.pool, Role: kvlayout.Role(first.of.role),
		Replica: first.of.replica, Attempt: first.of.attempt, Revision: first.of.revision, Pairing: first.of.pairing,
		Layout: first.instance.Layout, Block: first.instance.Block, KVType: first.instance.KVType, KV: first.instance.KV,
		Engine: first.instance.Engine, Version: first.instance.Version, Mover: first.instance.Mover, Mode: first.instance.Mode, Model: first.instance.Model,
		OneHost: first.instance.Backend.OneHost(),
		Ready:   len(members) == first.pods,
	}
	for n, m := range members {
		if m.instance.Layout != first.instance.Layout || m.pods != first.pods {
			return i, fmt.Errorf("its layout differs from that of pod %s of the same replica", m.pod.Name)
		}
		if m.instance.Pod != n {
			i.Ready = false // a pod is missing, or there twice
		}
		i.Ready = i.Ready && ready(m.pod)
		i.Draining = i.Draining || m.pod.DeletionTimestamp != nil
		i.Pods = append(i.Pods, place(m))
	}
	return i, nil
}

func place(m member) router.Pod {
	p := router.Pod{
		Name: m.pod.Name, Index: m.instance.Pod, Node: m.pod.Spec.NodeName, Host: address(m.pod), DPStart: m.instance.DPStart,
		HTTP: m.ports.HTTP, Agent: m.ports.Agent, Handshake: m.ports.Handshake, Notify: m.ports.Notify,
	}
	if m.instance.Mover == kvlayout.MoverEngine {
		p.Handshake, p.Notify = m.ports.EngineHandshake, m.ports.EngineNotify
	}
	return p
}

// ready says that the pod is ready and has an address.
func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && address(pod) != ""
		}
	}
	return false
}

// address is the pod's first address, in the family that the cluster prefers.
func address(pod *corev1.Pod) string {
	if len(pod.Status.PodIPs) > 0 {
		return pod.Status.PodIPs[0].IP
	}
	return pod.Status.PodIP
}
