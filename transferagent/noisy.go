package transferagent

import (
	"log/slog"
	"sync"
	"time"
)

// noisyEvery is the least time between two lines of a noisy.
const noisyEvery = 10 * time.Second

// noisy logs what strangers can cause as often as they like: the first, and then at
// most one line in noisyEvery, with how many came since the last.
type noisy struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	more int
}

func (n *noisy) warn(text string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.last.IsZero() && time.Since(n.last) < noisyEvery {
		n.more++
		return
	}
	n.log.Warn(text, append(args, "more", n.more)...)
	n.last, n.more = time.Now(), 0
}
