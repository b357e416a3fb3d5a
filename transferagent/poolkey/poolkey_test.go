package poolkey

import (
	"bytes"
	"testing"
)

func keys(t *testing.T, secrets ...string) Keys {
	t.Helper()
	var all [][]byte
	for _, s := range secrets {
		all = append(all, []byte(s))
	}
	k, err := New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestProofHoldsForItsPurposeAndCutAlone(t *testing.T) {
	k := keys(t, "0123456789abcdef")
	mac := k.Sign(nil, Notification, []byte("ab"), []byte("c"))
	if len(mac) != Size || !k.Valid(mac, Notification, []byte("ab"), []byte("c")) {
		t.Fatalf("the own proof (%d bytes) is not valid", len(mac))
	}
	for name, valid := range map[string]bool{
		"other purpose": k.Valid(mac, HandshakeAnswer, []byte("ab"), []byte("c")),
		"other cut":     k.Valid(mac, Notification, []byte("a"), []byte("bc")),
		"joined":        k.Valid(mac, Notification, []byte("abc")),
		"shortened":     k.Valid(mac[:Size-1], Notification, []byte("ab"), []byte("c")),
		"empty":         k.Valid(nil, Notification, []byte("ab"), []byte("c")),
		"other secret":  keys(t, "0123456789abcdeF").Valid(mac, Notification, []byte("ab"), []byte("c")),
	} {
		if valid {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestEarlierSecretIsAcceptedAndNotSignedWith(t *testing.T) {
	old, both := keys(t, "the-first-secret"), keys(t, "the-second-secret", "the-first-secret")
	if !both.Valid(old.Sign(nil, Notification), Notification) {
		t.Error("a proof by the earlier secret is refused")
	}
	if bytes.Equal(both.Sign(nil, Notification), old.Sign(nil, Notification)) {
		t.Error("the earlier secret signs")
	}
}

func TestWithoutSecret(t *testing.T) {
	var none Keys
	if none.Set() || len(none.Sign(nil, Notification)) != 0 || !none.Valid(nil, Notification) {
		t.Error("no secret must sign nothing and accept everything")
	}
	for _, n := range []int{0, MinSecret - 1, MaxSecret + 1} {
		if _, err := New(make([]byte, n)); err == nil {
			t.Errorf("a secret of %d bytes was taken", n)
		}
	}
}
