package transferagent

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// says takes connections at an address, and says the same to each.
func says(t *testing.T, address string, said []byte) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("no second address: %v", err)
	}
	takes(t, l, func(c net.Conn) { _, _ = c.Write(said) }) // it is cut off
}

// Whatever is named as the address of a peer, and however much it answers, costs little
// and keeps nobody out.
func TestLongAnswersOfManyTakeLittleMemory(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	p.serves(t, "tx-before", 1)
	// All but the end of the longest answer that a handshake may have.
	said := append(bytes.Replace(dealerGreeting(), []byte("DEALER"), []byte("ROUTER"), 1), "\x01\x00"...)
	said = append(said, longFrame(moriio.MaxMessage, moriio.MaxMessage-1)...)
	before, port := heap(), freePort(t)
	const asked = 32
	for i := range asked {
		host := fmt.Sprintf("127.0.8.%d", i+1)
		says(t, endpoint(host, port), said)
		send(t, p.decode.sched, kvproto.Receive{
			Transfer: fmt.Sprintf("tx-long-%d", i), Blocks: []int32{1}, Tokens: 1, Peer: kvproto.Peer{Host: host, Handshake: port, Notify: port, TPSize: 1},
		})
	}
	for range asked - metadataBytes/moriio.MaxMessage {
		m, ok := next(t, p.decode.sched).(kvproto.Failed)
		if !ok || m.Rule != session.RuleHandshake || !strings.Contains(m.Text, zmtp.BuffersFull) {
			t.Fatalf("the engine is told %+v", m)
		}
	}
	if grown := heap() - before; grown > 2*metadataBytes {
		t.Errorf("%d long answers take %d bytes", asked, grown)
	}
}
