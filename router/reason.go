package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// askWithin bounds what asking the agents adds to the time of a failed request.
const askWithin = 50 * time.Millisecond

const (
	maxReason     = 64 << 10 // bytes of an agent's answer
	maxReasonText = 512      // bytes of what a client is told of it
)

// reason is why a transfer failed, as an agent tells it.
type reason struct{ Rule, Text string }

// ask asks both agents of a pair why a transfer failed and returns what the agent of
// the failed leg says, else what the other one says; false when neither knows.
func (s *Server) ask(ctx context.Context, p pair, transfer string, failed kvlayout.Role) (reason, bool) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
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
			r.Text = conceal(r.Text, p)
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

// addresses finds IPv4 and bracketed IPv6 addresses and bare IPv6 ones with at
// least three groups, each with a port or without.
var addresses = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b|\[[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*\](?::\d{1,5})?|\b(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4})*)?`)

// sockets finds unix sockets and ZeroMQ's ipc endpoints by their schemes, and what
// ends like the path of one. In a JSON text it ends before a quote and takes escapes
// whole, so that they stay what they are or go.
var sockets = regexp.MustCompile(`(?:unix(?:gram|packet)?|ipc)[ :](?:@|\\?/)(?:[^\s"'\\,;:()]|\\/)*|(?:[^\s"'\\,;:()=]|\\[^"])*\.sock\b`)

// masked puts roles in place of the names and addresses of pods, and says nothing of
// other addresses. A JSON text stays one: addresses are in its strings only.
func masked(text string, p pair) string {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		pods := p.of(role).instance.Pods
		for i := range pods {
			for _, name := range []string{pods[i].Host, pods[i].Control, pods[i].Name} {
				if len(name) > 3 && strings.Contains(text, name) {
					known := regexp.MustCompile(`\[?\b` + regexp.QuoteMeta(name) + `\b\]?(?::\d{1,5}\b)?`)
					text = known.ReplaceAllLiteralString(text, "the "+string(role)+" pod")
				}
			}
		}
	}
	text = sockets.ReplaceAllLiteralString(text, "a socket")
	return addresses.ReplaceAllLiteralString(text, "an address")
}

// conceal makes a short text for a client, without names and addresses of pods.
func conceal(text string, p pair) string {
	text = masked(strings.ToValidUTF8(text, "?"), p)
	if len(text) > maxReasonText {
		text = strings.ToValidUTF8(text[:maxReasonText], "") + "..."
	}
	return text
}
