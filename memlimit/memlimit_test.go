package memlimit

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	debug.SetMemoryLimit(math.MaxInt64)
	if err := Apply(""); err != nil || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("without a limit: %v, %d", err, debug.SetMemoryLimit(-1))
	}
	for _, bad := range []string{"128Mi", "0", "-1"} {
		if err := Apply(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := Apply("134217728"); err != nil || debug.SetMemoryLimit(-1) != 120795948 {
		t.Errorf("%v, %d", err, debug.SetMemoryLimit(-1))
	}
}
