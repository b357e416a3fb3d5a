package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// askWithin bounds what asking the agents adds to the time of a failed request.
const askWithin = 50 * time.Millisecond

// maxReason bounds the bytes of an agent's answer.
const maxReason = 64 << 10

// reason is why a transfer failed, as an agent tells it.
type reason struct{ Rule, Text string }

// ask asks both agents of a pair why a transfer failed and returns what the agent of
// the failed leg says, else what the other one says; false when neither knows.
func (s *Server) ask(p pair, transfer string, failed kvlayout.Role) (reason, bool) {
	ctx, cancel := context.WithTimeout(s.last, askWithin)
	defer cancel()
	other := kvlayout.Prefill
	if failed == kvlayout.Prefill {
		other = kvlayout.Decode
	}
	// Each answer has a place of its own to wait in, so that neither goroutine hangs.
	answers := map[kvlayout.Role]chan reason{failed: make(chan reason, 1), other: make(chan reason, 1)}
	for role, ch := range answers {
		go func() {
			r, err := s.askAgent(ctx, p.of(role).pod, transfer)
			if err != nil {
				s.log.Debug("agent not asked", "role", role, "transfer", transfer, "error", err)
			}
			ch <- r
		}()
	}
	for _, role := range []kvlayout.Role{failed, other} {
		if r := <-answers[role]; r.Rule != "" {
			s.metrics.asked.WithLabelValues("told").Inc()
			r.Text = s.masker(p).conceal(r.Text)
			return r, true
		}
	}
	s.metrics.asked.WithLabelValues("unknown").Inc()
	return reason{}, false
}

func (s *Server) askAgent(ctx context.Context, pod *Pod, transfer string) (reason, error) {
	if pod.Agent == 0 {
		return reason{}, nil
	}
	at := "http://" + joinPort(pod.Host, pod.Agent) + "/transfers/" + url.PathEscape(transfer)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return reason{}, err
	}
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return reason{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReason))
	if err != nil {
		return reason{}, err
	}
	if answer.StatusCode != http.StatusOK {
		return reason{}, fmt.Errorf("the agent answers %d", answer.StatusCode)
	}
	var told struct {
		Rule string `json:"rule"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return reason{}, fmt.Errorf("the agent's answer: %w", err)
	}
	return reason(told), nil
}
