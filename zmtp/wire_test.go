package zmtp_test

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/zmtp"
)

// greeting and the READY of a DEALER, as libzmq puts them on a socket.
var (
	greeting = unhex("ff00000000000000017f03014e554c4c" + strings.Repeat("00", 48))
	ready    = unhex("04290552454144590b536f636b65742d54797065000000064445414c4552084964656e7469747900000000")
)

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// What real sockets send, byte for byte.
func TestBytesOnTheWire(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, echo)
	c := connect(t, r, greeting+ready+"\x00\x02hi")
	want := greeting + strings.NewReplacer("DEALER", "ROUTER").Replace(ready) + "\x01\x00\x00\x02hi"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("ROUTER sends (%v)\n%x, want\n%x", err, got, want)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	sent := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, want[:len(greeting)+len(ready)])
		got := make([]byte, len(greeting)+len(ready)+4)
		_, _ = io.ReadFull(c, got)
		sent <- string(got)
	}()
	d := dial(t, l.Addr().String(), zmtp.Options{})
	if err := d.Send(t.Context(), []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if got, want := within(t, sent), greeting+ready+"\x00\x02hi"; got != want {
		t.Errorf("DEALER sends\n%x, want\n%x", got, want)
	}
}

// connect opens a raw connection and writes text to it.
func connect(t *testing.T, r *zmtp.Router, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever connects is counted and turned away, and the listener goes on.
func TestRouterSurvives(t *testing.T) {
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	noise[0] &= 0x7f // not a signature
	hello := greeting + ready
	ended := make(chan string, 1)
	var handled atomic.Int64
	r := serve(t, "127.0.0.1:0", zmtp.Options{
		MaxFrame: 1000, MaxMessage: 1500, MaxFrames: 3, Count: func(reason string) { ended <- reason },
	}, func(p *zmtp.Peer, frames [][]byte) {
		handled.Add(1)
		echo(p, frames)
	})
	for _, tc := range []struct{ name, text, reason string }{
		{"a bare connect", "", zmtp.Probe},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", zmtp.NotZMTP},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", zmtp.NotZMTP},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + string(noise[:500]), zmtp.NotZMTP},
		{"noise", string(noise), zmtp.NotZMTP},
		{"ZMTP 1.0", "\x01\x00\x0d\x00get_meta_msg", zmtp.NotZMTP},
		{"a signature with another end", "\xff" + strings.Repeat("\x00", 8) + "\x7e" + hello, zmtp.NotZMTP},
		{"ZMTP 2.0", greeting[:10] + "\x01\x05\x00\x00", zmtp.OldVersion},
		{"PLAIN", greeting[:12] + "PLAIN" + strings.Repeat("\x00", 47), zmtp.Mechanism},
		{"half a signature", greeting[:5], zmtp.Cut},
		{"half a greeting", greeting[:40], zmtp.Cut},
		{"no READY", greeting, zmtp.Cut},
		{"a message before READY", greeting + "\x00\x01x", zmtp.BadHandshake},
		{"another command before READY", greeting + "\x04\x05\x04PING", zmtp.BadHandshake},
		{"a READY over the limit", greeting + "\x06\x00\x00\x00\x00\x00\x10\x00\x00", zmtp.BadHandshake},
		{"a broken READY", greeting + "\x04\x0a\x05READY\x09abc", zmtp.BadHandshake},
		{"a READY with a value that ends early", greeting + "\x04\x0c\x05READY\x01x\xff\xff\xff\xff", zmtp.BadHandshake},
		{"a READY without a type", greeting + "\x04\x06\x05READY", zmtp.SocketType},
		{"a PUB", greeting + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB", zmtp.SocketType},
		{"ERROR", greeting + "\x04\x09\x05ERROR\x02no", zmtp.PeerError},
		{"end after READY", hello, zmtp.Closed},
		{"half a frame", hello + "\x00\x05abc", zmtp.Cut},
		{"a half message", hello + "\x01\x01a", zmtp.Cut},
		{"reserved flags", hello + "\x08\x01x", zmtp.BadFrame},
		{"a command that goes on", hello + "\x05\x01x", zmtp.BadFrame},
		{"a frame over the limit", hello + "\x02\x00\x00\x00\x00\x00\x00\x03\xe9", zmtp.FrameTooLong},
		{"a frame of 2^63 bytes", hello + "\x02\x80\x00\x00\x00\x00\x00\x00\x00", zmtp.FrameTooLong},
		{"frames over the limit", hello + strings.Repeat("\x01\x01x", 3) + "\x00\x01x", zmtp.TooManyFrames},
		{"a message over the limit", hello + strings.Repeat("\x01\xff"+strings.Repeat("x", 255), 2) + "\x02\x00\x00\x00\x00\x00\x00\x03\xe8" + strings.Repeat("x", 1000), zmtp.MessageTooLong},
		{"an unknown command", hello + "\x04\x06\x05HELLO", zmtp.BadCommand},
		{"a command without a name", hello + "\x04\x00", zmtp.BadCommand},
		{"a short PING", hello + "\x04\x06\x04PING\x00", zmtp.BadCommand},
		{"ERROR in between", hello + "\x04\x09\x05ERROR\x02no", zmtp.PeerError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := connect(t, r, tc.text)
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if reason := within(t, ended); reason != tc.reason {
				t.Errorf("counted as %s, want %s", reason, tc.reason)
			}
		})
	}
	if n := handled.Load(); n != 0 {
		t.Errorf("the handler saw %d messages", n)
	}
	d := dial(t, r.Addr().String(), zmtp.Options{})
	if frames := ask(t, d, "x"); string(frames[1]) != "x" {
		t.Errorf("answered by %q", frames)
	}
	s := r.Stats()
	if s.Messages != 1 || s.Ended[zmtp.NotZMTP] != 6 || s.Ended[zmtp.Probe] != 1 {
		t.Errorf("stats are %+v", s)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	within(t, ended)
}

