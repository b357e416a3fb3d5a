package router

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// pair is what a request is sent to.
type pair struct{ prefill, decode *slot }

// of is the slot of a role.
func (p pair) of(role kvlayout.Role) *slot {
	if role == kvlayout.Prefill {
		return p.prefill
	}
	return p.decode
}

// mover is who moves the bytes of the pair.
func (p pair) mover() kvlayout.Mover { return p.prefill.instance.Mover }

// transferParams is kv_transfer_params of a leg in mode WRITE. Absence of the two
// that are always null stops a stock engine.
type transferParams struct {
	DoRemoteDecode  bool     `json:"do_remote_decode"`
	DoRemotePrefill bool     `json:"do_remote_prefill"`
	Transfer        string   `json:"transfer_id"`
	EngineID        *string  `json:"remote_engine_id"`
	BlockIDs        *[]int   `json:"remote_block_ids"`
	Host            string   `json:"remote_host"`
	Handshake       int      `json:"remote_handshake_port"`
	Notify          int      `json:"remote_notify_port"`
	TP              int      `json:"remote_tp_size"`
	DP              int      `json:"remote_dp_size"`
	DPRank          int      `json:"remote_dp_rank"`
	DPLocal         int      `json:"remote_dp_size_local,omitempty"`
	Hosts           []string `json:"remote_hosts,omitempty"`
	Leader          bool     `json:"is_request_leader,omitempty"`
}

// params tells a leg where its peer is.
func (p pair) params(leg kvlayout.Role, transfer string) string {
	self, peer := p.decode, p.prefill
	if leg == kvlayout.Prefill {
		self, peer = p.prefill, p.decode
	}
	at := peer.control()
	t := transferParams{
		DoRemoteDecode: leg == kvlayout.Prefill, DoRemotePrefill: leg == kvlayout.Decode, Transfer: transfer,
		Host: at.control(), Handshake: at.Handshake, Notify: at.Notify,
		TP: peer.instance.Layout.TP, DP: peer.instance.Layout.DP, DPRank: peer.rank,
	}
	if pods := peer.instance.Pods; len(pods) > 1 {
		t.DPLocal = peer.instance.Layout.DPLocal
		for i := range pods {
			t.Hosts = append(t.Hosts, pods[i].control())
		}
	}
	// A stock decode lets only the ranks of its first pod notify, unless it is told
	// that the one rank which has the request is to.
	t.Leader = leg == kvlayout.Decode && p.mover() == kvlayout.MoverEngine && len(self.instance.Pods) > 1
	out, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(out)
}

// control is the pod whose control ports a peer of the rank is told. An agent serves
// the ranks of its own pod; stock engines count ports and pods from the first one.
func (s *slot) control() *Pod {
	if s.instance.Mover == kvlayout.MoverEngine {
		return &s.instance.Pods[0]
	}
	return s.pod
}

// body is what a leg is sent. Decode gets the client's request; prefill's is cut to
// one token, which is thrown away: decode draws the first one itself. It must end by
// length, since a stock prefill that ends otherwise frees its blocks at once.
func (r *request) body(leg kvlayout.Role, params string) pieces {
	if leg == kvlayout.Decode {
		return r.document.with([]edit{{"kv_transfer_params", params}})
	}
	edits := []edit{
		{"max_tokens", "1"},
		{"min_tokens", "1"},
		{"n", "1"},
		{"stream", "false"},
		{"stream_options", ""},
		{"ignore_eos", "true"},
		{"stop", ""},
		{"stop_token_ids", ""},
		{"kv_transfer_params", params},
	}
	if r.document.field("max_completion_tokens").Exists() {
		edits = append(edits, edit{"max_completion_tokens", "1"})
	}
	return r.document.with(edits)
}

// publicID names a request to its client: by the client's own id, if there is one.
func publicID(client, transfer string) string {
	if client == "" {
		return transfer
	}
	return client + "-" + digitsOf(transfer)[:8]
}

func digitsOf(transfer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(transfer, transferPrefix), "-", "")
}

// requestID is X-Request-Id of both legs. Stock engines find their peer in it.
func (p pair) requestID(client, transfer string) string {
	if p.mover() == kvlayout.MoverEngine {
		zmq := func(s *slot) string {
			at := s.control()
			return moriio.FormatZMQAddress(at.control(), at.Handshake, at.Notify)
		}
		return moriio.RequestID(zmq(p.prefill), zmq(p.decode), digitsOf(transfer))
	}
	return publicID(client, transfer)
}

// transferPrefix begins a transfer id, as MoRIIO's proxies write it.
const transferPrefix = "tx-"

// passed are the headers of a client that engines get.
var passed = []string{"Authorization", "Traceparent", "Tracestate", "Baggage"}

// legHeader makes the headers of a leg.
func (p pair) legHeader(client http.Header, leg kvlayout.Role, id string) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"},
		"X-Request-Id": {id},
		"User-Agent":   {"pdpool-router"},
	}
	for _, key := range passed {
		if v := client[key]; len(v) > 0 {
			h[key] = v
		}
	}
	// The engine behind one address counts its own ranks from 0.
	if s := p.of(leg); s.instance.Layout.DP > 1 {
		h["X-Data-Parallel-Rank"] = []string{strconv.Itoa(s.local)}
	}
	return h
}

// newLeg makes a request to a rank's engine.
func newLeg(s *slot, path string, h http.Header, body pieces) *http.Request {
	return &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "http", Host: s.pod.address(), Path: path},
		Header:        h,
		Body:          body.reader(),
		ContentLength: body.size(),
	}
}

// answered are the headers of an engine's answer that the client gets: what says how to
// read it, how long it may be kept and when to come again. All others may tell where the
// engine is, or take the place of what the router itself says.
var answered = []string{"Content-Type", "Content-Encoding", "Cache-Control", "Retry-After", "X-Accel-Buffering"}

// passHeader copies an engine's headers to the client's answer.
func passHeader(to, from http.Header) {
	for _, key := range answered {
		if values := from[key]; len(values) > 0 {
			to[key] = values
		}
	}
}
