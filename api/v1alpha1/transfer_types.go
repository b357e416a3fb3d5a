package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// TransferMode says which side moves KV cache.
//
// +kubebuilder:validation:Enum=Write;Read
type TransferMode string

const (
	// TransferWrite lets prefill write each layer as it is computed.
	TransferWrite TransferMode = "Write"
	// TransferRead lets decode read after prefill has ended. This version refuses
	// it (rule mover-unavailable).
	TransferRead TransferMode = "Read"
)

// Mover is the program that moves the bytes.
//
// +kubebuilder:validation:Enum=Auto;Engine;Agent
type Mover string

const (
	// MoverAuto takes the engine where its own connector serves the pair, else the agent.
	MoverAuto Mover = "Auto"
	// MoverEngine is the engine's own MoRIIO connector.
	MoverEngine Mover = "Engine"
	// MoverAgent is the transfer agent of the pod.
	MoverAgent Mover = "Agent"
)

// Backend is the way that bytes take.
//
// +kubebuilder:validation:Enum=Auto;RDMA;XGMI;TCP;SharedMemory
type Backend string

const (
	// BackendAuto is TCP with mover Agent and RDMA with mover Engine.
	BackendAuto Backend = "Auto"
	// BackendRDMA is MoRI over RDMA, with mover Engine.
	BackendRDMA Backend = "RDMA"
	// BackendXGMI is MoRI over the links between the GPUs of a node, with mover Engine.
	BackendXGMI Backend = "XGMI"
	// BackendTCP is the pod network, with mover Agent.
	BackendTCP Backend = "TCP"
	// BackendSharedMemory is memory of one node that both agents map, with mover
	// Agent. Prefill and decode are placed on one node.
	BackendSharedMemory Backend = "SharedMemory"
)

// TransferSpec says how KV cache travels from prefill to decode.
type TransferSpec struct {
	// mode says which side moves KV cache. Unset, it is Write.
	// +default="Write"
	// +optional
	Mode TransferMode `json:"mode,omitempty"`
	// mover says which program moves the bytes. Unset, it is Auto; status says
	// what was taken and why.
	// +default="Auto"
	// +optional
	Mover Mover `json:"mover,omitempty"`
	// backend is the way that the bytes take. Unset, it is Auto. With SharedMemory
	// and XGMI all instances are kept on one node. When that node is lost, its pods
	// hold the pool there until the node is deleted or their deletion is forced: it
	// is not known before that they have ended.
	// +default="Auto"
	// +optional
	Backend Backend `json:"backend,omitempty"`
	// transferTimeoutSeconds bounds the time from the first byte of a transfer to
	// its last. Unset, it is 30.
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	TransferTimeoutSeconds int32 `json:"transferTimeoutSeconds,omitempty"`
	// deferTimeoutSeconds bounds how long prefill keeps the blocks of a prompt for
	// a decode instance that has not allocated its own. Unset, it is 60.
	// +default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	DeferTimeoutSeconds int32 `json:"deferTimeoutSeconds,omitempty"`
	// receiveAbortTimeoutSeconds bounds how long decode waits for all writers of a
	// transfer. Unset, it is 120.
	// +default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ReceiveAbortTimeoutSeconds int32 `json:"receiveAbortTimeoutSeconds,omitempty"`
	// drainTimeoutSeconds bounds how long a pod that is deleted waits for its live
	// transfers. Unset, it is 120.
	// +default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	DrainTimeoutSeconds int32 `json:"drainTimeoutSeconds,omitempty"`
	// resources are CPU and memory of the transfer agent in each engine pod. Unset,
	// it requests 100m CPU and 128Mi memory and is limited to 256Mi memory. The agent
	// keeps its own use below its memory limit, so leave it one. GPUs are refused here
	// (rule gpus-resources).
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}
