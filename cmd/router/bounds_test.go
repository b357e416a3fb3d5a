package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestFrozenAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 10 * time.Second, "--frozen-after=0s": 0, "--frozen-after=1m": time.Minute} {
		o, _, err := parse(strings.Fields(text), io.Discard, io.Discard)
		if err != nil || o.limits.Frozen != want {
			t.Errorf("%q: %v, %v", text, o.limits.Frozen, err)
		}
	}
	if _, _, err := parse([]string{"--frozen-after=-1s"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--frozen-after -1s") {
		t.Errorf("a negative one: %v", err)
	}
}
