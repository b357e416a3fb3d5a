package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
)

// newMover makes the mover of a backend, as an agent does.
func newMover(b agentconfig.Backend, dir, name string) (transport.Mover, error) {
	switch b {
	case agentconfig.TCP:
		return tcp.New("127.0.0.1:0", tcp.Options{})
	case agentconfig.SharedMemory:
		return shm.New(dir, name, shm.Options{})
	case agentconfig.RDMA, agentconfig.XGMI:
	}
	return nil, fmt.Errorf("backend %q moves bytes in the engine, not in agents", b)
}

// mapped makes sealed memory, every page of it touched.
func mapped(size int64) (transport.Memory, func() error, error) {
	f, b, err := memory.CreateSealed("bench", size)
	if err != nil {
		return transport.Memory{}, nil, err
	}
	return transport.Memory{Bytes: b, File: f}, func() error { return errors.Join(memory.Unmap(b), f.Close()) }, nil
}

// fill writes bytes that differ from row to row.
func fill(b []byte) {
	seed := b[:min(1<<20, len(b))]
	_, _ = rand.Read(seed) // it never fails
	for at := len(seed); at < len(b); at += len(seed) {
		copy(b[at:], seed)
		for i := at; i < min(at+len(seed), len(b)); i += rowBytes {
			b[i] ^= byte(i >> 20)
		}
	}
}

func sum(all [][]byte) uint32 {
	h := crc32.NewIEEE()
	for _, b := range all {
		h.Write(b)
	}
	return h.Sum32()
}

// moved posts a batch for each target and waits for all.
func moved(ctx context.Context, s transport.Session, p Pattern, first transport.MemoryID) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	for t, copies := range p.targets {
		wg.Add(1)
		err := s.Post(ctx, transport.Batch{
			Flow:   transport.Flow{Transfer: "bench", Reader: transport.Rank{TP: t}},
			Target: first + transport.MemoryID(t), Copies: copies,
		}, func(_ int64, err error) {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
			wg.Done()
		})
		if err != nil {
			wg.Done()
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		}
	}
	wg.Wait()
	return failed
}

// cpuSeconds is what this process has used.
func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// sharedDir is a folder for the sockets of shm, short enough for a socket's address.
func sharedDir() (string, func(), error) {
	dir, err := os.MkdirTemp("", "pdpool-bench-")
	return dir, func() { os.RemoveAll(dir) }, err //nolint:errcheck // a folder of sockets in the system's temporary one
}
