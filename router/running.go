package router

import "sync"

// running counts goroutines. Unlike with a sync.WaitGroup some may start while others
// are waited for. The zero value is ready.
type running struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // for who waits; closed when there are none
}

// Go runs f in a goroutine.
func (r *running) Go(f func()) {
	r.mu.Lock()
	r.n++
	r.mu.Unlock()
	go func() {
		defer r.end()
		f()
	}()
}

func (r *running) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.none != nil {
		close(r.none)
		r.none = nil
	}
}

// ended returns a channel that is closed once no goroutine runs.
func (r *running) ended() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none == nil {
		none := make(chan struct{})
		if r.n == 0 {
			close(none)
			return none
		}
		r.none = none
	}
	return r.none
}
