package pdpool

import (
	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Resolved is a pool with everything computed that its spec leaves open.
type Resolved struct {
	Pair kvlayout.Pair
}

// Resolve computes what a pool's spec leaves open. It never fails: what can't
// work is told by Check.
func Resolve(pool *v1alpha1.PDPool, d Defaults) Resolved { panic("declared") }
