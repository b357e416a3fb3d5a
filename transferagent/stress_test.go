package transferagent

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/transport/mem"
)

func TestGarbageEndsNoListener(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	noise := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 512)),
		make([]byte, 4096),
		{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3},
		nil,
	}
	rand.Read(noise[2])
	var group sync.WaitGroup
	stop := make(chan struct{})
	defer group.Wait()
	defer close(stop)
	for _, pod := range []*pod{p.prefill.pod, p.decode.pod} {
		for _, port := range []int{pod.cfg.Ports.Handshake, pod.cfg.Ports.Notify, pod.cfg.Ports.Data, pod.cfg.Ports.Agent} {
			group.Go(func() { shout(stop, "tcp", endpoint(pod.ip, port), noise) })
		}
		group.Go(func() { shout(stop, "unix", pod.cfg.KVSocket, noise) })
	}
	for i := range 20 {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
	}
	for _, pod := range []*pod{p.prefill.pod, p.decode.pod} {
		for _, port := range []string{portHandshake, portNotify, "kv"} {
			eventually(t, func() error {
				if _, metrics := pod.get("/metrics"); !strings.Contains(metrics, fmt.Sprintf("pdpool_agent_dropped_messages_total{port=%q", port)) {
					return fmt.Errorf("nothing was dropped at port %s of %s", port, pod.cfg.Role)
				}
				return nil
			})
		}
	}
}

// shout sends noise to a port, again and again.
func shout(stop <-chan struct{}, network, address string, noise [][]byte) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		c, err := net.DialTimeout(network, address, time.Second)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = c.Write(noise[i%len(noise)])
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
}

// crowd opens connections to each port, says something on some and keeps the last ones open.
func crowd(stop <-chan struct{}, ports []string, noise [][]byte) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		c, err := net.DialTimeout("tcp", ports[i%len(ports)], time.Second)
		if err != nil {
			continue
		}
		_, _ = c.Write(noise[i/len(ports)%len(noise)])
		if open = append(open, c); len(open) > 500 {
			_ = open[0].Close()
			open = open[1:]
		}
	}
}

func TestManyTransfersAtOnce(t *testing.T) {
	for _, backend := range []string{"tcp", "shm"} {
		t.Run(backend, func(t *testing.T) {
			p := startPair(t, backend, grouped, kvlayout.Layout{TP: 4}, kvlayout.Layout{TP: 2})
			var prompts []prompt
			for i := range int32(testBlocks) {
				prompts = append(prompts, prompt{
					id: fmt.Sprintf("tx-%d", i), salt: int(i), tokens: 8, source: []int32{i}, target: []int32{testBlocks - 1 - i},
				})
			}
			for _, r := range prompts {
				p.start(t, r)
			}
			for _, r := range prompts {
				p.fill(t, r)
			}
			for _, w := range slices.Concat(p.decode.workers, p.prefill.workers) {
				for range prompts {
					if m := next(t, w.client); m.Type() != (kvproto.Done{}).Type() {
						t.Fatalf("agent says %s %+v", m.Type(), m)
					}
				}
			}
			for _, r := range prompts {
				p.check(t, r)
				p.account(t, r)
			}
		})
	}
}

// startOn starts a pair on a network that can be disturbed.
func startOn(t *testing.T, n *mem.Network) *pair {
	t.Helper()
	pp := startPod(t, podConfig(t, kvlayout.Prefill, latent, plain), memMover(t, n, "prefill"))
	dp := startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), memMover(t, n, "decode"))
	return &pair{prefill: pp.connect(), decode: dp.connect()}
}

func TestNothingIsWrittenAfterQuiet(t *testing.T) {
	n := memNetwork(7)
	n.SetFaults("prefill", "decode", mem.Faults{Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond, Reorder: true})
	p := startOn(t, n)
	r := p.prompt("tx-abort", 1, 60)
	p.start(t, r)
	// Without its last layer the transfer can't end before it is aborted.
	p.save(t, r, latent.Layers-1)
	// Once something has landed, the rest is still under way.
	eventually(t, func() error {
		if v, err := p.decode.pod.look(r.id); err != nil || len(v.Received) == 0 {
			return fmt.Errorf("nothing received: %+v, %w", v, err)
		}
		return nil
	})
	send(t, p.decode.sched, kvproto.Abort{Transfer: r.id})
	expect(t, p.decode.sched, kvproto.Quiet{Transfer: r.id})
	poison := func(w *worker) {
		for i := range w.memory {
			w.memory[i] = 0xee
		}
	}
	for _, w := range p.decode.workers {
		poison(w)
	}
	for _, w := range p.prefill.workers {
		next(t, w.client)
	}
	next(t, p.prefill.sched)
	for _, w := range p.decode.workers {
		if i := slices.IndexFunc(w.memory, func(b byte) bool { return b != 0xee }); i >= 0 {
			t.Fatalf("byte %d of rank %d was written after quiet", i, w.tp)
		}
	}
}

func TestCutLinkFailsItsTransfersAndHeals(t *testing.T) {
	n := memNetwork(1)
	p := startOn(t, n)
	p.serves(t, "tx-before", 1)
	n.Freeze("prefill", "decode")
	r := p.prompt("tx-cut", 2, 60)
	p.start(t, r)
	p.fill(t, r)
	p.prefill.pod.moves(r.id)
	n.Cut("prefill", "decode")
	n.Thaw("prefill", "decode")
	p.prefill.failsSomehow(t, r.id)
	p.decode.failsSomehow(t, r.id)
	eventually(t, func() error {
		if _, text := p.prefill.pod.get("/metrics"); !strings.Contains(text, "pdpool_agent_mover_sessions 0\n") {
			return fmt.Errorf("the cut session is still there")
		}
		return nil
	})
	n.Heal("prefill", "decode")
	p.serves(t, "tx-after", 3)
}

func TestTransferOverIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	_ = probe.Close()
	pods := [2]*pod{}
	for i, cfg := range []struct {
		role   kvlayout.Role
		layout kvlayout.Layout
	}{{kvlayout.Prefill, plain}, {kvlayout.Decode, dealt}} {
		pods[i] = startPodWith(t, Options{Config: podConfig(t, cfg.role, latent, cfg.layout), PodIP: netip.IPv6Loopback(), PodName: "pod-0"})
	}
	p := &pair{prefill: pods[0].connect(), decode: pods[1].connect()}
	p.serves(t, "tx-6", 1)
}
