package bench

import (
	"errors"
	"io"
	"net"
)

// plain are the contenders without a mover, and the memory that they work on.
type plain struct {
	p      Pattern
	src    []byte
	dst    [][]byte
	stream net.Conn // to the peer, which reads as many bytes as the pattern has and answers one
	gather []byte   // 1 MiB
}

// memcpy copies all pieces, target after target, in one goroutine.
func (c *plain) memcpy() error {
	for t, copies := range c.p.targets {
		for _, k := range copies {
			for i := range int64(k.Count) {
				s, d := k.Src+i*k.SrcStride, k.Dst+i*k.DstStride
				copy(c.dst[t][d:d+k.Length], c.src[s:s+k.Length])
			}
		}
	}
	return nil
}

// inOrder copies row by row in the order of the source, all targets at once.
func (c *plain) inOrder() error {
	for k := range c.p.targets[0] {
		for i := range int64(c.p.targets[0][k].Count) {
			for t, copies := range c.p.targets {
				one := copies[k]
				s, d := one.Src+i*one.SrcStride, one.Dst+i*one.DstStride
				copy(c.dst[t][d:d+one.Length], c.src[s:s+one.Length])
			}
		}
	}
	return nil
}

// flat sends as many bytes over one TCP connection, in writes of 1 MiB.
func (c *plain) flat() error {
	for left := c.src[:c.p.Bytes()]; len(left) > 0; left = left[min(1<<20, len(left)):] {
		if _, err := c.stream.Write(left[:min(1<<20, len(left))]); err != nil {
			return err
		}
	}
	return c.answered()
}

// gathered sends the pieces over one TCP connection, gathered into writes of 1 MiB.
// They arrive flat: nobody scatters them.
func (c *plain) gathered() error {
	b := c.gather[:0]
	for _, copies := range c.p.targets {
		for _, k := range copies {
			for i := range int64(k.Count) {
				for left := c.src[k.Src+i*k.SrcStride:][:k.Length]; len(left) > 0; {
					n := min(len(left), cap(b)-len(b))
					b, left = append(b, left[:n]...), left[n:]
					if len(b) < cap(b) {
						continue
					}
					if _, err := c.stream.Write(b); err != nil {
						return err
					}
					b = b[:0]
				}
			}
		}
	}
	if _, err := c.stream.Write(b); err != nil {
		return err
	}
	return c.answered()
}

func (c *plain) answered() error {
	var one [1]byte
	_, err := io.ReadFull(c.stream, one[:])
	return err
}

// absorb is the peer's side of flat and gathered: it reads into buf, answers and
// goes on until the connection ends.
func absorb(c net.Conn, buf []byte) error {
	for {
		if _, err := io.ReadFull(c, buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
	}
}
