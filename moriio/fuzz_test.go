package moriio_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/moriio"
)

// fuzz holds a parser to three things: it does not panic, what it accepts it reads
// back from its own Append as the same, and it keeps nothing of its input.
func fuzz(f *testing.F, parse func([]byte) (any, error), seeds ...[]byte) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b) // the input must stay as it is
		m, err := parse(b)
		if err != nil {
			if m != nil {
				t.Fatalf("%T beside the error %v", m, err)
			}
			return
		}
		for i := range b {
			b[i] = 0xff
		}
		again, err := parse(m.(interface{ Append([]byte) []byte }).Append(nil))
		if err != nil {
			t.Fatalf("%+v is refused when sent: %v", m, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("sent and parsed (-first +again):\n%s", diff)
		}
	})
}

// nilOnError keeps a typed nil pointer out of an interface.
func nilOnError[T any](m *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

func FuzzParseNotify(f *testing.F) {
	var seeds [][]byte
	for _, m := range notifications() {
		seeds = append(seeds, m.Append(nil), withKeys(m.Append(nil))[:100])
	}
	fuzz(f, moriio.ParseNotify, append(seeds, []byte("tx-1"), remoteBlocks([]byte{0x90}))...)
}

func FuzzParseChallenge(f *testing.F) {
	fuzz(f, func(b []byte) (any, error) { return nilOnError(moriio.ParseChallenge(b)) }, sampleChallenge().Append(nil))
}

// What OpenAuth makes of any message ends in the proof, and is read as the message.
func FuzzAuth(f *testing.F) {
	for _, m := range notifications() {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if signed, proof, ok := moriio.CutAuth(b); ok && (len(proof) != moriio.ProofBytes || !bytes.Equal(append(signed, proof...), b)) {
			t.Fatalf("%x was cut into %x and %x", b, signed, proof)
		}
		m, err := moriio.ParseNotify(b)
		if err != nil {
			return
		}
		plain := m.(interface{ Append([]byte) []byte }).Append(nil)
		open, err := moriio.OpenAuth(bytes.Clone(plain))
		if err != nil {
			if bytes.Contains(plain, []byte("\xa6pdpool")) {
				t.Fatalf("%+v takes no proof: %v", m, err)
			}
			return // as stock peers send it
		}
		whole := append(bytes.Clone(open), make([]byte, moriio.ProofBytes)...)
		signed, proof, ok := moriio.CutAuth(whole)
		if !ok || !bytes.Equal(signed, open) || len(proof) != moriio.ProofBytes {
			t.Fatalf("the proof of %x was cut from %x", whole, signed)
		}
		again, err := moriio.ParseNotify(whole)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("sealed and parsed (-first +again):\n%s", diff)
		}
	})
}

func FuzzParseMetadata(f *testing.F) {
	stock, _ := hex.DecodeString("86" + metadataHex)
	fuzz(f, func(b []byte) (any, error) { return nilOnError(moriio.ParseMetadata(b)) }, stock, sampleMetadata().Append(nil))
}

func FuzzParseRegistration(f *testing.F) {
	m := &moriio.Registration{
		Role: "prefill", HTTPAddress: "10.0.0.1:8100", ZMQAddress: moriio.FormatZMQAddress("10.0.0.1", 6301, 61005),
		DPSize: 1, TPSize: 4, TransferMode: "Write",
	}
	plain := m.Append(nil)
	m.PDPool = sampleInstance()
	fuzz(f, func(b []byte) (any, error) { return nilOnError(moriio.ParseRegistration(b)) }, plain, m.Append(nil))
}

func FuzzParseLayerMap(f *testing.F) {
	fuzz(f, func(b []byte) (any, error) {
		m, err := moriio.ParseLayerMap(b)
		if err != nil {
			return nil, err
		}
		return m, nil
	}, moriio.LayerMap{{Name: "l0", Pieces: [][]byte{{0xaa}}}, {Name: "l1"}}.Append(nil))
}

func FuzzParseZMQAddress(f *testing.F) {
	f.Add("host:10.0.0.1,handshake:6301,notify:61005")
	f.Add(" notify:1 ,host: ::1,handshake:2,x:y")
	f.Fuzz(func(t *testing.T, s string) {
		host, handshake, notify, err := moriio.ParseZMQAddress(s)
		if err != nil {
			return
		}
		for _, port := range []int{handshake, notify} {
			if port < 1 || port > 65535 {
				t.Fatalf("port %d", port)
			}
		}
		if strings.ContainsAny(host, " ,/@_[]%\x00\n") || host == "" {
			t.Fatalf("host %q", host)
		}
		h2, a2, n2, err := moriio.ParseZMQAddress(moriio.FormatZMQAddress(host, handshake, notify))
		if err != nil || h2 != host || a2 != handshake || n2 != notify {
			t.Fatalf("formatted and parsed: %q %d %d %v", h2, a2, n2, err)
		}
	})
}

func FuzzParseRequestID(f *testing.F) {
	address := moriio.FormatZMQAddress("10.0.0.1", 6301, 61005)
	id := moriio.RequestID(address, address, strings.Repeat("0f", 16))
	f.Add(id)
	f.Add("cmpl-" + id + "-0-0123abcd")
	f.Add("___prefill_addr____decode_addr___" + strings.Repeat("0", 32))
	f.Fuzz(func(t *testing.T, s string) {
		prefill, decode, digits, err := moriio.ParseRequestID(s)
		if err != nil {
			return
		}
		for _, a := range []string{prefill, decode} {
			if _, _, _, err := moriio.ParseZMQAddress(a); err != nil {
				t.Fatalf("accepted the address %q", a)
			}
		}
		p, d, h, err := moriio.ParseRequestID(moriio.RequestID(prefill, decode, digits))
		if err != nil || p != prefill || d != decode || h != digits {
			t.Fatalf("made again and parsed: %q %q %q %v", p, d, h, err)
		}
	})
}
