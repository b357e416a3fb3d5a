package pdpool

import (
	"fmt"
)

// ConflictError says that an object which the pool needs exists and is not the
// pool's, by its owner or by its labels. The shell returns it from apply; Status reports it as NameConflict.
type ConflictError struct {
	Kind, Name string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s %q exists and is not this pool's: delete it or rename the pool", e.Kind, e.Name)
}

// LeavingError says that an object which the pool needs is still there from a pool
// that had its name before, from another owner or without its labels, and is on its
// way out. The shell returns it from apply and tries again soon; Status reports it as
// Removing.
type LeavingError struct {
	Kind, Name string
}

func (e *LeavingError) Error() string {
	return fmt.Sprintf("%s %q is still there from before and is going: it is made anew then", e.Kind, e.Name)
}

// RefusedError says that the API server refused an object and will refuse it
// again: quota, pod security, another webhook. The shell returns it from apply;
// Status reports it as Refused.
type RefusedError struct {
	Kind, Name string
	Err        error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s %q is refused: %v", e.Kind, e.Name, e.Err)
}

// Unwrap returns the server's error.
func (e *RefusedError) Unwrap() error { return e.Err }
