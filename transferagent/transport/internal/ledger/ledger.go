// Package ledger counts the bytes that peers wrote, per flow.
package ledger

import (
	"cmp"
	"slices"
	"sync"

	"github.com/pdpool/pdpool/transferagent/transport"
)

const (
	// MaxTransfers is how many transfers are kept: the ones that began last.
	MaxTransfers = 4096
	// MaxFlows is how many (writer, reader) pairs one transfer can have.
	// Bytes of further pairs are not counted; no real layout has as many.
	MaxFlows = 4096
)

// Ledger keeps counts. The zero value is ready.
type Ledger struct {
	mu    sync.Mutex
	flows map[string]map[pair]int64
	order []string // oldest first
}

type pair struct{ writer, reader transport.Rank }

// Add counts n more bytes of a flow. The oldest transfer is forgotten for it
// when there are more than MaxTransfers.
func (l *Ledger) Add(f transport.Flow, n int64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	pairs, known := l.flows[f.Transfer]
	if !known {
		if l.flows == nil {
			l.flows = map[string]map[pair]int64{}
		}
		if len(l.order) == MaxTransfers {
			delete(l.flows, l.order[0])
			l.order = slices.Delete(l.order, 0, 1)
		}
		pairs = map[pair]int64{}
		l.flows[f.Transfer] = pairs
		l.order = append(l.order, f.Transfer)
	}
	p := pair{f.Writer, f.Reader}
	if _, known := pairs[p]; known || len(pairs) < MaxFlows {
		pairs[p] += n
	}
}

// Received lists the counts of one transfer by writer, then reader.
func (l *Ledger) Received(transfer string) []transport.Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]transport.Count, 0, len(l.flows[transfer]))
	for p, n := range l.flows[transfer] {
		f := transport.Flow{Transfer: transfer, Writer: p.writer, Reader: p.reader}
		out = append(out, transport.Count{Flow: f, Bytes: n})
	}
	slices.SortFunc(out, func(a, b transport.Count) int {
		return cmp.Or(compare(a.Flow.Writer, b.Flow.Writer), compare(a.Flow.Reader, b.Flow.Reader))
	})
	return out
}

func compare(a, b transport.Rank) int {
	return cmp.Or(cmp.Compare(a.DP, b.DP), cmp.Compare(a.TP, b.TP))
}
