// Package tuning checks the options of movers.
package tuning

import (
	"fmt"
	"time"
)

// Count is an option that is a number from 1 to Most.
type Count struct {
	Name        string
	Value, Most int
}

// MaxTimeout is the longest duration that an option may have.
const MaxTimeout = 24 * time.Hour

// Check names the first option that is out of its range: a count, or a duration
// that is not above 0 and at most MaxTimeout.
func Check(counts []Count, timeouts ...time.Duration) error {
	for _, c := range counts {
		if c.Value < 1 || c.Value > c.Most {
			return fmt.Errorf("%s is %d, not 1 to %d", c.Name, c.Value, c.Most)
		}
	}
	for _, d := range timeouts {
		if d <= 0 || d > MaxTimeout {
			return fmt.Errorf("timeout is %v, not above 0 and at most %v", d, MaxTimeout)
		}
	}
	return nil
}
