package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// engine is an instance that answers at once: what is measured is the router.
type engine struct {
	role              kvlayout.Role
	address           string
	handshake, notify int // told to routers, never opened
	server            *http.Server
	fails             atomic.Bool  // answers 500 (prefill) or waits for its client to leave (decode)
	gap               atomic.Int64 // between tokens, nanoseconds
}

func newEngine(role kvlayout.Role) (*engine, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is open as long as the process lives
	if err != nil {
		return nil, err
	}
	e := &engine{role: role, address: l.Addr().String(), handshake: 6301, notify: 61005}
	if role == kvlayout.Decode {
		e.handshake, e.notify = 7301, 61105
	}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go e.server.Serve(l) //nolint:errcheck // it ends with the process
	return e, nil
}

func (e *engine) port() int {
	_, port, _ := net.SplitHostPort(e.address)
	n, _ := strconv.Atoi(port)
	return n
}

// request is what an engine reads of a leg.
type request struct {
	Stream    bool `json:"stream"`
	MaxTokens int  `json:"max_tokens"`
	Params    struct {
		Transfer string `json:"transfer_id"`
	} `json:"kv_transfer_params"`
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// ServeHTTP implements http.Handler.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/completions":
		e.complete(w, r)
	case "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`) //nolint:errcheck // the client has gone
	case "/metrics":
		io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_waiting{engine=\"0\"} 0\n") //nolint:errcheck // the client has gone
	default: // health and what else a router asks
	}
}

func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	body.Reset()
	var q request
	if _, err := body.ReadFrom(r.Body); err != nil || json.Unmarshal(body.Bytes(), &q) != nil {
		http.Error(w, `{"error":{"message":"bad body"}}`, http.StatusBadRequest)
		return
	}
	switch {
	case e.fails.Load() && e.role == kvlayout.Prefill:
		http.Error(w, `{"error":{"message":"injected","code":500}}`, http.StatusInternalServerError)
	case e.fails.Load():
		<-r.Context().Done() // a decode that waits for KV
	case q.Stream:
		e.stream(w, q.MaxTokens)
	default:
		e.whole(w, &q)
	}
}

func (e *engine) whole(w http.ResponseWriter, q *request) {
	params := ""
	if e.role == kvlayout.Prefill {
		params = fmt.Sprintf(`,"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":%q,"remote_engine_id":"127.0.0.1:%d",`+
			`"remote_block_ids":[[1,2,3]],"remote_host":"127.0.0.1","remote_handshake_port":%d,"remote_notify_port":%d,"remote_dp_size":1,"remote_dp_rank":0,"tp_size":1,"remote_tp_size":1}`,
			q.Params.Transfer, e.handshake, e.handshake, e.notify)
	}
	answer := fmt.Sprintf(`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":%q,"finish_reason":"length"}],"usage":{"prompt_tokens":8,"completion_tokens":%d}%s}`,
		strings.Repeat("tok ", q.MaxTokens), q.MaxTokens, params)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	io.WriteString(w, answer) //nolint:errcheck // the client has gone
}

const token = "data: {\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"tok \",\"finish_reason\":null}]}\n\n"

func (e *engine) stream(w http.ResponseWriter, tokens int) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	gap := time.Duration(e.gap.Load())
	flush := http.NewResponseController(w)
	for i := range tokens {
		if i > 0 && gap > 0 {
			time.Sleep(gap) // the pace of an engine
		}
		if _, err := io.WriteString(w, token); err != nil {
			return
		}
		flush.Flush() //nolint:errcheck // the client has gone
	}
	io.WriteString(w, "data: [DONE]\n\n") //nolint:errcheck // the client has gone
}
