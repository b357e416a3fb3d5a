package enginesim

import (
	"testing"
	"time"
)

func TestSparse(t *testing.T) {
	var s sparse
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		after   time.Duration
		omitted int
		ok      bool
	}{{0, 0, true}, {1, 0, false}, {time.Second, 0, false}, {sparseEvery, 2, true}, {sparseEvery, 0, true}} {
		now = now.Add(c.after)
		if omitted, ok := s.admit(now); omitted != c.omitted || ok != c.ok {
			t.Errorf("%d: %d omitted, %t", i, omitted, ok)
		}
	}
}
