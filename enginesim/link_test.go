package enginesim

import (
	"errors"
	"net/http"
	"testing"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Whoever finds first that the link is lost, the request that ends gives the same rule.
func TestLostLinkHasItsRule(t *testing.T) {
	l := &link{gone: make(chan struct{})}
	l.drop(errors.New("silence"))
	err := l.send(nil, kvproto.Save{Transfer: "t"})
	if err == nil {
		t.Fatal("a message was queued on a lost link")
	}
	if status, body := describe(err); status != http.StatusInternalServerError || body.Error.Rule != "agent-gone" {
		t.Errorf("%d %+v", status, body)
	}
}
