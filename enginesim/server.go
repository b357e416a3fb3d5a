package enginesim

import (
	"context"
	crypto "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	maxBody     = 32 << 20
	bodyWithin  = time.Minute      // from the header to the last byte of a body
	chunkWithin = 30 * time.Second // for a client to take a chunk
)

// routes are the endpoints of vLLM's server that a pool needs, and those of trials:
// /sim/state tells which blocks are held; POST /sim/fail?as=WORDS has requests fail in
// the words of --sim-fail from now on, as=off ends that; POST /sim/kill ends the
// process at once, as a crash does.
func (in *Instance) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", in.health)
	mux.HandleFunc("GET /v1/models", in.listModels)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { in.complete(w, r, false) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { in.complete(w, r, true) })
	mux.HandleFunc("POST /tokenize", in.tokenize)
	mux.HandleFunc("GET /metrics", in.metrics)
	mux.HandleFunc("POST /sim/fail", in.failOn)
	mux.HandleFunc("GET /sim/state", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, in.State()) })
	if in.crash != nil {
		mux.HandleFunc("POST /sim/kill", func(http.ResponseWriter, *http.Request) { in.crash() })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.handlers.Add(1)
		defer in.handlers.Done()
		mux.ServeHTTP(w, r)
	})
}

// health says that the engine lives, also while it has no agent: an engine that was
// ended for that would lose its memory and its model for nothing. Whether transfers
// can be served is the agent's to say, and requests are answered 503 until then.
func (in *Instance) health(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
}

// failOn sets how requests fail on purpose.
func (in *Instance) failOn(w http.ResponseWriter, r *http.Request) {
	m, err := parseMishap(r.URL.Query().Get("as"))
	if err != nil {
		fail(w, badRequest("as=%v", err))
		return
	}
	in.mishaps.set(m)
	w.WriteHeader(http.StatusNoContent)
}

func (in *Instance) listModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID        string `json:"id"`
		Object    string `json:"object"`
		OwnedBy   string `json:"owned_by"`
		Root      string `json:"root"`
		MaxLength int    `json:"max_model_len"`
	}
	var out struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}
	out.Object = "list"
	for _, name := range in.cfg.Served {
		out.Data = append(out.Data, model{name, "model", "enginesim", in.cfg.Model, in.cfg.longest()})
	}
	reply(w, http.StatusOK, out)
}

// longest is the most tokens that a prompt and its answer may have together.
func (c *Config) longest() int {
	if c.MaxLength > 0 {
		return min(c.MaxLength, c.Capacity())
	}
	return c.Capacity()
}

func (in *Instance) tokenize(w http.ResponseWriter, r *http.Request) {
	var b body
	if err := readBody(w, r, &b); err != nil {
		fail(w, err)
		return
	}
	tokens, err := b.prompt(len(b.Messages) > 0)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"count": len(tokens), "max_model_len": in.cfg.longest(), "tokens": tokens})
}

func readBody(w http.ResponseWriter, r *http.Request, b *body) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyWithin)) // a test recorder has none
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if size := (*http.MaxBytesError)(nil); errors.As(err, &size) {
		return size
	}
	if err != nil {
		return badRequest("read the request: %v", err)
	}
	if err := json.Unmarshal(raw, b); err != nil {
		return badRequest("the request is not what the endpoint takes: %v", err)
	}
	return nil
}

// complete serves a completion, of a prompt or of a chat.
func (in *Instance) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	var b body
	if err := readBody(w, r, &b); err != nil {
		fail(w, err)
		return
	}
	g, q, err := in.prepare(r, &b, chat)
	if err != nil {
		fail(w, err)
		return
	}
	a := &answering{w: w, chat: chat, stream: b.Stream, request: q, group: g, in: in, created: time.Now().Unix()}
	a.model = in.cfg.Served[0]
	if b.Model != "" {
		a.model = b.Model
	}
	a.usage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	if a.cut.stops, err = b.stops(); err != nil {
		fail(w, err)
		return
	}
	q.emit, a.gone = a.emit, r.Context().Done()
	blocks, err := a.run(r)
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler) // the server ends the connection, and logs nothing
	}
	if err != nil {
		if r.Context().Err() == nil || !errors.Is(err, context.Canceled) {
			in.log.Warn("request failed", "id", q.id, "error", reason(err))
		}
		a.fail(err)
		return
	}
	a.finish(blocks)
}

// prepare checks a request and chooses the data parallel rank for it.
func (in *Instance) prepare(r *http.Request, b *body, chat bool) (*group, *request, error) {
	if b.Model != "" && !slices.Contains(in.cfg.Served, b.Model) {
		return nil, nil, &statusError{http.StatusNotFound, fmt.Sprintf("the model %.80q does not exist", b.Model)}
	}
	if err := b.refuse(); err != nil {
		return nil, nil, err
	}
	tokens, err := b.prompt(chat)
	if err != nil {
		return nil, nil, err
	}
	count, err := b.count()
	if err != nil {
		return nil, nil, err
	}
	if longest := in.cfg.longest(); count > longest-len(tokens) {
		return nil, nil, badRequest("this instance holds %d tokens: the prompt has %d and the answer may have %d", longest, len(tokens), count)
	}
	g, err := in.choose(r.Header.Get("X-data-parallel-rank"))
	if err != nil {
		return nil, nil, err
	}
	q := &request{id: requestID(r, chat), tokens: tokens, count: count}
	p, err := parseTransferParams(b.Transfer)
	if err != nil || p == nil {
		return g, q, err
	}
	return g, q, in.transfer(q, p, r.Header.Get("X-Request-Id"))
}

// transfer makes one leg of a split request of q.
func (in *Instance) transfer(q *request, p *transferParams, requestID string) error {
	switch {
	case in.cfg.Socket == "":
		return badRequest("this instance is not split: it was started without --kv-transfer-config")
	case p.DoRemoteDecode != in.cfg.Producer:
		return badRequest("do_remote_decode %t at an instance that prefills: %t", p.DoRemoteDecode, in.cfg.Producer)
	case p.DoRemoteDecode:
		q.push = p.Transfer
		return nil
	}
	peer, err := p.peer(requestID)
	q.pull = &pull{transfer: p.Transfer, peer: peer}
	return err
}

// choose finds the group of a local data parallel rank, or takes turns.
func (in *Instance) choose(header string) (*group, error) {
	if header == "" {
		return in.groups[(in.turn.Add(1)-1)%uint64(len(in.groups))], nil
	}
	dp, err := strconv.Atoi(header)
	if err != nil || dp < 0 || dp >= len(in.groups) {
		return nil, badRequest("X-data-parallel-rank %.20q is not one of the %d ranks of this process", header, len(in.groups))
	}
	return in.groups[dp], nil
}

// requestID is vLLM's form of an id: the client's own, or a random one, made
// unique by eight random digits.
func requestID(r *http.Request, chat bool) string {
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = digits(16)
	}
	return prefix + id + "-" + digits(4)
}

func digits(n int) string {
	b := make([]byte, n)
	_, _ = crypto.Read(b) // never fails
	return hex.EncodeToString(b)
}
