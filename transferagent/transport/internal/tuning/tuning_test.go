package tuning_test

import (
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport/internal/tuning"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		count int
		wait  time.Duration
		fine  bool
	}{
		{"least", 1, 1, true},
		{"most", 5, tuning.MaxTimeout, true},
		{"none", 0, 1, false},
		{"below none", -1, 1, false},
		{"too many", 6, 1, false},
		{"no time", 1, 0, false},
		{"negative time", 1, -1, false},
		{"for ever", 1, tuning.MaxTimeout + 1, false},
	} {
		err := tuning.Check([]tuning.Count{{Name: "queue", Value: c.count, Most: 5}}, time.Second, c.wait)
		if (err == nil) != c.fine {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
