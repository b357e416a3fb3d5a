package v1alpha1

// NetworkPolicyMode says who keeps the NetworkPolicies of a pool.
//
// +kubebuilder:validation:Enum=Managed;None
type NetworkPolicyMode string

const (
	// NetworkPolicyManaged has the operator keep one for the engine pods and one for
	// the routers.
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	// NetworkPolicyNone leaves policies to the user.
	NetworkPolicyNone NetworkPolicyMode = "None"
)

// NetworkSpec says who may reach the pool's pods.
type NetworkSpec struct {
	// policy says who keeps the pool's NetworkPolicies. With Managed, which it is
	// when unset, pods of the pool reach each other, and others reach the routers'
	// HTTP and metrics ports and the agents' HTTP port, and nothing else; with
	// router.mode None also the engines' HTTP port. Policies of your own add to it.
	// It takes a network plugin that enforces them.
	// +default="Managed"
	// +optional
	Policy NetworkPolicyMode `json:"policy,omitempty"`
}
