package zmtp

import "sync/atomic"

// Budget bounds the bytes of the messages that connections have begun to receive: of a
// Router until they are handled, of a Dealer until it has ended. Several sockets may
// share one.
type Budget struct {
	limit int64
	free  int
	used  atomic.Int64
}

// NewBudget makes one of limit bytes. The first free bytes that a connection has begun to
// receive are not charged: proofs and short messages get through when others have filled
// the budget, and what they may take is bounded by the number of connections.
func NewBudget(limit, free int) *Budget { return &Budget{limit: int64(limit), free: free} }

func (b *Budget) take(n int) error {
	if used := b.used.Add(int64(n)); used > b.limit {
		b.used.Add(-int64(n))
		return errorf(BuffersFull, "messages of %d bytes are being received, the limit is %d", used, b.limit)
	}
	return nil
}

// charge takes n bytes of what the connection receives out of its budget.
func (c *conn) charge(n int) error {
	if c.o.Budget == nil {
		return nil
	}
	free := min(n, c.o.Budget.free-c.free)
	c.free += free
	n -= free
	if err := c.o.Budget.take(n); err != nil {
		return err
	}
	c.held += n
	return nil
}

// handled gives back what the connection has taken.
func (c *conn) handled() {
	if c.o.Budget != nil {
		c.o.Budget.used.Add(-int64(c.held))
	}
	c.held, c.free = 0, 0
}
