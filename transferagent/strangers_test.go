package transferagent

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/zmtp"
)

// dealerGreeting is what opens a ZMTP connection, READY included.
func dealerGreeting() []byte {
	b := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
	return append(b, "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"...)
}

// longFrame begins a frame of n bytes and does not end it.
func longFrame(n, sent int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{2}, uint64(n))
	return append(b, make([]byte, sent)...)
}

// Each kind of noise on each port ends its own connection in time, is counted where it
// says something, and leaves the agent with the memory that it had.
func TestNoiseOfEachKindIsCounted(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	random := make([]byte, 512)
	rand.Read(random)
	random[0] = 'x'
	kinds := []struct {
		name, reason string
		said         []byte
	}{
		{"HTTP", zmtp.NotZMTP, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"TLS", zmtp.NotZMTP, append([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), random...)},
		{"random bytes", zmtp.NotZMTP, random},
		{"an old ZMTP", zmtp.OldVersion, append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1}, random...)},
		{"a long frame", zmtp.FrameTooLong, append(dealerGreeting(), longFrame(1<<30, 100)...)},
		{"a long frame that would be short enough of a peer", zmtp.FrameTooLong, append(dealerGreeting(), longFrame(maxNotify, 100)...)},
		{"reserved flags", zmtp.BadFrame, append(dealerGreeting(), 0xf8, 0)},
		{"a command", zmtp.BadCommand, append(dealerGreeting(), "\x04\x05\x04QUIT"...)},
		{"a message", "", append(dealerGreeting(), "\x00\x05hello"...)},
		{"half a frame", zmtp.Unproven, append(dealerGreeting(), longFrame(1000, 1)...)},
		{"half a greeting", zmtp.HandshakeTimeout, dealerGreeting()[:20]},
	}
	ports := map[string]int{portHandshake: p.decode.pod.cfg.Ports.Handshake, portNotify: p.decode.pod.cfg.Ports.Notify}
	for _, k := range kinds {
		for name, port := range ports {
			reason := k.reason
			if reason == "" {
				reason = map[string]string{portHandshake: "unknown-request", portNotify: reasonUnproven}[name]
			}
			before := dropped(t, p.decode.pod, name, reason)
			c, err := net.Dial("tcp", endpoint(p.decode.pod.ip, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if err := c.SetDeadline(time.Now().Add(within)); err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(k.said)
			if reason == zmtp.Unproven || reason == zmtp.HandshakeTimeout {
				continue // see below: it takes its time
			}
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatalf("%s on port %s: %v", k.name, name, err)
			}
			eventually(t, func() error {
				if n := dropped(t, p.decode.pod, name, reason); n != before+1 {
					return fmt.Errorf("%s on port %s is counted %d times as %s", k.name, name, n-before, reason)
				}
				return nil
			})
		}
	}
	p.serves(t, "tx-after", 2)
	for name := range ports {
		for _, reason := range []string{zmtp.Unproven, zmtp.HandshakeTimeout} {
			eventually(t, func() error {
				if dropped(t, p.decode.pod, name, reason) == 0 {
					return fmt.Errorf("nothing on port %s ends as %s", name, reason)
				}
				return nil
			})
		}
	}
}

// Many strangers who each begin all that they may cost little.
func TestCrowdsTakeLittleMemory(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	before := heap()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	said := append(dealerGreeting(), longFrame(trialMessage, trialMessage-1)...)
	for i := range 2000 {
		port := p.decode.pod.cfg.Ports.Notify
		if i%2 == 0 {
			port = p.decode.pod.cfg.Ports.Handshake
		}
		c, err := net.Dial("tcp", endpoint(p.decode.pod.ip, port))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_, _ = c.Write(said)
	}
	const most = 16 << 20
	if grown := heap() - before; grown > most {
		t.Errorf("%d strangers take %d bytes", len(open), grown)
	}
	p.serves(t, "tx-beside", 2)
	if n := dropped(t, p.decode.pod, portNotify, zmtp.MadeRoom); n == 0 {
		t.Error("nobody made room")
	}
}

// Ten thousand messages of a stranger who has no secret, and of a peer that has gone
// mad, are counted and stop no transfer.
func TestManyMalformedMessages(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	mad := call(t, p.decode.pod, p.decode.pod.cfg.Ports.Notify)
	mad.say("a", &moriio.Hello{Epoch: 1})
	wrong := (&moriio.WriteDone{Transfer: "tx-none", PDPool: &moriio.Report{Epoch: 1}}).Append(nil)
	const messages = 10_000
	ended := make(chan error, 1)
	go func() {
		for i := range uint64(messages) {
			if err := mad.d.Send(t.Context(), sealed(t, "a", bytes.Clone(wrong), mad.d.Challenge(), 1+i)); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for i := range 10 {
		p.serves(t, fmt.Sprintf("tx-%d", i), i)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := dropped(t, p.decode.pod, portNotify, "unknown-transfer"); n != messages {
			return fmt.Errorf("%d messages are counted", n)
		}
		return nil
	})
}

// What strangers cause is logged at a bounded rate.
func TestNoiseIsLoggedAtABoundedRate(t *testing.T) {
	var log bytes.Buffer
	n := noisy{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 1000 {
		n.warn("a stranger", "from", "here")
	}
	if got := strings.Count(log.String(), "\n"); got != 1 {
		t.Errorf("%d lines", got)
	}
	n.last = n.last.Add(-noisyEvery)
	n.warn("a stranger", "from", "here")
	if !strings.Contains(log.String(), "more=999") || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log says %s", log.String())
	}
}

// A crowd that begins requests and does not end them keeps no probe out.
func TestSlowClientsKeepNoProbeOut(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	at := endpoint(p.decode.pod.ip, p.decode.pod.cfg.Ports.Agent)
	for range 4 * httpHostConns {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nX-Slow: ")
	}
	if status, body := p.decode.pod.get("/healthz"); status != http.StatusOK {
		t.Errorf("a probe is answered %d %s", status, body)
	}
}
