package router

import (
	"context"
	"net/http"
	"slices"
)

// maxAttempts is how many pairs a request is sent to at most. A prompt that brings
// engines down brings down no more.
const maxAttempts = 3

// peerRules are the rules by which a transfer ends through what happened to its pods
// or to their connection, not through the request: another pair may do better. What is
// not here (refusals of a layout, of a prompt, wrong rows) would be the same again, or
// must be seen.
var peerRules = map[string]bool{
	"peer-gone": true, "engine-gone": true, "agent-gone": true, "peer-restarted": true,
	"handshake-failed": true, "deadline-handshake": true, "copy-failed": true,
	"draining": true, "aborted": true, "canceled": true, "transfers-limit": true, "busy": true,
	"deadline-defer": true, "prefill-silent": true, "decode-silent": true, "deadline-transfer": true, "deadline-receive": true,
}

// Why another pair is tried, besides peerRules.
const (
	retryBusy  = "busy"         // the engine answers 429
	retryAway  = "unavailable"  // the engine answers 502 or 503
	retryError = "engine-error" // the engine answers 500 and nobody says why
)

// history is what a request has tried.
type history struct {
	tried  []pair
	failed []*Instance // whose leg failed by itself: no pair of theirs is tried again
	wary   []*Instance // of a pair whose transfer failed: passed over where there are others
}

func (h *history) add(p pair) { h.tried = append(h.tried, p) }

// among says whether i is one of a list. Instances are made anew when something
// changes; where they listen stays.
func (i *Instance) among(list []*Instance) bool {
	return slices.ContainsFunc(list, func(o *Instance) bool { return i == o || i.Pods[0].address() == o.Pods[0].address() })
}

// was says whether a pair of these two instances was tried.
func (h *history) was(p, d *Instance) bool {
	return slices.ContainsFunc(h.tried, func(t pair) bool {
		return p.among([]*Instance{t.prefill.instance}) && d.among([]*Instance{t.decode.instance})
	})
}

// blame remembers who failed.
func (h *history) blame(p pair, f *failure) {
	if f.told && peerRules[f.code] {
		h.wary = append(h.wary, p.prefill.instance, p.decode.instance)
		return
	}
	h.failed = append(h.failed, p.of(f.leg).instance)
}

// left are the slots of a table that belong to pairs which are still to be tried:
// the prefills, and the partners of each.
func (h *history) left(t *table) ([]*slot, map[*Instance][]*slot) {
	var prefills []*slot
	partners := map[*Instance][]*slot{}
	for _, s := range t.prefills {
		p := s.instance
		if _, known := partners[p]; !known {
			partners[p] = nil
			if !p.among(h.failed) {
				partners[p] = slices.DeleteFunc(slices.Clone(t.partners[p]), func(d *slot) bool {
					return d.instance.among(h.failed) || h.was(p, d.instance)
				})
			}
		}
		if len(partners[p]) > 0 {
			prefills = append(prefills, s)
		}
	}
	return prefills, partners
}

// retryable says why another pair may serve what f ended; empty when none may. A hang
// has taken the time that another attempt would need.
func (h *history) retryable(f *failure) string {
	switch {
	case f.leg == "" || f.code == codeSilent || f.code == codeTooOld:
		return ""
	case f.engine == http.StatusTooManyRequests:
		return retryBusy
	case f.asIs != nil:
		return ""
	case f.code == codeUnreachable || f.code == codeLost || f.code == codeFrozen || f.told && peerRules[f.code]:
		return f.code
	case f.code == codeFailed:
		return h.answered(f)
	}
	return ""
}

// answered is retryable for what an engine answers without a rule.
func (h *history) answered(f *failure) string {
	switch f.engine {
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return retryAway
	case http.StatusInternalServerError:
		// An engine that dies may answer so, and so may one that a request brings down:
		// that is found out once.
		if f.told && len(h.tried) == 1 {
			return retryError
		}
	}
	return ""
}

// another chooses the pair for the next attempt after the failure f, which it makes
// say what the agents know where that decides; false when the request has failed.
func (a *attempt) another(f **failure) (pair, bool) {
	if a.sent || (*f).code == codeClientGone || late(a.until) {
		return pair{}, false
	}
	reason := a.history.retryable(*f)
	if reason == "" && (*f).code == codeFailed {
		*f = a.explain(*f)
		reason = a.history.retryable(*f)
	}
	if reason == "" || a.client.Context().Err() != nil || context.Cause(a.last) != nil {
		return pair{}, false
	}
	a.history.blame(a.pair, *f)
	if len(a.history.tried) >= maxAttempts {
		a.metrics.exhausted.Inc()
		return pair{}, false
	}
	t, refusal := a.Registry.current.Load().table(a.request.model)
	if refusal != nil {
		return pair{}, false
	}
	p, ok := a.next(&a.history, t)
	if ok {
		a.metrics.retries.WithLabelValues(string((*f).leg), reason).Inc()
	}
	return p, ok
}

// next chooses of the pairs that are still to be tried; false when there are none.
func (s *Server) next(h *history, t *table) (pair, bool) {
	prefills, partners := h.left(t)
	if len(prefills) == 0 {
		return pair{}, false
	}
	return s.pick(prefills, partners, h.wary), true
}
