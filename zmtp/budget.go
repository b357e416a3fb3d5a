package zmtp

import "sync/atomic"

// budget bounds the bytes of the messages that the connections of a Router have
// begun to receive and not handled yet.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) take(n int) error {
	if used := b.used.Add(int64(n)); used > b.limit {
		b.used.Add(-int64(n))
		return errorf(BuffersFull, "messages of %d bytes are being received, the limit is %d", used, b.limit)
	}
	return nil
}

// freeBytes of each message are not charged where connections begin on trial, so that
// proofs and short messages get through when others fill the budget: what they may take
// is bounded by the number of connections.
const freeBytes = 16 << 10

// charge takes n bytes of what the connection receives out of its Router's budget.
func (c *conn) charge(n int) error {
	if c.budget == nil {
		return nil
	}
	if c.o.Trial != nil {
		free := min(n, freeBytes-c.free)
		c.free += free
		n -= free
	}
	if err := c.budget.take(n); err != nil {
		return err
	}
	c.held += n
	return nil
}

// handled gives back what the connection's last message took.
func (c *conn) handled() {
	if c.budget != nil {
		c.budget.used.Add(-int64(c.held))
	}
	c.held, c.free = 0, 0
}
