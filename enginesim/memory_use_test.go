package enginesim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// What streams cost beside the KV memory is modest: many simulators run on one machine.
func TestMemoryOfStreams(t *testing.T) {
	for _, n := range []int{64, 256} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			in := start(t, "--sim-geometry", latentJSON, "--kv-cache-memory-bytes", "8M")
			before := heap()
			ctx, cancel := context.WithCancel(t.Context())
			var open, ended sync.WaitGroup
			open.Add(n)
			for i := range n {
				ended.Go(func() { holdStream(ctx, t, in, i, &open) })
			}
			open.Wait()
			if used := heap() - before; used > int64(n)<<17 {
				t.Errorf("%d streams use %d KiB, server and clients, more than 128 each", n, used>>10)
			}
			cancel()
			ended.Wait()
			sound(t, in)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one has met in use
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// holdStream reads a stream until ctx ends; opened is done at its first byte. No more
// than a token comes: what going on allocates while memory is counted counts too.
func holdStream(ctx context.Context, t *testing.T, in *Instance, i int, opened *sync.WaitGroup) {
	once := sync.OnceFunc(opened.Done)
	defer once()
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":100,"stream":true}`, words(10, i))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url("/v1/completions"), strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set(MishapHeader, "hang:after=1")
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := res.Body.Read(make([]byte, 1)); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("stream %d: %d, %v", i, res.StatusCode, err)
		return
	}
	once()
	_, _ = io.Copy(io.Discard, res.Body) // to its end, or ctx's
}
