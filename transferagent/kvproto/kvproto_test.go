package kvproto_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

var update = flag.Bool("update", false, "write the golden files anew")

// messages fill every field of every type.
func messages() []kvproto.Message {
	return []kvproto.Message{
		kvproto.Hello{
			Version: kvproto.ProtocolVersion, Connection: kvproto.Worker, DP: 1, TP: 2, TPSize: 8, DCP: 4, Interleave: 16,
			BlockTokens: 64, Blocks: 1000, Model: "m", KVType: "BF16", Faults: []string{"copies-off", "first-writer-ends"},
		},
		kvproto.Hello{Connection: kvproto.Scheduler},
		kvproto.Welcome{Epoch: math.MaxUint64},
		kvproto.Welcome{Epoch: 1, Linger: 2500 * time.Millisecond},
		kvproto.Welcome{Epoch: 1, Silence: kvproto.MaxSilence},
		kvproto.Memory{Bytes: 1 << 40},
		kvproto.Region{
			Name: "model.layers.0", Layer: 1, Offset: 2, BlockStride: 3, Blocks: 4, BlockTokens: 5, HeadFirst: 6, HeadCount: 7,
			HeadStride: 8, TokenStride: 9, RowBytes: 10,
		},
		kvproto.Ready{},
		kvproto.Expect{Transfer: "tx-1", Tokens: 1000, Hash: bytes.Repeat([]byte{7}, 32)},
		kvproto.Expect{Transfer: "tx-1"},
		kvproto.Hold{Transfer: "tx-1", Blocks: []int32{0, 200, math.MaxInt32}, Tokens: 190},
		kvproto.Save{Transfer: "tx-1", Layer: 60},
		kvproto.Sealed{Transfer: "tx-1"},
		kvproto.Receive{
			Transfer: "tx-1", Blocks: []int32{3, 4}, FirstToken: 64, Tokens: 190,
			Peer: kvproto.Peer{Host: "10.0.0.1", Handshake: 1, Notify: 65535, DP: 3, TPSize: 8},
		},
		kvproto.Abort{Transfer: "tx-1"},
		kvproto.Done{Transfer: "tx-1"},
		kvproto.Failed{Transfer: "tx-1", Rule: "peer-gone", Text: "the peer is gone"},
		kvproto.Quiet{Transfer: "tx-1"},
		kvproto.Released{Transfer: "tx-1"},
		kvproto.Refused{Rule: "bad-field", Text: "no"},
		kvproto.Refused{Rule: "duplicate", Text: "twice", Message: "hold", Transfer: "t"},
		kvproto.Expect{Transfer: "tx-1", Tokens: 1000, Peer: kvproto.Peer{Host: "10.0.0.1", Handshake: 1, Notify: 65535, DP: 3, TPSize: 8}},
	}
}

// The frames are a contract with plugins in other languages.
func TestGoldenFrames(t *testing.T) {
	const path = "testdata/frames.golden"
	var out bytes.Buffer
	for _, m := range messages() {
		frame, err := kvproto.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s\n", m.Type(), hex.EncodeToString(frame))
	}
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("frames changed, which breaks engines that are out there (-want +got):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, m := range messages() {
		frame, err := kvproto.Append([]byte("before"), m)
		if err != nil {
			t.Fatal(err)
		}
		body := frame[len("before")+kvproto.HeaderBytes:]
		n, err := kvproto.BodyLength([4]byte(frame[len("before"):]))
		if err != nil || n != len(body) {
			t.Errorf("%s: header says %d, %v; the body has %d bytes", m.Type(), n, err, len(body))
		}
		got, err := kvproto.Parse(body)
		if err != nil {
			t.Fatalf("%s: %v", m.Type(), err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m.Type(), diff)
		}
		for n := range body {
			wantReason(t, errorOf(kvproto.Parse(body[:n])), kvproto.Truncated)
		}
		wantReason(t, errorOf(kvproto.Parse(append(body, 0xc0))), kvproto.Malformed)
	}
}

func errorOf[T any](_ T, err error) error { return err }

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var e *kvproto.Error
	if !errors.As(err, &e) || e.Reason() != reason {
		t.Errorf("error is %v, want the reason %s", err, reason)
	}
}

func TestBodyLength(t *testing.T) {
	header := func(n uint32) (h [4]byte) { binary.BigEndian.PutUint32(h[:], n); return h }
	wantReason(t, errorOf(kvproto.BodyLength(header(0))), kvproto.Truncated)
	wantReason(t, errorOf(kvproto.BodyLength(header(kvproto.MaxFrame+1))), kvproto.TooLong)
	if n, err := kvproto.BodyLength(header(kvproto.MaxFrame)); n != kvproto.MaxFrame || err != nil {
		t.Errorf("the longest frame: %d, %v", n, err)
	}
}

