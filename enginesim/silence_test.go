package enginesim

import (
	"testing"
	"time"
)

// An agent that says nothing of a transfer, and then nothing of its end, is given
// up; the blocks come back when it takes the engine again.
func TestAgentSaysNothing(t *testing.T) {
	for name, c := range map[string]struct {
		flag string
		said time.Duration
	}{
		"by the command line":    {"--sim-agent-silence-ms=500", time.Hour},
		"by the agent's welcome": {"--sim-agent-silence-ms=0", 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			x := &pair{fabric: newFabric(t)}
			x.mu.Lock()
			x.frozen, x.decode.silence = true, c.said
			x.abort = func(*flow) {}
			x.mu.Unlock()
			x.start(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", c.flag})
			_, body := x.legs(words(10, 0), 4)
			if r := post(t.Context(), t, x.d, "/v1/completions", body); r.Error.Rule != "deadline-engine" {
				t.Errorf("%s", r.raw)
			}
			sound(t, x.d)
			x.mu.Lock()
			x.frozen = false
			x.mu.Unlock()
			until(t, func() bool { return x.d.ready() == nil })
			for _, g := range x.d.groups {
				g.patience = patience // with an agent that may only be slow now
			}
			if p, d := x.ask(t, words(10, 0), 4); d.text() != x.d.reference(words(10, 0), 4) {
				t.Errorf("afterwards: %s; prefill %s", d.raw, p.raw)
			}
		})
	}
}
