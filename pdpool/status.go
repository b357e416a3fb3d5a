package pdpool

import "github.com/pdpool/pdpool/api/v1alpha1"

// Status is the status to write after plan was carried out; applyErr is what that
// ended with (a *ConflictError and a *RefusedError are found in it by errors.As).
// The shell writes it only where it differs semantically from the pool's.
func Status(pool *v1alpha1.PDPool, seen Observed, plan Plan, applyErr error) v1alpha1.PDPoolStatus {
	panic("declared")
}
