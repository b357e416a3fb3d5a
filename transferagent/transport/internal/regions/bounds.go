package regions

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// MaxBatchBytes is the most that one batch may move: more is a mistake in the plan.
const MaxBatchBytes = 1 << 46

// Within reports whether count pieces of length bytes, stride apart from
// offset on, lie inside a memory of size bytes. It cannot overflow.
func Within(offset, stride, length, count, size int64) bool {
	if length < 0 || count < 0 || offset < 0 || length > size || offset > size-length {
		return false
	}
	switch {
	case count <= 1 || stride == 0:
		return true
	case stride > 0:
		return count-1 <= (size-length-offset)/stride
	default:
		return count-1 <= offset/-max(stride, -size-1)
	}
}

// CheckBatch refuses a batch that a mover must not start: a flow with too long
// a name, a negative or unreasonable amount of bytes, a source out of bounds.
// It returns the bytes of the batch.
func CheckBatch(b transport.Batch, sourceSize int64) (int64, error) {
	if len(b.Flow.Transfer) > transport.MaxTransferName {
		return 0, fmt.Errorf("transfer name has %d bytes, more than %d", len(b.Flow.Transfer), transport.MaxTransferName)
	}
	total := int64(0)
	for i := range b.Copies {
		c := &b.Copies[i]
		if !Within(c.Src, c.SrcStride, c.Length, int64(c.Count), sourceSize) {
			return 0, fmt.Errorf("copy %d reads %s of %d bytes of memory %d: %w",
				i, place(c.Src, c.SrcStride, *c), sourceSize, b.Source, transport.ErrBounds)
		}
		if c.Length > 0 && int64(c.Count) > (MaxBatchBytes-total)/c.Length {
			return 0, fmt.Errorf("batch has more than %d bytes at copy %d", int64(MaxBatchBytes), i)
		}
		total += c.Bytes()
	}
	return total, nil
}

// CheckTarget refuses copies that would write outside a target of size bytes.
func CheckTarget(b transport.Batch, size int64) error {
	for i := range b.Copies {
		c := &b.Copies[i]
		if !Within(c.Dst, c.DstStride, c.Length, int64(c.Count), size) {
			return fmt.Errorf("copy %d writes %s of %d bytes of memory %d: %w",
				i, place(c.Dst, c.DstStride, *c), size, b.Target, transport.ErrBounds)
		}
	}
	return nil
}

func place(offset, stride int64, c kvlayout.Copy) string {
	return fmt.Sprintf("%d pieces of %d bytes from offset %d, stride %d,", c.Count, c.Length, offset, stride)
}
