package pdpool

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Validate decides on the admission of a pool: created (old is nil) or updated.
// It returns all refusals and all warnings. An update that leaves the spec as it
// is, and one of a pool that is being deleted, has no refusals. It looks at the
// manifest alone, so that the verdict is the same offline.
func Validate(old, pool *v1alpha1.PDPool) (refusals, warnings []kvlayout.Problem) { panic("declared") }

// Check returns all problems of a pool, refusals first.
func Check(pool *v1alpha1.PDPool) []kvlayout.Problem { panic("declared") }

// FieldErrors turns refusals into the form in which API servers tell them.
func FieldErrors(pool *v1alpha1.PDPool, refusals []kvlayout.Problem) field.ErrorList { panic("declared") }

// Sentences are problems as lines of text, for admission warnings.
func Sentences(problems []kvlayout.Problem) []string { panic("declared") }
