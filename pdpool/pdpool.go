// Package pdpool is the core of the operator: what a PDPool means (Resolve),
// whether it can work (Validate), what is to be done about it (Compute) and what
// to say of it (Status).
//
// It is pure: data in, data out. It has no client, reads no clock and keeps no
// state, so that a manager that is killed at any step and started again goes on
// where the API server says it was.
package pdpool

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is what a plan creates, applies or deletes.
type Object interface {
	metav1.Object
	runtime.Object
}

// Defaults are settings of the operator that pools take where their spec says
// nothing. They are no part of a revision: another value is used by the next
// revision and touches no pod that runs.
type Defaults struct {
	// RouterImage, AgentImage and SimulatorImage are container images.
	RouterImage    string
	AgentImage     string
	SimulatorImage string
	// Ports is where replicas get their ports from. The zero value is DefaultPorts.
	Ports PortRange
}

// routerClusterRole is the ClusterRole that routers are bound to; the chart ships
// it, and the operator may bind no other.
const routerClusterRole = "pdpool-router"
