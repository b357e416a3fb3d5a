//go:build linux

package shm

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
)

// hold makes sure that both memories stay and the transfer is wanted until release.
func (j *job) hold(u *regions.User) error {
	select {
	case <-j.session.box.Ending():
		return j.session.box.Err()
	default:
	}
	if !j.source.Acquire(u) {
		return fmt.Errorf("source memory %d: %w", j.source.ID, transport.ErrUnknownMemory)
	}
	if !j.target.Acquire(u) {
		j.source.Release(u)
		return fmt.Errorf("target memory %d: %w", j.target.ID, transport.ErrUnknownMemory)
	}
	transfer := j.entry.Batch.Flow.Transfer
	pass, ok := j.session.gate.Enter(transfer, u)
	if !ok {
		j.source.Release(u)
		j.target.Release(u)
		return fmt.Errorf("transfer %q: %w", transfer, transport.ErrRevoked)
	}
	j.pass = pass
	return nil
}

func (j *job) release(u *regions.User) {
	j.pass.Leave(u)
	j.target.Release(u)
	j.source.Release(u)
}

// copyTogether copies the portions of all jobs. Where the next copies of all
// lie between each other in the source, it goes from one to the other piece by
// piece, so that the source is read in order.
func copyTogether(jobs []job) {
	if len(jobs) == 0 {
		return
	}
	for i := 0; ; i++ {
		left, alike := 0, true
		for _, j := range jobs {
			if i < len(j.copies) {
				left++
			}
			alike = alike && i < len(j.copies) && i < len(jobs[0].copies) && strided.Interleave(jobs[0].copies[i], j.copies[i])
		}
		switch {
		case left == 0:
			return
		case alike && len(jobs) > 1:
			inTurn(jobs, i)
		default:
			for _, j := range jobs {
				if i < len(j.copies) {
					one(j.target.Bytes(), j.source.Bytes(), j.copies[i])
				}
			}
		}
	}
}

// inTurn copies the i-th copies of all jobs, which are alike.
func inTurn(jobs []job, i int) {
	var dst, src [abreast][]byte
	var at [abreast]kvlayout.Copy
	for k, j := range jobs {
		dst[k], src[k], at[k] = j.target.Bytes(), j.source.Bytes(), j.copies[i]
	}
	for range at[0].Count {
		for k := range jobs {
			c := &at[k]
			copy(dst[k][c.Dst:c.Dst+c.Length], src[k][c.Src:])
			c.Dst += c.DstStride
			c.Src += c.SrcStride
		}
	}
}

func one(dst, src []byte, c kvlayout.Copy) {
	for range c.Count {
		copy(dst[c.Dst:c.Dst+c.Length], src[c.Src:])
		c.Dst += c.DstStride
		c.Src += c.SrcStride
	}
}
