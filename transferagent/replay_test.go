package transferagent

import (
	"fmt"
	"testing"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// What was heard of an agent is good for its place on its connection and nowhere else: on
// one of the listener's it takes no place of a peer, and changes nothing.
func TestReplaysTakeNoPlace(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	pod := p.prefill.pod
	agent := call(t, pod, pod.cfg.Ports.Notify)
	hello := agent.say("a", &moriio.Hello{Epoch: 7})
	release := agent.say("a", &moriio.Release{Transfer: "tx-early", PDPool: &moriio.Released{Epoch: 7, Rule: "aborted"}})
	eventually(t, func() error {
		if n := dropped(t, pod, portNotify, session.UnknownTransfer); n != 0 {
			return fmt.Errorf("the release is dropped")
		}
		return nil
	})
	before := dropped(t, pod, portNotify, reasonUnproven)
	for _, frames := range [][][]byte{{hello}, {release}, {hello, release}} {
		forged(t, pod, pod.cfg.Ports.Notify, frames...)
	}
	// A second time on its own connection it ends that.
	agent.turnedAway(hello)
	if n := dropped(t, pod, portNotify, reasonUnproven); n != before+4 {
		t.Errorf("%d replays are counted, not 4", n-before)
	}
	p.serves(t, "tx-after", 2)
}

// An agent that connects again and again takes no more places than it may have, and
// none of another's.
func TestOneMemberDoesNotFillThePort(t *testing.T) {
	p := startKeyed(t, agentconfig.TCP, keyDir(t, "a", ""), keyDir(t, "a", ""))
	p.serves(t, "tx-before", 1)
	pod := p.prefill.pod
	other := call(t, pod, pod.cfg.Ports.Notify)
	other.say("a", &moriio.Hello{Epoch: 1})
	var all []*caller
	for range 3 * memberConns {
		c := call(t, pod, pod.cfg.Ports.Notify)
		c.say("a", &moriio.Hello{Epoch: 7})
		all = append(all, c)
	}
	eventually(t, func() error {
		ended := 0
		for _, c := range all {
			if c.d.Err() != nil {
				ended++
			}
		}
		if n := dropped(t, pod, portNotify, zmtp.TooManyOfMember); n != 2*memberConns || ended != n {
			return fmt.Errorf("%d of %d connections have ended, %d are counted", ended, len(all), n)
		}
		return nil
	})
	if err := other.d.Err(); err != nil {
		t.Error(err)
	}
	p.serves(t, "tx-after", 2)
}
