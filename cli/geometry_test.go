package cli

import (
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
)

// Infinity is no JSON, but no reason either for a config that is refused for another one.
func TestPlaceIsWhereAConfigBreaksOff(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"a\":": ":2:6",
		"{} x":        ":1:4",
		"[1]":         "",
		`{"time_step_limit":[0.0, Infinity],"model_type":"unheard"}`: "",
	} {
		_, err := kvlayout.ParseConfig([]byte(text))
		if err == nil {
			t.Fatalf("%s: accepted", text)
		}
		if got := lineOf([]byte(text), err); got != want {
			t.Errorf("%s: %q, want %q (%v)", text, got, want, err)
		}
	}
}
