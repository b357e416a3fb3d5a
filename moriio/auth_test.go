package moriio_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/pdpool/pdpool/moriio"
)

func sampleChallenge() *moriio.Challenge {
	return &moriio.Challenge{Version: moriio.ChallengeVersion, Epoch: 1<<63 + 7, Nonce: []byte("0123456789abcdef")}
}

// seal puts a proof at the end of a message.
func seal(t *testing.T, message []byte, proof byte) []byte {
	t.Helper()
	b, err := moriio.OpenAuth(message)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, bytes.Repeat([]byte{proof}, moriio.ProofBytes)...)
}

// The proof is the last 32 bytes of each message, whatever it had in its map pdpool, and
// changes nothing of what is read.
func TestAuthIsTheLastFieldOfEachMessage(t *testing.T) {
	all := samples()
	delete(all, "layer map")
	delete(all, "remote_blocks/groups") // for stock peers
	all["challenge"] = sample{sampleChallenge(), func(b []byte) (any, error) { return moriio.ParseChallenge(b) }}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			plain := s.message.Append(nil)
			sealed := seal(t, bytes.Clone(plain), 0xaa)
			signed, proof, ok := moriio.CutAuth(sealed)
			if !ok || !bytes.Equal(proof, bytes.Repeat([]byte{0xaa}, 32)) || !bytes.Equal(append(signed, proof...), sealed) {
				t.Fatalf("%x was cut into %x and %x", sealed, signed, proof)
			}
			if _, _, ok := moriio.CutAuth(plain); ok {
				t.Error("a message without a proof has one")
			}
			for n := range sealed {
				if _, _, ok := moriio.CutAuth(sealed[:n]); ok {
					t.Errorf("the first %d bytes of it have a proof", n)
				}
			}
			got, err := s.parse(sealed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(s.message), got); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
			// As a reader of another language sees it.
			v, rest, err := msgp.ReadIntfBytes(sealed)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%d bytes are left, %v", len(rest), err)
			}
			if got := v.(map[string]any)["pdpool"].(map[string]any)["auth"]; !bytes.Equal(got.([]byte), proof) {
				t.Errorf("auth is %x", got)
			}
		})
	}
}

func TestOpenAuthRefusesWhatItDidNotMake(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "no map": "c0", "a long map": "de0000", "half a map": "81a1", "more than a map": "81a67064706f6f6c80c0",
		"pdpool is not last": "82a67064706f6f6c80a16101", "pdpool is no map": "81a67064706f6f6c01",
		"pdpool is full": "81a67064706f6f6c8f" + strings.Repeat("a16101", 15), "no pdpool": "81a16101", "an empty map": "80",
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := moriio.OpenAuth(b); err == nil {
			t.Errorf("%s: became %x", name, out)
		}
	}
}

func TestChallengeIsHeldToItsNonce(t *testing.T) {
	c := sampleChallenge()
	c.Nonce = c.Nonce[1:]
	_, err := moriio.ParseChallenge(c.Append(nil))
	wantReason(t, err, moriio.BadField)
	c.Nonce = make([]byte, moriio.NonceBytes+1)
	_, err = moriio.ParseChallenge(c.Append(nil))
	wantReason(t, err, moriio.TooLong)
	if _, err := moriio.ParseChallenge(withKeys(sampleChallenge().Append(nil))); err != nil {
		t.Errorf("with the fields of a later version: %v", err)
	}
}
