package router

import (
	"net/http"
	"testing"
)

// TestLoadOutlivesAnInstancesAbsence: its legs go on while it is not ready, or unknown to
// its source, and count when it is back.
func TestLoadOutlivesAnInstancesAbsence(t *testing.T) {
	for name, leave := range map[string]func(p *pairs) (back func()){
		"not ready": func(p *pairs) func() {
			p.instances[1].Ready = false
			return func() { p.instances[1].Ready = true }
		},
		"unknown": func(p *pairs) func() {
			all := p.instances
			p.instances = all[:1]
			return func() { p.instances = all }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairs(t, 1, 1)
			release := make(chan struct{})
			p.decode.does(func(w http.ResponseWriter, _ *http.Request) { <-release; reply200(w) })
			done := p.posted(t, simple)
			next(t, "a leg", p.decode.calls)
			back := leave(p)
			p.publish()
			back()
			p.publish()
			table, _ := p.Registry.current.Load().table("m")
			decode := table.partners[table.prefills[0].instance][0]
			if n := decode.open.Load(); n != 1 {
				t.Errorf("%d legs are open", n)
			}
			close(release)
			if a := next(t, "the answer", done); a.status != 200 {
				t.Errorf("status %d, %s", a.status, a.body)
			}
			eventually(t, "the legs' end", func() bool { return decode.open.Load()+table.prefills[0].open.Load() == 0 })
			p.publish()
			p.instances = p.instances[:0]
			p.publish()
			if n := len(p.Registry.loads) + len(p.Registry.vitals); n != 0 {
				t.Errorf("%d are kept of ranks that have gone", n)
			}
		})
	}
}
