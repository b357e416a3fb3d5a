package pdpool

import "github.com/pdpool/pdpool/api/v1alpha1"

// Compute decides what to do about a pool. A pool with a deletionTimestamp gets an
// empty plan.
func Compute(pool *v1alpha1.PDPool, seen Observed, d Defaults) Plan { panic("declared") }
