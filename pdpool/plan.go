package pdpool

import (
	"time"
)

// Outcome says how far a pool is.
type Outcome string

const (
	// Converged means that all is as the spec wants it. The plan does nothing but
	// delete records of no more use.
	Converged Outcome = "Converged"
	// Progressing means that the plan does something, or pods that it made are starting.
	Progressing Outcome = "Progressing"
	// Waiting means that nothing goes on until time passes or the cluster changes.
	Waiting Outcome = "Waiting"
	// Blocked means that nothing goes on until the user changes the spec.
	Blocked Outcome = "Blocked"
)

// Plan is what to do about a pool, as data. The shell carries it out in this
// order: Create, Apply, Delete; then it writes Status and sends Events.
type Plan struct {
	// Create are objects that are created and never written again (pods,
	// ControllerRevisions, the Secret), in order. Each carries the pool as controller.
	// One that exists already is fine if the pool's UID is its controller; of the
	// Secret the shell can't tell.
	Create []Object
	// Apply are whole objects for server-side apply. UID is set where the object
	// was seen, as the precondition; one without UID is created.
	Apply []Object
	// Delete are objects as seen; UID is the precondition, and gone is fine.
	Delete []Object

	Outcome Outcome
	// Reason is one of the reasons of condition Ready; Message a sentence.
	Reason  string
	Message string
	// RequeueAfter is when to look again though nothing changed; 0 is never.
	RequeueAfter time.Duration
	// Events are sent once the status is written. One is a transition that
	// happens by this plan, so a second plan does not repeat it.
	Events []Event

	// found is what the status is made from.
	found *planner
}

// Event is one event on the pool.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Message string
}
