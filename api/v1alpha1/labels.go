package v1alpha1

// Labels of the objects that the operator makes for a pool. The operator writes
// all of them at creation and never again; who reads them stands with each.
const (
	// LabelPool is the pool's name. On every child; read by the operator (its
	// caches hold nothing else) and the router.
	LabelPool = "pdpool.dev/pool"
	// LabelRole is RolePrefill, RoleDecode or RoleRouter. On every pod and on
	// ControllerRevisions; read by the operator, the router and Service selectors.
	LabelRole = "pdpool.dev/role"
	// LabelReplica is the index of the replica in its role. On engine pods; read by
	// the operator and the router.
	LabelReplica = "pdpool.dev/replica"
	// LabelAttempt counts how often the replica was started. On engine pods; read by
	// the operator and the router: the pods of one replica and attempt are one instance.
	LabelAttempt = "pdpool.dev/attempt"
	// LabelPod is the index of the pod in its replica. On engine pods; read by the
	// operator and the router (requests go to pods by data parallel rank).
	LabelPod = "pdpool.dev/pod"
	// LabelRevision is the revision of the role that the pod was made from. On
	// engine pods and ControllerRevisions; read by the operator and the router.
	LabelRevision = "pdpool.dev/revision"
	// LabelPairing is the pairing key. On engine pods and ControllerRevisions; read
	// by the operator and the router: only equal keys form a pair.
	LabelPairing = "pdpool.dev/pairing"
	// LabelComponent is ComponentEngine on engine pods; read by the headless Service
	// that names them.
	LabelComponent = "app.kubernetes.io/component"
	// LabelManagedBy is ManagedBy on every child; read by people.
	LabelManagedBy = "app.kubernetes.io/managed-by"
)

// Values of labels.
const (
	// RolePrefill is LabelRole of prefill pods.
	RolePrefill = "prefill"
	// RoleDecode is LabelRole of decode pods.
	RoleDecode = "decode"
	// RoleRouter is LabelRole of router pods.
	RoleRouter = "router"
	// ComponentEngine is the value of LabelComponent.
	ComponentEngine = "engine"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "pdpool"
)

// Annotations of engine pods. The operator writes them at creation and never again.
const (
	// AnnotationPods is the number of pods of the replica. Read by the operator and
	// the router: an instance is whole when it has that many.
	AnnotationPods = "pdpool.dev/pods"
	// AnnotationLayout is the instance as the router needs it to pair and to
	// dispatch: JSON of agentconfig.Instance. Read by the router.
	AnnotationLayout = "pdpool.dev/layout"
	// AnnotationPorts is the pod's ports: JSON of agentconfig.Ports. Read by the
	// router, and by the operator to know which port blocks are taken.
	AnnotationPorts = "pdpool.dev/ports"
	// AnnotationAvoids lists the nodes that the pod keeps off since they rejected pods
	// of its replica, with commas between. Read by the operator.
	AnnotationAvoids = "pdpool.dev/avoids"
)

// AnnotationApplied is on children that are applied whole (Services, NetworkPolicies, the
// router's ServiceAccount, RoleBinding and Deployment): a hash of all that the operator wants
// of the object. Read by the operator: a key that is not wanted any more shows in
// nothing else, as others may add keys of their own.
const AnnotationApplied = "pdpool.dev/applied"

// Names of containers and volumes of an engine pod, for spec.<role>.template.
const (
	// ContainerEngine is the engine's container.
	ContainerEngine = "engine"
	// ContainerAgent is the transfer agent's (an init container that keeps running).
	ContainerAgent = "transfer-agent"
	// ContainerRouter is the router's container in its own pods.
	ContainerRouter = "router"
)

// DefaultGPUResource is the extended resource of AMD's device plugin.
const DefaultGPUResource = "amd.com/gpu"
