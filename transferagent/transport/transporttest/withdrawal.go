package transporttest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// some posts n batches into memory 2 and gives their results in order.
func (p *pair) some(s transport.Session, n int, b transport.Batch) []<-chan result {
	out := make([]<-chan result, n)
	for i := range out {
		out[i] = p.post(s, b)
	}
	return out
}

func (p *pair) all(posted []<-chan result) []result {
	out := make([]result, len(posted))
	for i, c := range posted {
		out[i] = p.await(c)
	}
	return out
}

const several = 40 // batches, fewer than any mover's queue

// unregisterTarget: after Unregister returns nobody writes into the memory.
func unregisterTarget(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, size)
	dst := p.register(p.b, 2, size)
	p.register(p.b, 3, small)
	s := p.dial()
	b := transport.Batch{Flow: flow("withdrawn"), Source: 1, Target: 2, Copies: whole(size)}
	posted := p.some(s, several, b)
	p.await(posted[0])
	p.b.Unregister(2)
	poisoned(dst)
	last := p.post(s, b)
	results := p.all(append(posted[1:], last))
	failedFrom(t, results, transport.ErrUnknownMemory)
	p.move(s, transport.Batch{Flow: flow("fine"), Source: 1, Target: 3, Copies: whole(small)})
	p.barrier()
	if !isPoison(dst) {
		t.Error("bytes arrived after Unregister")
	}
	p.b.Unregister(2)
}

// failedFrom demands that the last batch failed, and that whatever failed did
// so with want.
func failedFrom(t *testing.T, results []result, want error) {
	t.Helper()
	for i, r := range results {
		if r.err != nil && !errors.Is(r.err, want) {
			t.Errorf("batch %d: %v, want %v", i, r.err, want)
		}
	}
	if last := results[len(results)-1]; last.err == nil {
		t.Error("the last batch went well")
	}
}

// unregisterSource: after Unregister returns nobody reads the memory.
func unregisterSource(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, small)
	f, src, err := memory.CreateSealed("source", size)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.a.Register(4, transport.Memory{Bytes: src, File: f}); err != nil {
		t.Fatal(err)
	}
	p.register(p.b, 2, size)
	s := p.dial()
	b := transport.Batch{Flow: flow("withdrawn"), Source: 4, Target: 2, Copies: whole(size)}
	posted := p.some(s, several, b)
	p.await(posted[0])
	p.a.Unregister(4)
	if err := errors.Join(memory.Unmap(src), f.Close()); err != nil { // a late read dies here
		t.Fatal(err)
	}
	for i, r := range p.all(posted[1:]) {
		if r.err != nil && !errors.Is(r.err, transport.ErrUnknownMemory) {
			t.Errorf("batch %d: %v, want ErrUnknownMemory", i, r.err)
		}
	}
	if err := s.Post(t.Context(), b, func(int64, error) {}); !errors.Is(err, transport.ErrUnknownMemory) {
		t.Errorf("%v, want ErrUnknownMemory", err)
	}
	p.move(s, transport.Batch{Flow: flow("fine"), Source: 1, Target: 2, Copies: whole(small)})
}

// registerAgain: an id can be used for other memory once it is free, not before.
func registerAgain(t *testing.T, p *pair) {
	src := p.register(p.a, 1, small)
	fill(src, 1)
	s := p.dial()
	b := transport.Batch{Flow: flow("again"), Source: 1, Target: 2, Copies: whole(small)}
	if r := p.await(p.post(s, b)); !errors.Is(r.err, transport.ErrUnknownMemory) {
		t.Errorf("%v, want ErrUnknownMemory", r.err)
	}
	for range 3 {
		f, dst, err := memory.CreateSealed("again", small)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.b.Register(2, transport.Memory{Bytes: dst, File: f}); err != nil {
			t.Fatalf("register: %v", err)
		}
		if err := p.b.Register(2, transport.Memory{Bytes: dst, File: f}); err == nil {
			t.Error("an id was registered twice")
		}
		p.move(s, b)
		if !bytes.Equal(dst, src) {
			t.Error("bytes went elsewhere")
		}
		p.b.Unregister(2)
		if err := errors.Join(memory.Unmap(dst), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.b.Register(2, transport.Memory{}); err == nil {
		t.Error("empty memory was registered")
	}
}

// revoke: after Revoke returns no byte of the transfer arrives; others do.
func revoke(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, size)
	dst := p.register(p.b, 2, size)
	p.register(p.b, 3, small)
	s := p.dial()
	b := transport.Batch{Flow: flow("revoked"), Source: 1, Target: 2, Copies: whole(size)}
	posted := p.some(s, several, b)
	p.await(posted[0])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.b.Revoke(ctx, "revoked"); err != nil {
		t.Fatalf("revoke: %v", err)
	}
	before := sum(p.b.Received("revoked"))
	poisoned(dst)
	last := p.post(s, b)
	results := p.all(append(posted[1:], last))
	failedFrom(t, results, transport.ErrRevoked)
	p.move(s, transport.Batch{Flow: flow("fine"), Source: 1, Target: 3, Copies: whole(small)})
	p.barrier()
	if !isPoison(dst) {
		t.Error("bytes arrived after Revoke")
	}
	if after := sum(p.b.Received("revoked")); after < before {
		t.Errorf("received fell from %d to %d", before, after)
	}
	if err := p.b.Revoke(ctx, "revoked"); err != nil {
		t.Errorf("second revoke: %v", err)
	}
}

func sum(counts []transport.Count) int64 {
	n := int64(0)
	for _, c := range counts {
		n += c.Bytes
	}
	return n
}

// revokedBefore: a transfer can be revoked before its first byte, and before
// its writer connects.
func revokedBefore(t *testing.T, p *pair) {
	p.register(p.a, 1, small)
	dst := p.register(p.b, 2, small)
	poisoned(dst)
	if err := p.b.Revoke(t.Context(), "early"); err != nil {
		t.Fatal(err)
	}
	s := p.dial()
	for range 2 {
		r := p.await(p.post(s, transport.Batch{Flow: flow("early"), Source: 1, Target: 2, Copies: whole(small)}))
		if !errors.Is(r.err, transport.ErrRevoked) || r.moved != 0 {
			t.Errorf("moved %d, %v, want ErrRevoked", r.moved, r.err)
		}
	}
	if !isPoison(dst) {
		t.Error("a revoked transfer touched the target")
	}
	p.move(s, transport.Batch{Flow: flow("other"), Source: 1, Target: 2, Copies: whole(small)})
}

// dialNothing: a peer that is not there is told within the deadline.
func dialNothing(t *testing.T, p *pair) {
	addr := p.b.Address()
	if len(addr) > transport.MaxAddress {
		t.Errorf("address has %d bytes", len(addr))
	}
	if err := p.b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if s, err := p.a.Dial(ctx, p.host, addr); err == nil {
		s.Close() //nolint:errcheck // it should not be there
		t.Error("a closed mover answered")
	}
	if ctx.Err() != nil {
		t.Error("dial did not end by itself")
	}
	over, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := p.b.Dial(over, p.host, p.a.Address()); err == nil {
		t.Error("dial succeeded after its deadline")
	}
}

// dialOther: an address that is none is refused with ErrAddress.
func dialOther(t *testing.T, p *pair) {
	for _, addr := range []string{"", "x", "PDT1", "PDS1", "PDM1", string(make([]byte, 40)), string(make([]byte, 5000))} {
		if _, err := p.a.Dial(t.Context(), p.host, []byte(addr)); !errors.Is(err, transport.ErrAddress) {
			t.Errorf("address %q: %v, want ErrAddress", addr, err)
		}
	}
}
