package v1alpha1

// Condition types of a pool. The operator computes all of them anew at every look.
// Positive polarity unless said otherwise.
const (
	// ConditionAvailable is True when a request sent now is served: at least one
	// router pod and one prefill and one decode instance that pair are ready.
	ConditionAvailable = "Available"
	// ConditionReady is True when the pool is Available, breaks no rule, and all
	// wanted replicas of the current revisions are ready and no others exist.
	ConditionReady = "Ready"
	// ConditionCompatible is False when the spec breaks a rule, which only a pool
	// that came past the webhook or is older than the rule can. The reason is the
	// rule's id in CamelCase, the message all problems.
	ConditionCompatible = "Compatible"
	// ConditionRolloutComplete is True when every instance is of the current
	// revision of its role.
	ConditionRolloutComplete = "RolloutComplete"
	// ConditionGPUsAvailable is True when the nodes have devices for all replicas that
	// the spec asks for, beside what the pods of other pools hold. Devices that pods of
	// no pool hold are not seen: condition Ready says what the scheduler does. It changes
	// at most every two minutes while the spec stays as it is.
	ConditionGPUsAvailable = "GPUsAvailable"
	// ConditionReconciling is True while the operator works towards the spec, and
	// absent otherwise (kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while nothing goes on until the user acts, and
	// absent otherwise (kstatus). Never together with Reconciling.
	ConditionStalled = "Stalled"
)

// Reasons of Available.
const (
	// ReasonServing: a router and a pair are ready.
	ReasonServing = "Serving"
	// ReasonNoRouter: no router pod is ready.
	ReasonNoRouter = "NoRouter"
	// ReasonNoPair: no prefill and decode instance of one pairing key are ready.
	ReasonNoPair = "NoPair"
	// ReasonIncompatible: the spec breaks a rule, no two instances may pair.
	ReasonIncompatible = "Incompatible"
)

// Reason of Compatible while True.
const (
	// ReasonRulesHold: the spec breaks no rule.
	ReasonRulesHold = "RulesHold"
)

// Reasons of GPUsAvailable.
const (
	// ReasonDevicesFit: the nodes have devices for all replicas.
	ReasonDevicesFit = "DevicesFit"
	// ReasonDevicesLack: they have not. The message says why, with figures.
	ReasonDevicesLack = "DevicesLack"
)

// Reasons of RolloutComplete.
const (
	// ReasonUpToDate: every instance is of the current revision.
	ReasonUpToDate = "UpToDate"
	// ReasonRollingOut: instances of an older revision still exist or newer ones don't.
	ReasonRollingOut = "RollingOut"
)

// Reasons of Ready, Reconciling and Stalled: what the plan is about. They are
// reasons of events too.
const (
	// ReasonConverged: everything is as wanted.
	ReasonConverged = "Converged"
	// ReasonCreating: instances or other children are being created.
	ReasonCreating = "Creating"
	// ReasonApplying: children that differ from what is wanted are brought in line.
	ReasonApplying = "Applying"
	// ReasonStarting: pods exist that are not ready yet.
	ReasonStarting = "Starting"
	// ReasonRemoving: instances that are not wanted any more drain and end.
	ReasonRemoving = "Removing"
	// ReasonReplacing: instances are replaced one at a time by compatible new ones.
	ReasonReplacing = "Replacing"
	// ReasonChangingGeneration: a new set of instances that does not pair with the
	// old one takes its place.
	ReasonChangingGeneration = "ChangingGeneration"
	// ReasonRecovering: an instance has failed and is made anew.
	ReasonRecovering = "Recovering"
	// ReasonBackOff: an instance has failed repeatedly; the next attempt waits.
	ReasonBackOff = "BackOff"
	// ReasonNotReady: an instance was ready and is not any more.
	ReasonNotReady = "NotReady"
	// ReasonUnschedulable: the scheduler finds no node for a pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImageUnavailable: the kubelet can't pull an image.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerWaiting: the kubelet can't start a container, or the agent's ends
	// again and again.
	ReasonContainerWaiting = "ContainerWaiting"
	// ReasonNameConflict: an object that the pool needs exists and is another owner's.
	ReasonNameConflict = "NameConflict"
	// ReasonRefused: the API server refused an object (quota, pod security, a webhook).
	ReasonRefused = "Refused"
	// ReasonApplyFailed: writing an object failed and is tried again.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonInvalidSpec: the spec can't be rendered to pods.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonDeleting: the pool is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonNodeAvoided is an event's: an instance is made anew off a node that rejected it.
	ReasonNodeAvoided = "NodeAvoided"
	// ReasonSuperseded is an event's: an instance was removed since a newer one took its place.
	ReasonSuperseded = "Superseded"
)