// What Append refuses is what Parse would refuse, and it leaves the slice alone.
func TestLimits(t *testing.T) {
	long := strings.Repeat("x", kvproto.MaxText+1)
	peer := kvproto.Peer{Host: "h", Handshake: 1, Notify: 1}
	for _, tc := range []struct {
		name   string
		m      kvproto.Message
		reason string
	}{
		{"nothing", nil, kvproto.UnknownType},
		{"another type", other{}, kvproto.UnknownType},
		{"a pointer", &kvproto.Hold{Transfer: "tx-1"}, kvproto.UnknownType},
		{"connection", kvproto.Hello{Connection: "x"}, kvproto.BadField},
		{"model", kvproto.Hello{Connection: kvproto.Worker, Model: long}, kvproto.TooLong},
		{"faults", kvproto.Hello{Connection: kvproto.Worker, Faults: make([]string, 65)}, kvproto.TooLong},
		{"rank", kvproto.Hello{Connection: kvproto.Worker, TP: 1024}, kvproto.BadField},
		{"no memory", kvproto.Memory{}, kvproto.BadField},
		{"offset", kvproto.Region{Offset: -1}, kvproto.BadField},
		{"no transfer", kvproto.Done{}, kvproto.BadField},
		{"long transfer", kvproto.Done{Transfer: long[:kvproto.MaxTransferID+1]}, kvproto.TooLong},
		{"hash", kvproto.Expect{Transfer: "t", Hash: make([]byte, 33)}, kvproto.TooLong},
		{"blocks", kvproto.Hold{Transfer: "t", Blocks: make([]int32, kvproto.MaxBlocks+1)}, kvproto.TooLong},
		{"block", kvproto.Hold{Transfer: "t", Blocks: []int32{-1}}, kvproto.BadField},
		{"tokens", kvproto.Hold{Transfer: "t", Tokens: -1}, kvproto.BadField},
		{"port", kvproto.Receive{Transfer: "t", Peer: kvproto.Peer{Host: "h", Handshake: 0, Notify: 1}}, kvproto.BadField},
		{"first token", kvproto.Receive{Transfer: "t", FirstToken: -1, Peer: peer}, kvproto.BadField},
		{"text", kvproto.Failed{Transfer: "\xff", Rule: "r"}, kvproto.BadField},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := kvproto.Append([]byte("before"), tc.m)
			wantReason(t, err, tc.reason)
			if string(b) != "before" {
				t.Errorf("the slice is now %q", b)
			}
		})
	}
}

type other struct{}

func (other) Type() string { return "other" }

func TestMaximumFits(t *testing.T) {
	blocks := make([]int32, kvproto.MaxBlocks)
	for i := range blocks {
		blocks[i] = math.MaxInt32
	}
	frame, err := kvproto.Append(nil, kvproto.Hold{Transfer: "t", Blocks: blocks})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := kvproto.Parse(frame[kvproto.HeaderBytes:]); err != nil || len(m.(kvproto.Hold).Blocks) != len(blocks) {
		t.Errorf("parsed %T, %v", m, err)
	}
}

func TestLongTextIsCut(t *testing.T) {
	frame, err := kvproto.Append(nil, kvproto.Refused{Text: "x" + strings.Repeat("ä", kvproto.MaxText)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := kvproto.Parse(frame[kvproto.HeaderBytes:])
	if err != nil {
		t.Fatal(err)
	}
	if want := "x" + strings.Repeat("ä", (kvproto.MaxText-1)/2); m.(kvproto.Refused).Text != want {
		t.Errorf("text has %d bytes, want %d", len(m.(kvproto.Refused).Text), len(want))
	}
}

func TestParseTakesAnyOrderAndUnknownKeys(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendInt(msgp.AppendString(b, "layer"), 3) // the signed family, as some encoders choose
	b = msgp.AppendNil(msgp.AppendString(b, "extra"))
	b = msgp.AppendString(msgp.AppendString(b, "transfer"), "tx-1")
	b = msgp.AppendString(msgp.AppendString(b, "type"), "save")
	got, err := kvproto.Parse(b)
	if diff := cmp.Diff(kvproto.Message(kvproto.Save{Transfer: "tx-1", Layer: 3}), got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range messages() {
		frame, err := kvproto.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame[kvproto.HeaderBytes:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b) // the input must stay as it is
		m, err := kvproto.Parse(b)
		if err != nil {
			if m != nil {
				t.Fatalf("%T beside the error %v", m, err)
			}
			return
		}
		for i := range b {
			b[i] = 0xff
		}
		frame, err := kvproto.Append(nil, m)
		if err != nil {
			t.Fatalf("%+v can't be sent: %v", m, err)
		}
		again, err := kvproto.Parse(frame[kvproto.HeaderBytes:])
		if err != nil {
			t.Fatalf("%+v is refused when sent: %v", m, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("sent and parsed (-first +again):\n%s", diff)
		}
	})
}
