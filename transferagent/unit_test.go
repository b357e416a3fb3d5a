package transferagent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

func TestLabelsAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range 1000 {
		m.refuse(fmt.Sprintf("rule-%d", i))
		m.drop(portNotify, fmt.Sprintf("reason-%d", i))
	}
	m.refuse("Not A Word\n")
	m.refuse(strings.Repeat("x", 41))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > maxLabels+1 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if strings.HasPrefix(f.GetName(), "pdpool_") && !isWord(l.GetValue()) {
					t.Errorf("%s has the label %q", f.GetName(), l.GetValue())
				}
			}
		}
	}
}

func TestPeerAddresses(t *testing.T) {
	for _, c := range []struct {
		own, host string
		port      int
		good      bool
	}{
		{"10.0.0.1", "10.0.0.2", 6301, true},
		{"fd00::1", "fd00::2", 6301, true},
		{"127.0.0.1", "127.0.0.1", 6301, true},
		{"10.0.0.1", "127.0.0.1", 6301, false},
		{"10.0.0.1", "::1", 6301, false},
		{"10.0.0.1", "::ffff:127.0.0.1", 6301, false},
		{"10.0.0.1", "0.0.0.0", 6301, false},
		{"10.0.0.1", "169.254.169.254", 6301, false},
		{"10.0.0.1", "fe80::1%eth0", 6301, false},
		{"10.0.0.1", "224.0.0.1", 6301, false},
		{"10.0.0.1", "255.255.255.255", 6301, false},
		{"10.0.0.1", "pod.example", 6301, false},
		{"10.0.0.1", "", 6301, false},
		{"10.0.0.1", "10.0.0.2", 0, false},
		{"10.0.0.1", "10.0.0.2", 65536, false},
	} {
		err := checkPeer(session.Peer{Host: c.host, Handshake: c.port, Notify: 7000}, netip.MustParseAddr(c.own))
		if (err == nil) != c.good {
			t.Errorf("peer %q port %d seen from %s: %v", c.host, c.port, c.own, err)
		}
	}
}

