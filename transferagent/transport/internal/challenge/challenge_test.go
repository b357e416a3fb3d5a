package challenge

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
)

func keysOf(t testing.TB, secrets ...string) poolkey.Keys {
	t.Helper()
	var all [][]byte
	for _, s := range secrets {
		all = append(all, []byte(s))
	}
	k, err := poolkey.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func always(k poolkey.Keys) func() poolkey.Keys { return func() poolkey.Keys { return k } }

// ends are two connected ends, with deadlines, closed when the test ends.
func ends(t *testing.T) (dialler, listener net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	for _, c := range []net.Conn{a, b} {
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	}
	return a, b
}

// run lets both ends meet; each closes its connection when it fails.
func run(t *testing.T, d, l func(net.Conn) error) (dialler, listener error) {
	t.Helper()
	a, b := ends(t)
	got := make(chan error, 1)
	go func() {
		err := l(b)
		if err != nil {
			b.Close() //nolint:errcheck // as a mover does
		}
		got <- err
	}()
	dialler = d(a)
	if dialler != nil {
		a.Close() //nolint:errcheck // as a mover does
	}
	return dialler, <-got
}

func dials(k poolkey.Keys, kind string) func(net.Conn) error {
	return func(c net.Conn) error { return Dial(c, always(k), kind) }
}

func accepts(k poolkey.Keys, kind string) func(net.Conn) error {
	return func(c net.Conn) error { return Accept(c, always(k), kind) }
}

func TestMutual(t *testing.T) {
	defer goleak.VerifyNone(t)
	first, second := "the-first-secret", "the-second-secret"
	for _, c := range []struct {
		name              string
		dialler, listener poolkey.Keys
		kind              string
		reason            string // at the listener; empty: accepted
		dialled           error
	}{
		{"same secret", keysOf(t, first), keysOf(t, first), "tcp", "", nil},
		{"listener has a newer one", keysOf(t, first, second), keysOf(t, second, first), "tcp", "", nil},
		{"no secrets", poolkey.Keys{}, poolkey.Keys{}, "tcp", "", nil},
		{"other secret", keysOf(t, first), keysOf(t, second), "tcp", "proof", transport.ErrUnproved},
		{"dialler does not know the listener's", keysOf(t, first), keysOf(t, second, first), "tcp", "", transport.ErrUnproved},
		{"other mover", keysOf(t, first), keysOf(t, first), "shm", "proof", transport.ErrUnproved},
	} {
		t.Run(c.name, func(t *testing.T) {
			dialled, accepted := run(t, dials(c.dialler, c.kind), accepts(c.listener, "tcp"))
			if !errors.Is(dialled, c.dialled) {
				t.Errorf("dialler: %v, want %v", dialled, c.dialled)
			}
			switch {
			case c.reason == "" && accepted != nil:
				t.Errorf("listener: %v", accepted)
			case c.reason != "" && Reason(accepted) != c.reason:
				t.Errorf("listener: %v, counted as %s", accepted, Reason(accepted))
			}
		})
	}
}

// stranger speaks as a dialler without the secret: it sends a challenge and then
// what answer makes of the listener's.
func stranger(mine nonce, answer func(theirs nonce) []byte) func(net.Conn) error {
	return func(c net.Conn) error {
		if err := send(c, mine); err != nil {
			return err
		}
		theirs, err := receive(c)
		if err != nil {
			return err
		}
		if _, err := c.Write(answer(theirs)); err != nil {
			return err
		}
		var b [poolkey.Size]byte
		_, err = io.ReadFull(c, b[:])
		return err
	}
}

// heard is what passes a wire.
type heard struct {
	net.Conn
	read, written *bytes.Buffer
}

func (h heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.read.Write(b[:n])
	return n, err
}

func (h heard) Write(b []byte) (int, error) {
	h.written.Write(b)
	return h.Conn.Write(b)
}

// TestStrangers: who has listened to others, or says back what it is told, gets no
// further than who guesses; none is told a proof.
func TestStrangers(t *testing.T) {
	defer goleak.VerifyNone(t)
	k := keysOf(t, "the-pool-s-secret")
	h := heard{nil, &bytes.Buffer{}, &bytes.Buffer{}}
	if d, l := run(t, func(c net.Conn) error {
		h.Conn = c
		return Dial(h, always(k), "tcp")
	}, accepts(k, "tcp")); d != nil || l != nil {
		t.Fatal(d, l)
	}
	mine := nonce(h.written.Bytes()[headSize:])
	dialled, listened := h.written.Bytes()[headSize+nonceSize:], h.read.Bytes()[headSize+nonceSize:]
	for name, answer := range map[string]func(nonce) []byte{
		"guess":             func(nonce) []byte { return make([]byte, poolkey.Size) },
		"replayed":          func(nonce) []byte { return dialled },
		"listener's proof":  func(nonce) []byte { return listened },
		"nonce for a proof": func(theirs nonce) []byte { return theirs[:] },
		"other secret": func(theirs nonce) []byte {
			return keysOf(t, "another-secret---").Sign(nil, poolkey.DataDialler, []byte("tcp"), mine[:], theirs[:])
		},
		"other purpose":        func(theirs nonce) []byte { return k.Sign(nil, poolkey.DataListener, []byte("tcp"), mine[:], theirs[:]) },
		"nonces the other way": func(theirs nonce) []byte { return k.Sign(nil, poolkey.DataDialler, []byte("tcp"), theirs[:], mine[:]) },
		"one nonce":            func(theirs nonce) []byte { return k.Sign(nil, poolkey.DataDialler, []byte("tcp"), theirs[:]) },
		"proof of a handshake": func(theirs nonce) []byte {
			return k.Sign(nil, poolkey.HandshakeRequest, []byte("tcp"), mine[:], theirs[:])
		},
		"proof for another kind": func(theirs nonce) []byte { return k.Sign(nil, poolkey.DataDialler, []byte("shm"), mine[:], theirs[:]) },
	} {
		t.Run(name, func(t *testing.T) {
			told, refused := run(t, stranger(mine, answer), accepts(k, "tcp"))
			if !errors.Is(refused, transport.ErrUnproved) || Reason(refused) != "proof" {
				t.Errorf("listener: %v", refused)
			}
			if !errors.Is(told, io.EOF) {
				t.Errorf("the stranger was told something, %v", told)
			}
		})
	}
}

// TestReflected: a listener that sends a dialler's own challenge and proof back is
// refused.
func TestReflected(t *testing.T) {
	defer goleak.VerifyNone(t)
	dialled, _ := run(t, dials(keysOf(t, "the-pool-s-secret"), "tcp"), func(c net.Conn) error {
		_, err := io.CopyN(c, c, headSize+nonceSize+poolkey.Size)
		return err
	})
	if !errors.Is(dialled, transport.ErrUnproved) {
		t.Errorf("%v, want ErrUnproved", dialled)
	}
}

// TestNotOurs: what is no challenge is refused by its first bytes, and what is not
// whole by the deadline.
func TestNotOurs(t *testing.T) {
	defer goleak.VerifyNone(t)
	k := keysOf(t, "the-pool-s-secret")
	whole := append(slices.Concat(magic[:], []byte{version, 0, 0, 0}), make([]byte, nonceSize)...)
	other := slices.Clone(whole)
	other[4]++
	for _, c := range []struct {
		name, reason string
		bytes        []byte
	}{
		{"http", "hello", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"eight bytes", "hello", make([]byte, headSize)},
		{"version", "version", other},
		{"nothing", "silent", nil},
		{"half a challenge", "silent", whole[:20]},
		{"no proof", "silent", whole},
		{"half a proof", "silent", append(slices.Clone(whole), make([]byte, poolkey.Size/2)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := ends(t)
				go a.Write(c.bytes)       //nolint:errcheck // it ends with the connection
				go io.Copy(io.Discard, a) //nolint:errcheck // likewise
				err := Accept(b, always(k), "tcp")
				if err == nil || Reason(err) != c.reason {
					t.Errorf("%v is counted as %s, want %s", err, Reason(err), c.reason)
				}
			})
		})
	}
}

// script is a connection that says what it was given and keeps nothing.
type script struct{ io.Reader }

func (script) Write(b []byte) (int, error) { return len(b), nil }

// FuzzAccept: no bytes of a stranger are a proof.
func FuzzAccept(f *testing.F) {
	k := keysOf(f, "the-pool-s-secret")
	f.Add([]byte("PDPC"))
	f.Add(append(slices.Concat(magic[:], []byte{version, 0, 0, 0}), make([]byte, nonceSize+poolkey.Size)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, packets := range []io.Reader{bytes.NewReader(b), io.MultiReader(bytes.NewReader(b[:len(b)/2]), bytes.NewReader(b[len(b)/2:]))} {
			if err := Accept(script{packets}, always(k), "tcp"); err == nil {
				t.Fatal("accepted")
			}
		}
		if err := Dial(script{bytes.NewReader(b)}, always(k), "tcp"); err == nil {
			t.Fatal("a listener was believed")
		}
	})
}
