package pdpool

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Observed is what the operator saw of a pool, read once. All lists hold only
// objects whose controller is the pool, by UID.
type Observed struct {
	// Now is the time of the look.
	Now time.Time
	// Pods are the engine pods, terminating ones included. Router pods belong to
	// the Deployment and are not among them.
	Pods []corev1.Pod
	// ControllerRevisions hold the recorded revisions.
	ControllerRevisions []appsv1.ControllerRevision
	Deployments         []appsv1.Deployment
	Services            []corev1.Service
	ServiceAccounts     []corev1.ServiceAccount
	RoleBindings        []rbacv1.RoleBinding
	NetworkPolicies     []networkingv1.NetworkPolicy
	// PortBlocks are the first ports of the blocks that engine pods of any pool in
	// the cluster hold (PortBlock of each pod with LabelPool), with repetitions. Looks of
	// several pools share it, as they do Devices.
	PortBlocks []int
	// Devices are those of the cluster, as nodes and the engine pods of all pools tell.
	Devices Inventory
	// Entropy is new at every look. A Secret that is created is made of it.
	Entropy [EntropyBytes]byte
}
