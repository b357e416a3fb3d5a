package pdpool

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// MaxNameLength is the longest name of a pool. The rest of the 63 characters that
// a host name may have is for what stands behind it in the name of a pod.
const MaxNameLength = 30

// Bounds of what is in a pod's name; the CRD has the same ones for replicas and
// data parallel degrees.
const (
	maxReplicas = 256
	maxPods     = 1024
	// maxAttempts is more than ten years of crashes with back-off.
	maxAttempts = 1_000_000
)

// podName is <pool>-<role>-<revision>-<replica>-<attempt>-<pod>. The attempt is in
// it since a pod on a dead node stays, and keeps its name, until the node is gone.
func podName(pool string, role kvlayout.Role, revision string, replica, attempt, pod int) string {
	return fmt.Sprintf("%s-%s-%s-%d-%d-%d", pool, role, revision, replica, attempt, pod)
}

// revisionName is the name of a ControllerRevision; role may be the router.
func revisionName(pool, role, revision string) string {
	return fmt.Sprintf("%s-%s-%s", pool, role, revision)
}

// membersName is the headless Service that gives engine pods their host names.
func membersName(pool string) string { return pool + "-members" }

// keyName is the Secret that the pool's agents share.
func keyName(pool string) string { return pool + "-key" }

// enginesName is the NetworkPolicy of the engine pods.
func enginesName(pool string) string { return pool + "-engines" }

// routerName is the router's Deployment, Service, ServiceAccount, RoleBinding and
// NetworkPolicy.
func routerName(pool string) string { return pool + "-router" }

// routersName is the headless Service by which agents find every router.
func routersName(pool string) string { return pool + "-routers" }
