package tcp

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	stagingSize = 256 << 10 // for short pieces on their way to their places; stays in the cache
	maxVectors  = 256       // places that one read fills
)

// placer reads the payload of a frame from a connection into its places.
type placer struct {
	conn *net.TCPConn
	left int64 // bytes of the payload that have been neither placed nor discarded

	raw syscall.RawConn

	*intake            // of the frame that is being read
	due          int64 // bytes of vectors
	from, to     int   // staging between them was read and not yet placed
	shortInFrame int64 // bytes of the payload that may still be read into staging
}

// place fills all runs, which must lie within mem. On an error left tells what
// was not placed.
func (p *placer) place(mem []byte, all runs) error {
	p.vectors, p.due = p.vectors[:0], 0
	p.from, p.to, p.shortInFrame = 0, 0, 0
	for i := range all.len() {
		r := all.at(i)
		if r.length >= direct {
			if err := p.long(mem, r); err != nil {
				return err
			}
			continue
		}
		if err := p.flush(); err != nil {
			return err
		}
		if p.shortInFrame == 0 && p.from == p.to {
			p.shortInFrame = shortBytes(all[i*runSize:])
		}
		if err := p.short(mem, r); err != nil {
			return err
		}
	}
	return p.flush()
}

// shortBytes sums the runs of short pieces that come next.
func shortBytes(all runs) int64 {
	n := int64(0)
	for i := range all.len() {
		r := all.at(i)
		if r.length >= direct {
			break
		}
		n += r.length * r.count
	}
	return n
}

func (p *placer) long(mem []byte, r run) error {
	for i := range r.count {
		at := r.offset + i*r.stride
		p.vectors = append(p.vectors, mem[at:at+r.length])
		p.due += r.length
		if len(p.vectors) == maxVectors {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush reads the long pieces straight into their places.
func (p *placer) flush() error {
	vectors := p.vectors
	for p.due > 0 {
		n, err := p.readv(vectors)
		p.due -= int64(n)
		p.left -= int64(n)
		if err != nil {
			return err
		}
		for n > 0 {
			k := min(n, len(vectors[0]))
			n -= k
			if vectors[0] = vectors[0][k:]; len(vectors[0]) == 0 {
				vectors = vectors[1:]
			}
		}
	}
	p.vectors = p.vectors[:0]
	return nil
}

// readv is one read into several places. It honours the connection's deadline.
func (p *placer) readv(vectors [][]byte) (n int, err error) {
	if len(vectors) == 1 {
		return p.conn.Read(vectors[0])
	}
	if p.raw == nil {
		if p.raw, err = p.conn.SyscallConn(); err != nil {
			return 0, err
		}
	}
	var failed error
	err = p.raw.Read(func(fd uintptr) bool {
		for {
			n, failed = unix.Readv(int(fd), vectors)
			if !errors.Is(failed, unix.EINTR) {
				return !errors.Is(failed, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// short places a run of short pieces by way of staging.
func (p *placer) short(mem []byte, r run) error {
	for i := range r.count {
		if p.to-p.from < int(r.length) {
			if err := p.fill(int(r.length)); err != nil {
				return err
			}
		}
		at := r.offset + i*r.stride
		copy(mem[at:at+r.length], p.staging[p.from:])
		p.from += int(r.length)
		p.left -= r.length
	}
	return nil
}

// fill reads into staging until it holds need bytes, and what comes along.
func (p *placer) fill(need int) error {
	p.to = copy(p.staging, p.staging[p.from:p.to])
	p.from = 0
	room := min(int64(len(p.staging)-p.to), p.shortInFrame)
	n, err := io.ReadAtLeast(p.conn, p.staging[p.to:p.to+int(room)], need-p.to)
	p.to += n
	p.shortInFrame -= int64(n)
	return err
}

// discard reads the rest of the payload to nowhere.
func (p *placer) discard() error {
	// What is in staging has been read, but counts as left.
	p.left -= int64(p.to - p.from)
	p.from, p.to = 0, 0
	for p.left > 0 {
		n, err := p.conn.Read(p.staging[:min(p.left, int64(len(p.staging)))])
		p.left -= int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}
