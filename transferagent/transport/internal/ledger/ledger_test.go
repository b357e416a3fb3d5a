package ledger_test

import (
	"fmt"
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
)

func TestLedgerIsBounded(t *testing.T) {
	var l ledger.Ledger
	for i := range ledger.MaxTransfers + 2 {
		l.Add(transport.Flow{Transfer: fmt.Sprint(i)}, 1)
	}
	for i, want := range map[int]int{0: 0, 1: 0, 2: 1, ledger.MaxTransfers + 1: 1} {
		if got := l.Received(fmt.Sprint(i)); len(got) != want {
			t.Errorf("transfer %d has %d counts, want %d", i, len(got), want)
		}
	}
	for i := range ledger.MaxFlows + 1 {
		l.Add(transport.Flow{Transfer: "wide", Writer: transport.Rank{DP: i}}, 2)
	}
	l.Add(transport.Flow{Transfer: "wide"}, 3)
	got := l.Received("wide")
	if len(got) != ledger.MaxFlows || got[0].Bytes != 5 {
		t.Errorf("%d flows, the first %+v", len(got), got[0])
	}
}