func TestQueueKeepsOrderAndBounds(t *testing.T) {
	q := newQueue[int](3)
	for i := range 3 {
		if err := q.put(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.put(3); !errors.Is(err, errFull) {
		t.Fatalf("a fourth of three: %v", err)
	}
	if v, ok := q.take(t.Context()); !ok || v != 0 {
		t.Fatalf("took %d, %v", v, ok)
	}
	q.finish()
	if err := q.put(4); !errors.Is(err, errClosed) {
		t.Fatalf("put after finish: %v", err)
	}
	if v, ok := q.take(t.Context()); !ok || v != 1 {
		t.Fatalf("took %d, %v", v, ok)
	}
	if rest := q.drain(); len(rest) != 1 || rest[0] != 2 {
		t.Fatalf("left are %v", rest)
	}
	if _, ok := q.take(t.Context()); ok {
		t.Fatal("took from an empty queue")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := newQueue[int](1).take(ctx); ok {
		t.Fatal("took after the context's end")
	}
}

// naiveOverlap marks every byte.
func naiveOverlap(a, b kvlayout.Region) bool {
	taken := map[int64]bool{}
	each := func(r kvlayout.Region, f func(int64)) {
		for block := range r.Blocks {
			for head := range r.Heads.Count {
				for token := range r.BlockTokens {
					at := r.Offset + int64(block)*r.BlockStride + int64(head)*r.HeadStride + int64(token)*r.TokenStride
					for i := range r.RowBytes {
						f(at + i)
					}
				}
			}
		}
	}
	each(a, func(at int64) { taken[at] = true })
	met := false
	each(b, func(at int64) { met = met || taken[at] })
	return met
}

func TestNoOverlapIsMissed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	region := func() kvlayout.Region {
		return kvlayout.Region{
			Offset: random.Int64N(40), Blocks: 1 + random.IntN(3), BlockTokens: 1 + random.IntN(3), Heads: kvlayout.HeadRange{Count: 1 + random.IntN(2)},
			BlockStride: 1 + random.Int64N(30), HeadStride: 1 + random.Int64N(15), TokenStride: 1 + random.Int64N(15), RowBytes: 1 + random.Int64N(3),
		}
	}
	apart := 0
	for range 200_000 {
		a, b := region(), region()
		if random.IntN(2) == 0 {
			b.BlockStride, b.HeadStride, b.TokenStride, b.Blocks, b.BlockTokens, b.Heads = a.BlockStride, a.HeadStride, a.TokenStride, a.Blocks, a.BlockTokens, a.Heads
		}
		if a.Validate() != nil || b.Validate() != nil {
			continue
		}
		switch got := overlap(a, b); {
		case !got && naiveOverlap(a, b):
			t.Fatalf("%+v and %+v share bytes", a, b)
		case !got:
			apart++
		}
	}
	if apart < 1000 {
		t.Fatalf("only %d pairs are told apart", apart)
	}
}

func TestLayersNestedInBlocksAreApart(t *testing.T) {
	// Block by block, head by head, then the layers: what one allocation for all layers may look like.
	const layers, heads, tokens, row = 4, 2, 8, 16
	for layer := range layers - 1 {
		a := kvlayout.Region{
			Offset: int64(layer) * tokens * row, Blocks: 5, BlockTokens: tokens, Heads: kvlayout.HeadRange{Count: heads}, RowBytes: row,
			TokenStride: row, HeadStride: layers * tokens * row, BlockStride: heads * layers * tokens * row,
		}
		b := a
		b.Layer, b.Offset = layer+1, a.Offset+tokens*row
		if overlap(a, b) {
			t.Errorf("layers %d and %d count as overlapping", layer, layer+1)
		}
		b.Offset--
		if !overlap(a, b) {
			t.Errorf("layers %d and %d share a byte", layer, layer+1)
		}
	}
}

func TestRegionsAreHeldToTheConfiguration(t *testing.T) {
	cfg := agentconfig.Config{Layout: kvlayout.Layout{TP: 2}, Block: 8, KVType: kvlayout.BF16, KV: grouped}
	p := &pod{cfg: cfg}
	hello := kvproto.Hello{TP: 1, Blocks: testBlocks}
	good := p.regions(1)
	size := good[len(good)-1].End()
	if err := checkRegions(&cfg, hello, size, good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text   string
		change func([]kvlayout.Region) []kvlayout.Region
	}{
		{"1 regions were handed over, grouped has 2 layers", func(r []kvlayout.Region) []kvlayout.Region { return r[:1] }},
		{"layer 0 was handed over twice", func(r []kvlayout.Region) []kvlayout.Region { r[1].Layer = 0; return r }},
		{"layer 2 is outside the 2 layers", func(r []kvlayout.Region) []kvlayout.Region { r[1].Layer = 2; return r }},
		{"39 blocks, the connection announced 40", func(r []kvlayout.Region) []kvlayout.Region { r[0].Blocks--; return r }},
		{"blocks of 4 tokens, the pool's have 8", func(r []kvlayout.Region) []kvlayout.Region { r[0].BlockTokens = 4; return r }},
		{"KV heads 0-1, rank 1 of tp 2 holds 2-3", func(r []kvlayout.Region) []kvlayout.Region { r[0].Heads.First = 0; return r }},
		{"rows of 8 bytes", func(r []kvlayout.Region) []kvlayout.Region { r[0].RowBytes = 8; return r }},
		{"offset -1 is negative", func(r []kvlayout.Region) []kvlayout.Region { r[0].Offset = -1; return r }},
		{"ends at byte", func(r []kvlayout.Region) []kvlayout.Region { r[1].Offset++; return r }},
		{"layers 0 and 1 overlap", func(r []kvlayout.Region) []kvlayout.Region { r[1].Offset--; return r }},
	} {
		if err := checkRegions(&cfg, hello, size, c.change(p.regions(1))); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestAgentEndsWithItsFirstServiceAndSaysWhich(t *testing.T) {
	closed := 0
	a := &Agent{
		serving: []service{
			{"healthy part", func(ctx context.Context) error { <-ctx.Done(); return nil }},
			{"broken part", func(context.Context) error { return errors.New("no more") }},
		},
		closing: []func() error{func() error { closed++; return nil }},
	}
	err := a.Run(t.Context())
	if err == nil || err.Error() != "broken part: ended before the agent: no more" || closed != 1 {
		t.Fatalf("%v, closed %d times", err, closed)
	}
}

// A peer may keep a silent connection to the notify port only.
func TestIdleConnectionsEndWhereNobodyNeedsThem(t *testing.T) {
	m := newMetrics()
	if o := controlOptions(m, portHandshake, &keyring{}); o.Idle <= 0 || o.Idle > time.Minute {
		t.Errorf("the handshake port keeps idle connections for %s", o.Idle)
	}
	if o := controlOptions(m, portNotify, &keyring{}); o.Idle != 0 {
		t.Errorf("the notify port ends connections of peers that have nothing to say after %s", o.Idle)
	}
}

// One host's connections leave room for those of others, the kubelet's say.
func TestOneHostDoesNotTakeTheProbesPlaces(t *testing.T) {
	pod := startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), nil)
	at := endpoint(pod.ip, pod.cfg.Ports.Agent)
	probe := func(from string) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: within}
		c := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: within}
		res, err := c.Get("http://" + at + "/healthz")
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
	for range httpConns + 8 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for range 20 {
		if err := probe("127.0.0.9"); err != nil {
			t.Fatalf("a probe fails: %v", err)
		}
	}
	// Nor those of their own host's probes.
	for range 20 {
		if err := probe(pod.ip); err != nil {
			t.Fatalf("a probe from the crowd's host fails: %v", err)
		}
	}
	if _, metrics := pod.get("/metrics"); !strings.Contains(metrics, `dropped_messages_total{port="http",reason="too-many"}`) {
		t.Error("nothing is counted")
	}
}