func TestPingIsAnswered(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, echo)
	// Between the frames of a message too: libzmq does that.
	c := connect(t, r, greeting+ready+"\x04\x0a\x04PING\x00\x05abc"+"\x01\x01a"+"\x04\x07\x04PING\x00\x05"+"\x00\x01b")
	want := "\x04\x08\x04PONGabc" + "\x04\x05\x04PONG" + "\x01\x00\x01\x01a\x00\x01b"
	got := make([]byte, len(greeting)+len(ready)+len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got[len(greeting)+len(ready):]) != want {
		t.Errorf("got %x, %v; want %x", got[len(greeting)+len(ready):], err, want)
	}
}

// A peer that says PONG for ever takes nothing from the messages of others, nor from its
// own: a command is over as soon as it is read.
func TestCommandsTakeNoBudget(t *testing.T) {
	const budget = 32 << 10
	r := serve(t, "127.0.0.1:0", zmtp.Options{Budget: zmtp.NewBudget(budget, 0)}, echo)
	pong := "\x04\xff\x04PONG" + strings.Repeat("x", 250)
	idle := connect(t, r, greeting+ready+strings.Repeat(pong, 2*budget/len(pong))+"\x00\x01a")
	if _, err := io.ReadFull(idle, make([]byte, len(greeting)+len(ready)+len("\x01\x00\x00\x01a"))); err != nil {
		t.Fatalf("%v, ended by %v", err, r.Stats().Ended)
	}
	if _, err := io.WriteString(idle, strings.Repeat(pong, 2*budget/len(pong))); err != nil {
		t.Fatal(err)
	}
	// All fit, though what one takes may be given back only after it is answered.
	for range 3 {
		ask(t, dial(t, r.Addr().String(), zmtp.Options{}), strings.Repeat("x", budget/4))
	}
}
