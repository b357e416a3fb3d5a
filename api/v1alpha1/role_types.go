package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// EngineType is the program that serves a model.
//
// +kubebuilder:validation:Enum=vLLM;SGLang;Simulator
type EngineType string

const (
	// EngineVLLM is vLLM for ROCm.
	EngineVLLM EngineType = "vLLM"
	// EngineSGLang is SGLang for ROCm. This version refuses it (rule mover-unavailable).
	EngineSGLang EngineType = "SGLang"
	// EngineSimulator is PDPool's simulated engine: it has a real paged KV cache
	// with checkable content and no model. It needs no GPU program, only as many
	// devices of gpu.resourceName as the layout says.
	EngineSimulator EngineType = "Simulator"
)

// KVCacheType is the element type of the KV cache.
//
// +kubebuilder:validation:Enum=Auto;BF16;FP16;FP8
type KVCacheType string

const (
	// KVCacheAuto is the engine's own choice, bfloat16 for the models of the catalog.
	KVCacheAuto KVCacheType = "Auto"
	// KVCacheBF16 is bfloat16, 2 bytes.
	KVCacheBF16 KVCacheType = "BF16"
	// KVCacheFP16 is IEEE half, 2 bytes.
	KVCacheFP16 KVCacheType = "FP16"
	// KVCacheFP8 is an 8-bit float, 1 byte.
	KVCacheFP8 KVCacheType = "FP8"
)

// EngineSpec describes the engine of both roles.
type EngineSpec struct {
	// type is the program that serves the model.
	// +required
	Type EngineType `json:"type,omitempty"`
	// image is the container image of the engine. Required unless type is
	// Simulator, whose image is a setting of the operator. A role may set its own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +optional
	Image string `json:"image,omitempty"`
	// version is the engine's version, such as 0.33.0. Unset, it is read from the
	// tag of the image where that is a version; else it is unknown, and rules that
	// hold for some versions only warn. A text that is no version is unknown too, and
	// the Simulator has no version (both warn, rule engine-version).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +optional
	Version string `json:"version,omitempty"`
	// blockSize is the number of tokens that one block of the KV cache holds on
	// one rank. Unset, it is the engine's own default. A role may set its own, but
	// both must come out equal.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	BlockSize int32 `json:"blockSize,omitempty"`
	// kvCacheType is the element type of the KV cache. Unset, it is Auto. A role
	// may set its own, but both must come out equal.
	// +default="Auto"
	// +optional
	KVCacheType KVCacheType `json:"kvCacheType,omitempty"`
	// kvCacheMemory is the memory of one GPU that holds KV cache, at most 1Pi, with
	// room for a block (rule kv-memory). Unset, it is the engine's own choice.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : !string(self).matches('[eE][+-]?0*[1-9][0-9]{2}|^-')",message="kvCacheMemory must be more than 0, and have an exponent of two digits at most"
	// +optional
	KVCacheMemory *resource.Quantity `json:"kvCacheMemory,omitempty"`
	// args are further command line arguments of the engine, for both roles. A
	// flag that a field of the pool stands for is refused (rule args-owned).
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^([^\p{Cc}]|[\t\n\r])*$`
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`
	// env are further environment variables of the engine, for both roles. A
	// variable that the operator sets is refused (rule args-owned).
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
}

// LayoutSpec holds the parallel degrees of one instance. An instance has
// tp x dp GPUs.
type LayoutSpec struct {
	// tp is the tensor parallel degree: GPUs that share one copy of the weights.
	// Unset, it is 1.
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	TP int32 `json:"tp,omitempty"`
	// dp is the data parallel degree over all pods of the instance. Unset, it is 1.
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	DP int32 `json:"dp,omitempty"`
	// dpLocal is the number of data parallel ranks of one pod, a divisor of dp: an
	// instance has dp / dpLocal pods. Unset, all ranks share one pod.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	DPLocal int32 `json:"dpLocal,omitempty"`
	// dcp is the decode context parallel degree, a divisor of tp: the KV cache of
	// a sequence is dealt over that many ranks of the tp group. It adds no GPU.
	// Unset, it is 1.
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	DCP int32 `json:"dcp,omitempty"`
	// interleave is the number of consecutive tokens that one rank of a dcp group
	// holds before the next one's turn. Unset, it is the engine's default, 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	Interleave int32 `json:"interleave,omitempty"`
}

// RoleSpec describes the instances of one role.
type RoleSpec struct {
	// replicas is the number of instances. Unset, it is 1. An instance of several
	// pods lives and dies as one.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// layout holds the parallel degrees of one instance. Unset, it is one GPU.
	// +default={}
	// +optional
	Layout LayoutSpec `json:"layout,omitzero"`
	// blockSize replaces engine.blockSize for this role.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	BlockSize int32 `json:"blockSize,omitempty"`
	// kvCacheType replaces engine.kvCacheType for this role.
	// +optional
	KVCacheType KVCacheType `json:"kvCacheType,omitempty"`
	// maxLength replaces model.maxLength for this role.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777216
	// +optional
	MaxLength int32 `json:"maxLength,omitempty"`
	// image replaces engine.image for this role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +optional
	Image string `json:"image,omitempty"`
	// args are appended to engine.args for this role.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^([^\p{Cc}]|[\t\n\r])*$`
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`
	// env is merged over engine.env for this role, by name.
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// resources are CPU and memory of the engine's container. GPUs follow from the
	// layout and are refused here (rule gpus-resources).
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// template is a partial pod template (metadata and spec) that is merged over
	// the pod which the operator renders, lists by their keys (strategic merge).
	// The engine's container is named engine, the agent's transfer-agent. Unknown
	// fields, and fields that the operator owns, are refused (rule template-owned).
	// At most 64 KiB, 2048 values, 128 elements of a list, and 32 lists and objects in
	// each other.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// RouterSpec describes the router of the pool.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'None' || (!has(self.replicas) && !has(self.image) && !has(self.resources))",message="router.replicas, router.image and router.resources have no effect with router.mode None; remove them or set router.mode to Builtin"
type RouterSpec struct {
	// mode says who routes requests. Unset, it is Builtin.
	// +default="Builtin"
	// +optional
	Mode RouterMode `json:"mode,omitempty"`
	// replicas is the number of router pods. Unset, it is 2.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// image is the router's container image. Unset, it is the operator's setting.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +optional
	Image string `json:"image,omitempty"`
	// resources are CPU and memory of a router pod. Unset, a small request is made.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}
