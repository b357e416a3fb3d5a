package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PDPoolStatus is what the operator computed and saw.
type PDPoolStatus struct {
	// conditions are the pool's conditions: Available, Ready, Compatible,
	// GPUsAvailable and RolloutComplete always; Reconciling and Stalled only while True.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is for;
	// -1 before the operator has seen the pool.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// layout tells both layouts, such as "TP4 -> TP4 DCP4 I64".
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Layout string `json:"layout,omitempty"`
	// pairing is the pairing key: only instances with equal keys form a pair.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Pairing string `json:"pairing,omitempty"`
	// url is where clients send requests, from within the cluster.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	URL string `json:"url,omitempty"`
	// transfer tells what transfer's Auto values became.
	// +optional
	Transfer TransferStatus `json:"transfer,omitzero"`
	// prefill tells the state of the prefill instances.
	// +optional
	Prefill RoleStatus `json:"prefill,omitzero"`
	// decode tells the state of the decode instances.
	// +optional
	Decode RoleStatus `json:"decode,omitzero"`
	// rollout remembers where a change of generation is, while one goes on.
	// +optional
	Rollout RolloutStatus `json:"rollout,omitzero"`
	// gpus remembers when the condition GPUsAvailable was written.
	// +optional
	GPUs GPUStatus `json:"gpus,omitzero"`
	// router tells the state of the router.
	// +optional
	Router RouterStatus `json:"router,omitzero"`
}

// TransferStatus tells what transfer's Auto values became.
type TransferStatus struct {
	// mode is the mode in use.
	// +optional
	Mode TransferMode `json:"mode,omitempty"`
	// mover is the mover in use: Engine or Agent.
	// +optional
	Mover Mover `json:"mover,omitempty"`
	// moverReason says why that mover was taken.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	MoverReason string `json:"moverReason,omitempty"`
	// backend is the backend in use.
	// +optional
	Backend Backend `json:"backend,omitempty"`
}

// GPUStatus remembers when the condition GPUsAvailable was written.
type GPUStatus struct {
	// changeTime is when the condition or its figures changed last. The next change
	// waits two minutes from then on, so that nodes that come and go make few writes.
	// +optional
	ChangeTime *metav1.Time `json:"changeTime,omitempty"`
}

// RolloutStatus remembers where a change of generation is for which devices lack.
type RolloutStatus struct {
	// yieldTime is when old instances were last removed for the devices of new ones.
	// +optional
	YieldTime *metav1.Time `json:"yieldTime,omitempty"`
	// freedTime is since when devices lack though none comes free any more. The
	// scheduler gets a while from then on before more are removed.
	// +optional
	FreedTime *metav1.Time `json:"freedTime,omitempty"`
}

// RoleStatus tells the state of the instances of one role.
type RoleStatus struct {
	// summary is "routable/wanted", as kubectl get shows it.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
	// replicas is the number of instances that exist, of any revision.
	// +kubebuilder:validation:Minimum=0
	// +required
	Replicas *int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of instances that are whole and ready, of any revision.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// updatedReplicas is the number of instances of the current revision that are
	// whole and ready.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UpdatedReplicas *int32 `json:"updatedReplicas,omitempty"`
	// revision is the current revision of the role.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Revision string `json:"revision,omitempty"`
	// podsPerReplica is the number of pods of one instance.
	// +kubebuilder:validation:Minimum=1
	// +optional
	PodsPerReplica int32 `json:"podsPerReplica,omitempty"`
	// gpusPerPod is the number of devices of one pod.
	// +kubebuilder:validation:Minimum=1
	// +optional
	GPUsPerPod int32 `json:"gpusPerPod,omitempty"`
	// blockSize is the number of tokens per block and rank in use.
	// +kubebuilder:validation:Minimum=1
	// +optional
	BlockSize int32 `json:"blockSize,omitempty"`
	// bytesPerToken is the KV cache of one token on one rank, in bytes. With dcp
	// it is the mean over the ranks of a dcp group. Unset while the geometry is unknown.
	// +kubebuilder:validation:Minimum=1
	// +optional
	BytesPerToken int64 `json:"bytesPerToken,omitempty"`
	// instances remembers of each replica what its pods can't tell once they are gone.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=revision
	// +listMapKey=replica
	// +optional
	Instances []InstanceStatus `json:"instances,omitempty"`
}

// InstanceStatus is the memory of one replica of one revision. It exists once the
// replica was ready or an attempt of it has ended.
type InstanceStatus struct {
	// revision is the role's revision that the replica belongs to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Revision string `json:"revision,omitempty"`
	// replica is the index of the replica.
	// +kubebuilder:validation:Minimum=0
	// +required
	Replica *int32 `json:"replica,omitempty"`
	// nextAttempt is the number of the next attempt to start the replica. All
	// lower ones have ended.
	// +kubebuilder:validation:Minimum=0
	// +required
	NextAttempt *int32 `json:"nextAttempt,omitempty"`
	// readyTime is when the replica was first seen ready. One that was is made
	// anew in its own revision when it is lost in the middle of a roll-out.
	// +optional
	ReadyTime *metav1.Time `json:"readyTime,omitempty"`
	// agentImage is the image of the instance's transfer agent when it was last seen
	// ready. After an upgrade of the operator it tells which instances run an older one.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	AgentImage string `json:"agentImage,omitempty"`
	// failures is the number of attempts that failed in a row, each within ten
	// minutes of its start. It sets the wait before the next attempt.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Failures *int32 `json:"failures,omitempty"`
	// lastFailureTime is when the last failed attempt was seen.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`
	// reason is why the last failed attempt failed, in one sentence.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Reason string `json:"reason,omitempty"`
	// refused is what the API server said when it refused a pod of the attempt that
	// exists in part. Its other pods are kept meanwhile, and the pod is tried again.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Refused string `json:"refused,omitempty"`
	// node is where the last failed attempt ran.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// rejections are the nodes that did not let pods of the replica in lately, as one
	// with a broken device does. The replica is kept off a node that did so twice, for
	// ten minutes.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=node
	// +optional
	Rejections []NodeRejections `json:"rejections,omitempty"`
}

// NodeRejections says how often a node did not let pods of a replica in.
type NodeRejections struct {
	// node is the node's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Node string `json:"node,omitempty"`
	// count is how often it did so, each time within ten minutes of the one before.
	// +kubebuilder:validation:Minimum=1
	// +required
	Count *int32 `json:"count,omitempty"`
	// lastTime is when it was seen last.
	// +optional
	LastTime *metav1.Time `json:"lastTime,omitempty"`
}

// RouterStatus tells the state of the router.
type RouterStatus struct {
	// replicas is the number of router pods that exist.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of router pods that are ready.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
}
