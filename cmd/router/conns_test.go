package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestConnectionsAreBounded: one host gets half of the connections; what is more is
// closed at once, and closed ones make room.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := bounded(inner, 4)
	accepted := make(chan net.Conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	taken := func() net.Conn {
		select {
		case conn := <-accepted:
			return conn
		case <-time.After(patience):
			t.Fatal("a connection is not taken")
		}
		panic("not reached")
	}
	dial()
	first := taken()
	dial()
	second := taken()
	third := dial()
	_ = third.SetReadDeadline(time.Now().Add(patience))
	if _, err := third.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as read
		t.Errorf("one too many: %v", err)
	}
	if half, ok := first.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Error("an answer can't be ended before the connection")
	}
	_ = first.Close()
	_ = first.Close() // counts once
	dial()
	fourth := taken()
	if n := l.all; n != 2 {
		t.Errorf("%d are counted", n)
	}
	for _, conn := range []net.Conn{second, fourth} {
		_ = conn.Close()
	}
	if l.all != 0 || len(l.byHost) != 0 {
		t.Errorf("%d are counted, %v", l.all, l.byHost)
	}
	_ = l.Close()
	<-done
}