func TestTheLongestNotificationIsTaken(t *testing.T) {
	m := moriio.RemoteBlocks{
		RequestID: strings.Repeat("x", moriio.MaxString), Transfer: strings.Repeat("x", moriio.MaxString),
		Blocks: make([]int32, moriio.MaxBlocks), DecodeRank: math.MaxInt32,
		PDPool: &moriio.Allocation{Epoch: math.MaxUint64, Host: strings.Repeat("x", moriio.MaxString), Handshake: 1, Notify: 1},
	}
	for i := range m.Blocks {
		m.Blocks[i] = math.MaxInt32
	}
	b := m.Append(nil)
	if len(b) > maxNotify {
		t.Fatalf("%d bytes, the port takes %d", len(b), maxNotify)
	}
	if _, err := moriio.ParseNotify(b); err != nil {
		t.Fatal(err)
	}
}

func TestStrangersOnTheDataPortAreCounted(t *testing.T) {
	pod := startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), nil)
	c, err := net.Dial("tcp", endpoint(pod.ip, pod.cfg.Ports.Data))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, metrics := pod.get("/metrics"); !strings.Contains(metrics, `dropped_messages_total{port="data",reason=`) {
			return errors.New("nothing is counted")
		}
		return nil
	})
}

// What engines are told that an agent may be silent for is longer than each of its waits.
func TestSilenceCoversAllDeadlines(t *testing.T) {
	for want, timeouts := range map[time.Duration]agentconfig.Timeouts{
		220 * time.Second:  {Transfer: 30, Defer: 60, ReceiveAbort: 120},
		kvproto.MaxSilence: {Transfer: 1 << 30, Defer: 1 << 30, ReceiveAbort: 1 << 30},
	} {
		if got := longestSilence(timeouts); got != want {
			t.Errorf("%+v: %v, want %v", timeouts, got, want)
		}
	}
	cfg := podConfig(t, kvlayout.Decode, latent, dealt)
	pod := startPod(t, cfg, nil)
	if got := pod.mustDial(pod.hello(kvproto.Scheduler, 0)).Silence(); got != longestSilence(cfg.Timeouts) {
		t.Errorf("the engine is told %v", got)
	}
}
