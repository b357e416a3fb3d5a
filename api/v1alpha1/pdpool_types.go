package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PDPool is one model served by two kinds of engine instances: prefill instances
// read prompts, decode instances write answers, and the KV cache travels from one
// to the other through the transfer agents of their pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pdp,categories=all
// +kubebuilder:printcolumn:name="Prefill",type=string,JSONPath=`.status.prefill.summary`,description="Routable replicas and replicas wanted"
// +kubebuilder:printcolumn:name="Decode",type=string,JSONPath=`.status.decode.summary`,description="Routable replicas and replicas wanted"
// +kubebuilder:printcolumn:name="Layout",type=string,JSONPath=`.status.layout`,description="Parallel layout of prefill and of decode"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.status.transfer.mode`
// +kubebuilder:printcolumn:name="Mover",type=string,priority=1,JSONPath=`.status.transfer.mover`
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.pairing`
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.status.url`
type PDPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata. The name has at most 30 characters, begins
	// with a letter, and holds lower-case letters, digits and inner dashes only, since
	// names of pods are made of it (rule pool-name, held by the webhook so that it is
	// told together with all else that is wrong).
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec is what the user wants. Nothing else writes into it.
	// +required
	Spec PDPoolSpec `json:"spec,omitzero"`
	// status is what the operator computed and saw.
	// +default={"observedGeneration":-1}
	// +optional
	Status PDPoolStatus `json:"status,omitzero"`
}

// PDPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type PDPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []PDPool `json:"items"`
}

// PDPoolSpec is a pool as the user wants it.
//
// +kubebuilder:validation:XValidation:rule="self.engine.type == 'Simulator' || has(self.engine.image) || (has(self.prefill.image) && has(self.decode.image))",message="spec.engine.image is required unless engine.type is Simulator, since no image is known that serves the model; set engine.image",fieldPath=".engine.image"
type PDPoolSpec struct {
	// model says what is served.
	// +required
	Model ModelSpec `json:"model,omitzero"`
	// engine says by what it is served.
	// +required
	Engine EngineSpec `json:"engine,omitzero"`
	// transfer says how KV cache travels from prefill to decode.
	// +default={}
	// +optional
	Transfer TransferSpec `json:"transfer,omitzero"`
	// gpu describes the GPUs of a node.
	// +default={}
	// +optional
	GPU GPUSpec `json:"gpu,omitzero"`
	// prefill describes the instances that read prompts.
	// +required
	Prefill RoleSpec `json:"prefill,omitzero"`
	// decode describes the instances that write answers.
	// +required
	Decode RoleSpec `json:"decode,omitzero"`
	// router describes the request router in front of the instances.
	// +default={}
	// +optional
	Router RouterSpec `json:"router,omitzero"`
	// network says who may reach the pool's pods.
	// +default={}
	// +optional
	Network NetworkSpec `json:"network,omitzero"`
}

// ModelSpec names a model.
type ModelSpec struct {
	// name is what the engine is asked to load, and the key into the catalog of
	// KV geometries. It is an argument of a program and has no control characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +required
	Name string `json:"name,omitempty"`
	// servedName is the name that clients use, without control characters. Unset, it
	// is name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Zl}\p{Zp}]+$`
	// +optional
	ServedName string `json:"servedName,omitempty"`
	// maxLength is the longest sequence (prompt and answer) in tokens. Unset, it
	// is the engine's own default. A role may set its own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777216
	// +optional
	MaxLength int32 `json:"maxLength,omitempty"`
	// geometry is the shape of the model's KV cache. Unset, it is taken from the
	// catalog by name; for a model that the catalog lacks, rules that need it are
	// not checked and a warning says so.
	// +optional
	Geometry GeometrySpec `json:"geometry,omitzero"`
}

// GeometryKind says how attention stores keys and values.
//
// +kubebuilder:validation:Enum=MLA;GQA
type GeometryKind string

const (
	// GeometryMLA is one latent vector per token, the same on every rank.
	GeometryMLA GeometryKind = "MLA"
	// GeometryGQA is a key and a value vector per KV head, sharded by heads. MHA
	// and MQA are GQA with as many KV heads as heads, and with one.
	GeometryGQA GeometryKind = "GQA"
)

// GeometrySpec is the shape of a model's KV cache.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'MLA' || !has(self.kvHeads) || self.kvHeads == 1",message="kvHeads must be unset or 1 with kind MLA, since its latent vector is shared by all heads"
// +kubebuilder:validation:XValidation:rule="self.kind != 'GQA' || (has(self.kvHeads) && self.attentionHeads % self.kvHeads == 0)",message="kvHeads must be set with kind GQA and divide attentionHeads, since each KV head serves the same number of heads"
type GeometrySpec struct {
	// kind says how attention stores keys and values.
	// +required
	Kind GeometryKind `json:"kind,omitempty"`
	// layers is the number of layers that have a KV cache.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +required
	Layers int32 `json:"layers,omitempty"`
	// attentionHeads is the number of query heads.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +required
	AttentionHeads int32 `json:"attentionHeads,omitempty"`
	// kvHeads is the number of key and value heads. Required with kind GQA.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	KVHeads int32 `json:"kvHeads,omitempty"`
	// headValues is the number of values of one head, plane and token: the head
	// dimension for GQA, kv_lora_rank + qk_rope_head_dim for MLA.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +required
	HeadValues int32 `json:"headValues,omitempty"`
	// experts is the number of routed experts. Unset, the model is dense.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	Experts int32 `json:"experts,omitempty"`
}

// GPUSpec describes the GPUs of a node.
type GPUSpec struct {
	// resourceName is the extended resource of one device. Unset, it is
	// amd.com/gpu; partitioned devices have names such as amd.com/cpx_nps4.
	// +default="amd.com/gpu"
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +optional
	ResourceName string `json:"resourceName,omitempty"`
	// devicesPerNode is the number of devices of one node. Unset, it is 8.
	// +default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	DevicesPerNode int32 `json:"devicesPerNode,omitempty"`
	// deviceIDs are the PCI device ids of the GPUs that serve the pool, in lower case,
	// such as 74a1 for MI300X, 74a5 for MI325X and 75a3 for MI355X. Pods get a required
	// node affinity on the label device-id of AMD's labeller, in both of its spellings.
	// A node that has GPUs of several ids is left out, since a pod may get either.
	// Unset, any GPU will do.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=4
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}$`
	// +listType=set
	// +optional
	DeviceIDs []string `json:"deviceIDs,omitempty"`
	// partition is how the GPUs that serve the pool are partitioned, as compute and
	// memory mode, such as spx_nps1 or cpx_nps4. Pods get a required node affinity on
	// the label compute-memory-partition of AMD's labeller, which has to be asked for,
	// in all of its spellings. Unset, the nodes' partitioning does not matter.
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z]+_nps[0-9]+$`
	// +optional
	Partition string `json:"partition,omitempty"`
}

// RouterMode says who routes requests.
//
// +kubebuilder:validation:Enum=Builtin;None
type RouterMode string

const (
	// RouterBuiltin runs PDPool's own router in front of the pool.
	RouterBuiltin RouterMode = "Builtin"
	// RouterNone runs none: another router serves the pool.
	RouterNone RouterMode = "None"
)
