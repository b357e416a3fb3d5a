package zmtp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/zmtp"
)

// python starts a script of testdata with the real libzmq. Its standard input is
// closed, and so the script told to end, by stop.
func python(t *testing.T, script string, args ...string) (out *bufio.Reader, stop func() error) {
	t.Helper()
	exe := os.Getenv("PDPOOL_PYTHON")
	if exe == "" {
		t.Skip("set PDPOOL_PYTHON to a python that can import zmq (pip install pyzmq) to test against the real libzmq")
	}
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"testdata/" + script}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() error {
		if ended {
			return nil
		}
		ended = true
		_ = in.Close()
		_, _ = io.Copy(io.Discard, pipe)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, complaint.Bytes())
		}
		return nil
	}
	t.Cleanup(func() { _ = stop() })
	return bufio.NewReader(pipe), stop
}

// wantOK waits for the script's verdict.
func wantOK(t *testing.T, out *bufio.Reader, stop func() error) {
	t.Helper()
	line, _ := out.ReadString('\n')
	if err := stop(); err != nil || line != "ok\n" {
		t.Fatalf("script says %q, %v", line, err)
	}
}

// answer echoes as dealer.py expects.
func answer(p *zmtp.Peer, frames [][]byte) {
	switch {
	case len(frames) == 1 && string(frames[0]) == "who":
		_ = p.Send(nil, p.Identity())
	default:
		_ = p.Send(nil, bytes.Join(frames, nil))
	}
}

func endpoint(r *zmtp.Router) string { return "tcp://" + r.Addr().String() }

func TestLibzmqDealerTalksToRouter(t *testing.T) {
	for _, tc := range []struct{ mode, listen string }{
		{"echo", "127.0.0.1:0"}, {"heartbeat", "127.0.0.1:0"}, {"echo", "[::1]:0"},
	} {
		t.Run(tc.mode+" "+tc.listen, func(t *testing.T) {
			skipWithout(t, tc.listen)
			r := serve(t, tc.listen, zmtp.Options{MaxFrame: 1 << 20, Queue: 10000}, answer)
			out, stop := python(t, "dealer.py", tc.mode, endpoint(r))
			wantOK(t, out, stop)
		})
	}
}

// libzmq passes over the property of a challenge, and hands it to who asks for it.
func TestLibzmqDealerReadsOverTheChallenge(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{MaxFrame: 1 << 20, Queue: 10000, Challenge: challenge}, func(p *zmtp.Peer, frames [][]byte) {
		if string(frames[0]) == "challenge" {
			_ = p.Send([]byte(p.Challenge()))
			return
		}
		answer(p, frames)
	})
	for _, mode := range []string{"echo", "heartbeat", "challenge"} {
		t.Run(mode, func(t *testing.T) {
			out, stop := python(t, "dealer.py", mode, endpoint(r))
			wantOK(t, out, stop)
		})
	}
}

func TestLibzmqDealerReconnects(t *testing.T) {
	first := make(chan struct{}, 1)
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, func(_ *zmtp.Peer, frames [][]byte) {
		if string(frames[0]) == "first" {
			first <- struct{}{}
		}
	})
	out, stop := python(t, "dealer.py", "reconnect", endpoint(r))
	within(t, first)
	addr := r.Addr().String()
	r.Close()
	serve(t, addr, zmtp.Options{}, answer)
	wantOK(t, out, stop)
}

func TestLibzmqDealerSendsTooMuch(t *testing.T) {
	ended := make(chan string, 100)
	r := serve(t, "127.0.0.1:0", zmtp.Options{Count: func(reason string) {
		select {
		case ended <- reason:
		default: // libzmq may reconnect and try again
		}
	}}, answer)
	out, stop := python(t, "dealer.py", "greedy", endpoint(r))
	if reason := within(t, ended); reason != zmtp.FrameTooLong {
		t.Errorf("ended as %s", reason)
	}
	wantOK(t, out, stop)
}

func TestLibzmqDealerDoesNotRead(t *testing.T) {
	full := make(chan error, 1)
	ended := make(chan string, 100)
	r := serve(t, "127.0.0.1:0", zmtp.Options{Write: 200 * time.Millisecond, Count: func(reason string) { ended <- reason }},
		func(p *zmtp.Peer, frames [][]byte) {
			if string(frames[0]) != "flood" {
				answer(p, frames)
				return
			}
			piece := make([]byte, 1<<20)
			for {
				if err := p.Send(piece); err != nil {
					full <- err
					return
				}
			}
		})
	out, stop := python(t, "dealer.py", "silent", endpoint(r))
	if line, _ := out.ReadString('\n'); line != "sent\n" {
		t.Fatalf("script says %q", line)
	}
	if err := within(t, full); !errors.Is(err, zmtp.ErrFull) {
		t.Errorf("send: %v", err)
	}
	if reason := within(t, ended); reason != zmtp.SlowReader {
		t.Errorf("ended as %s", reason)
	}
	// Others are served.
	d := dial(t, r.Addr().String(), zmtp.Options{})
	if frames := ask(t, d, "x"); len(frames) != 2 || string(frames[1]) != "x" {
		t.Errorf("answered by %q", frames)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// libzmqRouter starts router.py and returns its address.
func libzmqRouter(t *testing.T, mode string) (addr string, stop func() error) {
	t.Helper()
	out, stop := python(t, "router.py", mode)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("script: %v, %v", err, stop())
	}
	return net.JoinHostPort("127.0.0.1", strings.TrimSpace(line)), stop
}

func TestDealerTalksToLibzmqRouter(t *testing.T) {
	addr, stop := libzmqRouter(t, "heartbeat")
	d := dial(t, addr, zmtp.Options{})
	wantAnswer(t, ask(t, d, "get_meta_msg"), "metadata")
	wantAnswer(t, receive(t, d), strings.Repeat("layers", 50_000))
	if frames := ask(t, d, "identity"); len(frames) != 2 || len(frames[1]) != 5 || frames[1][0] != 0 {
		t.Errorf("libzmq calls us %x, not by an invented name", frames)
	}
	for i := range 2000 {
		text := strings.Repeat(fmt.Sprint(i), i)
		wantAnswer(t, ask(t, d, "", text, ""), text)
	}
	select {
	case <-d.Done():
		t.Fatalf("libzmq's heartbeats ended the connection: %v", d.Err())
	case <-time.After(500 * time.Millisecond): // several heartbeats
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	within(t, d.Done())
	if d.Err() == nil {
		t.Error("the connection ended without an error")
	}
}

func wantAnswer(t *testing.T, frames [][]byte, payload string) {
	t.Helper()
	if len(frames) != 2 || len(frames[0]) != 0 || string(frames[1]) != payload {
		t.Fatalf("answered by %d frames %.100q, want an empty one and %.100q", len(frames), frames, payload)
	}
}

func TestLibzmqRouterDoesNotRead(t *testing.T) {
	addr, _ := libzmqRouter(t, "stuck")
	d := dial(t, addr, zmtp.Options{Write: 200 * time.Millisecond})
	piece := make([]byte, 256<<10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	for err == nil {
		err = d.Send(ctx, piece)
	}
	wantReason(t, err, zmtp.SlowReader)
}
