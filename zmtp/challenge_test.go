package zmtp_test

import (
	"strings"
	"testing"

	"github.com/pdpool/pdpool/zmtp"
)

const challenge = "X-Test-Challenge"

// told answers each message with the connection's challenge and the message's place on it.
func told(p *zmtp.Peer, _ [][]byte) { _ = p.Send([]byte(p.Challenge()), []byte{byte(p.Before())}) }

func TestEachConnectionHasItsChallenge(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{Challenge: challenge}, told)
	seen := map[string]bool{}
	for range 20 {
		d := dial(t, r.Addr().String(), zmtp.Options{Challenge: strings.ToLower(challenge)})
		if len(d.Challenge()) < 16 || seen[d.Challenge()] {
			t.Fatalf("challenge %q, after %v", d.Challenge(), seen)
		}
		seen[d.Challenge()] = true
		for i := range byte(3) {
			if frames := ask(t, d, "x"); string(frames[0]) != d.Challenge() || frames[1][0] != i {
				t.Errorf("message %d of %s is that of %q", i, d.Challenge(), frames)
			}
		}
	}
}

// Either end may not know of it.
func TestChallengeIsOneSided(t *testing.T) {
	gives := serve(t, "127.0.0.1:0", zmtp.Options{Challenge: challenge}, told)
	d := dial(t, gives.Addr().String(), zmtp.Options{})
	if frames := ask(t, d, "x"); d.Challenge() != "" || len(frames[0]) == 0 {
		t.Errorf("%q, %q", d.Challenge(), frames)
	}
	plain := serve(t, "127.0.0.1:0", zmtp.Options{}, told)
	d = dial(t, plain.Addr().String(), zmtp.Options{Challenge: challenge})
	if frames := ask(t, d, "x"); d.Challenge() != "" || len(frames[0]) != 0 {
		t.Errorf("%q, %q", d.Challenge(), frames)
	}
}
