package router

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

func TestBothLegsAtOnce(t *testing.T) {
	r := newRig(t)
	// Neither answers before both have been asked.
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) { next(t, "decode's leg", r.decode.calls); reply200(w) })
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) { next(t, "prefill's leg", r.prefill.calls); reply200(w) })
	a := r.post(t, completions, simple, "X-Request-Id", "mine", "Authorization", "Bearer k", "X-Other", "no")
	if a.status != http.StatusOK || a.body != answer200 {
		t.Fatalf("status %d, body %q", a.status, a.body)
	}
	if got := a.header.Get("X-Request-Id"); got != "mine" {
		t.Errorf("X-Request-Id is %q", got)
	}
	if got := a.header.Get(TransferHeader); !strings.HasPrefix(got, "tx-") {
		t.Errorf("%s is %q", TransferHeader, got)
	}
}

func TestHeadersOfLegs(t *testing.T) {
	r := newRig(t)
	r.post(t, chatCompletions, `{"model":"m","messages":[]}`, "X-Request-Id", "mine", "Authorization", "Bearer k", "Traceparent", "00-1", "X-Other", "no", "X-Data-Parallel-Rank", "7")
	ids := map[string]bool{}
	for _, e := range []*engine{r.prefill, r.decode} {
		c := next(t, "leg", e.calls)
		if c.path != chatCompletions {
			t.Errorf("path %q", c.path)
		}
		for key, want := range map[string]string{"Authorization": "Bearer k", "Traceparent": "00-1", "X-Other": "", "X-Data-Parallel-Rank": "", "Content-Type": "application/json"} {
			if got := c.header.Get(key); got != want {
				t.Errorf("%s is %q, not %q", key, got, want)
			}
		}
		ids[c.header.Get("X-Request-Id")] = true
	}
	if len(ids) != 1 {
		t.Errorf("legs have different ids: %v", ids)
	}
	for id := range ids {
		if !strings.HasPrefix(id, "mine-") {
			t.Errorf("id %q does not begin with the client's", id)
		}
	}
}

func TestStreamPassesByteForByte(t *testing.T) {
	r := newRig(t)
	chunks := []string{"data: {\"a\":1}\n\n", ": comment\r\n\r\n", "data: {\"b\":2}\n\n", "event: x\ndata: 1\ndata: 2\n\n", "data: [DONE]\n\n"}
	taken := make(chan struct{})
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		send := stream(w)
		for _, c := range chunks {
			send(c[:len(c)/2])
			send(c[len(c)/2:])
			next(t, "the client", taken) // nothing waits for the next event
		}
	})
	response := r.open(context.Background(), t, completions, streamed)
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type is %q", got)
	}
	for _, c := range chunks {
		got := make([]byte, len(c))
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != c {
			t.Fatalf("got %q, %v, not %q", got, err, c)
		}
		taken <- struct{}{}
	}
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Errorf("then came %q, %v", rest, err)
	}
}

func TestWholeAnswerKeepsItsHeaders(t *testing.T) {
	r := newRig(t)
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range map[string]string{
			"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Request-Id": "host:10.0.0.1", "Keep-Alive": "timeout=5",
			"Connection": "X-Hop", "X-Hop": "1", "Server": "e", "X-Served-By": "10.9.8.7:8000", "Location": "http://10.9.8.7/",
			"Set-Cookie": "pod=10.9.8.7", TransferHeader: "tx-forged", AttemptsHeader: "77",
		} {
			w.Header().Set(k, v)
		}
		reply(w, http.StatusOK, answer200)
	})
	a := r.post(t, completions, simple)
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Accel-Buffering") != "no" || a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") == "" {
		t.Errorf("headers are missing: %v", a.header)
	}
	if a.header.Get(TransferHeader) == "tx-forged" || a.header.Get(AttemptsHeader) != "1" {
		t.Errorf("an engine has written the router's headers: %v", a.header)
	}
	for _, k := range []string{"X-Request-Id", "Keep-Alive", "X-Hop", "Connection", "Server", "X-Served-By", "Location", "Set-Cookie"} {
		if a.header.Get(k) != "" {
			t.Errorf("%s is passed on: %q", k, a.header.Get(k))
		}
	}
}

func TestPrefillFailureEndsDecodeAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fail          func(e *engine)
		status        int
		code, outcome string
	}{
		"500":          {func(e *engine) { e.says(500, `{"error":{"message":"boom"}}`) }, 502, codeFailed, outcomeFailed},
		"503":          {func(e *engine) { e.says(503, `{"error":{"message":"boom"}}`) }, 503, codeFailed, outcomeFailed},
		"dies":         {func(e *engine) { e.dies() }, 502, codeLost, outcomeLost},
		"down":         {func(e *engine) { e.Close() }, 502, codeUnreachable, outcomeUnreachable},
		"says error":   {func(e *engine) { e.says(200, `{"error":{"message":"boom"}}`) }, 502, codeFailed, outcomeFailed},
		"object error": {func(e *engine) { e.says(200, `{"object":"error","message":"boom"}`) }, 502, codeFailed, outcomeFailed},
		"aborted":      {func(e *engine) { e.says(200, `{"choices":[{"finish_reason":"abort"}]}`) }, 502, codeFailed, outcomeFailed},
		"no JSON":      {func(e *engine) { e.says(200, `oops`) }, 502, codeFailed, outcomeFailed},
	} {
		for _, body := range []string{simple, streamed} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				r.decode.hangs()
				c.fail(r.prefill)
				a := r.post(t, completions, body)
				if a.status != c.status || a.code(t) != c.code {
					t.Errorf("status %d, %s", a.status, a.body)
				}
				if m := a.message(t); !strings.HasPrefix(m, "prefill leg failed: ") || strings.Contains(m, "127.0.0.1") {
					t.Errorf("message %q", m)
				}
				if a.header.Get(TransferHeader) == "" {
					t.Errorf("no %s", TransferHeader)
				}
				r.cancelled(t, kvlayout.Decode)
				name := `pdpool_router_legs_total{outcome="` + c.outcome + `",role="prefill"}`
				eventually(t, "prefill's leg counted", func() bool { return metric(t, r.OpsHandler(), name) == 1 })
			})
		}
	}
}

func TestRefusalOfAnEnginePassesAsItIs(t *testing.T) {
	const tooLong = `{"object":"error","message":"the prompt has 70000 tokens","type":"BadRequestError","param":null,"code":400}`
	for _, failing := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		t.Run(string(failing), func(t *testing.T) {
			r := newRig(t)
			engines := map[kvlayout.Role]*engine{kvlayout.Prefill: r.prefill, kvlayout.Decode: r.decode}
			for role, e := range engines {
				if role != failing {
					e.hangs()
				}
			}
			engines[failing].says(400, tooLong)
			a := r.post(t, completions, streamed)
			if a.status != 400 || a.body != tooLong {
				t.Errorf("status %d, body %q", a.status, a.body)
			}
		})
	}
}

// TestErrorWithStatus200: decode's becomes the status and loses its addresses. What is
// no error is not touched.
func TestErrorWithStatus200(t *testing.T) {
	for in, want := range map[string]string{
		`{"error":{"message":"peer 10.9.8.7:1 has gone"}}`:         "500 decode leg failed: leg-failed: peer an address has gone",
		`{"object":"error","message":"dial unix /run/kv.sock: x"}`: "500 decode leg failed: leg-failed: dial a socket: x",
		`{"error":{"message":"no such thing","code":404}}`:         "404 no such thing",
	} {
		r := newRig(t)
		r.decode.says(200, in)
		a := r.post(t, completions, simple)
		if got := strconv.Itoa(a.status) + " " + a.message(t); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	r := newRig(t)
	const good = `{"error":null,"choices":[{"text":"10.9.8.7"}]}`
	r.decode.says(200, good)
	if a := r.post(t, completions, simple); a.status != 200 || a.body != good {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

func TestDecodeFailureEndsPrefillAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func(e *engine)
		status int
		code   string
	}{
		"500":   {func(e *engine) { e.says(500, `{"error":{"message":"boom"}}`) }, 500, codeFailed},
		"503":   {func(e *engine) { e.says(503, `oops`) }, 503, codeFailed},
		"dies":  {func(e *engine) { e.dies() }, 502, codeLost},
		"down":  {func(e *engine) { e.Close() }, 502, codeUnreachable},
		"empty": {func(e *engine) { e.says(200, ``) }, 502, codeLost},
		"empty stream": {func(e *engine) {
			e.does(func(w http.ResponseWriter, _ *http.Request) { stream(w) })
		}, 502, codeLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.prefill.hangs()
			c.fail(r.decode)
			a := r.post(t, completions, streamed)
			if a.status != c.status || a.code(t) != c.code || !strings.HasPrefix(a.message(t), "decode leg failed: ") {
				t.Errorf("status %d, %s", a.status, a.body)
			}
			r.cancelled(t, kvlayout.Prefill)
		})
	}
}

func TestRetryAfterOfAnEngineIsPassed(t *testing.T) {
	r := newRig(t)
	r.decode.hangs()
	for _, status := range []int{429, 503} {
		r.prefill.does(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			reply(w, status, `{"error":{"message":"full"}}`)
		})
		if a := r.post(t, completions, simple); a.status != status || a.header.Get("Retry-After") != "7" {
			t.Errorf("status %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
		}
	}
}

func TestReasonOfTheAgents(t *testing.T) {
	const told = `{"id":"tx","state":"failed","rule":"peer-gone","text":"the peer 127.0.0.1:2000 (10.1.2.3:99, [fd00::7]:80) has gone"}`
	const silent = `{"id":"tx","state":"waiting"}`
	for name, c := range map[string]struct {
		prefill, decode string
		status          int
	}{
		"of the failed leg": {told, `{"rule":"other","text":"x"}`, 200},
		"of the other leg":  {silent, told, 200},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.instances[0].Pods[0].Agent = portOf(newAgent(t, c.status, c.prefill))
				r.instances[1].Pods[0].Agent = portOf(newAgent(t, c.status, c.decode))
				r.publish()
				r.decode.hangs()
				r.prefill.dies()
				a := r.post(t, completions, simple)
				if a.status != 502 || a.code(t) != "peer-gone" {
					t.Errorf("status %d, %s", a.status, a.body)
				}
				m := a.message(t)
				if !strings.HasPrefix(m, "prefill leg failed: peer-gone: the peer ") || !strings.HasSuffix(m, "has gone") {
					t.Errorf("message %q", m)
				}
				for _, address := range []string{"127.0.0.1", "10.1.2.3", "fd00"} {
					if strings.Contains(m, address) {
						t.Errorf("message %q holds an address", m)
					}
				}
			})
		})
	}
}

// TestReasonOfTheEngine: what an engine tells of its rows no agent knows better.
func TestReasonOfTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.instances[1].Pods[0].Agent = portOf(newAgent(t, 200, `{"rule":"other","text":"x"}`))
		r.publish()
		r.decode.says(500, `{"error":{"message":"wrong row: rank 1 layer 3 row 17","code":500,"rule":"wrong-row"}}`)
		a := r.post(t, completions, streamed)
		if a.status != 500 || a.code(t) != "wrong-row" || a.message(t) != "decode leg failed: wrong-row: wrong row: rank 1 layer 3 row 17" {
			t.Errorf("status %d, %s", a.status, a.body)
		}
	})
}

func TestAgentsAreNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		slow := newEngine(t)
		slow.hangs()
		r.instances[0].Pods[0].Agent, r.instances[1].Pods[0].Agent = slow.port(), 1
		r.publish()
		r.decode.hangs()
		r.prefill.dies()
		began := time.Now()
		a := r.post(t, completions, simple)
		if a.code(t) != codeLost {
			t.Errorf("%s", a.body)
		}
		if took := time.Since(began); took > askWithin {
			t.Errorf("the answer took %v", took)
		}
	})
}

func TestPrefillFailsInMidStream(t *testing.T) {
	r := newRig(t)
	begun := make(chan struct{})
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) {
		<-begun
		reply(w, 500, `{"error":{"message":"boom"}}`)
	})
	r.decode.does(func(w http.ResponseWriter, q *http.Request) {
		stream(w)(lines(1))
		<-q.Context().Done()
	})
	response := r.open(context.Background(), t, completions, streamed)
	defer func() { _ = response.Body.Close() }()
	first := make([]byte, len(lines(1)))
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != lines(1) {
		t.Fatalf("%q, %v", first, err)
	}
	close(begun)
	event, err := io.ReadAll(response.Body)
	const want = `data: {"error":{"message":"prefill leg failed: leg-failed: boom","type":"server_error","param":null,"code":"leg-failed"}}` + "\n\n"
	if string(event) != want || err != nil {
		t.Errorf("%q, %v", event, err)
	}
	r.cancelled(t, kvlayout.Decode)
}

func TestDecodeDiesInMidStream(t *testing.T) {
	for name, sent := range map[string]string{"between events": lines(1), "within one": lines(1) + "data: {\"n"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
				stream(w)(sent)
				panic(http.ErrAbortHandler)
			})
			a := r.post(t, completions, streamed)
			event, ok := strings.CutPrefix(a.body, lines(1)) // of half an event nothing is told
			if !ok || !strings.HasPrefix(event, `data: {"error":{"message":"decode leg failed: leg-lost: `) || strings.Contains(event, "[DONE]") {
				t.Errorf("body %q", a.body)
			}
			if got := metric(t, r.OpsHandler(), `pdpool_router_requests_total{code="broken",endpoint="/v1/completions"}`); got != 1 {
				t.Errorf("broken counted %v times", got)
			}
		})
	}
}

func TestDecodeDiesInMidBody(t *testing.T) {
	r := newRig(t)
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		reply(w, 200, `{"half":`)
		panic(http.ErrAbortHandler)
	})
	if a := r.post(t, completions, simple); a.status != 502 || a.code(t) != codeLost {
		t.Errorf("a short answer that is cut: status %d, %q", a.status, a.body)
	}
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4000000")
		reply(w, 200, strings.Repeat("x", 2<<20))
		panic(http.ErrAbortHandler)
	})
	if a := r.post(t, completions, simple); a.status != 200 || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("a long answer that is cut: status %d, %d bytes, %v", a.status, len(a.body), a.err)
	}
}

func TestLongWholeAnswer(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", 3<<20)
	r.decode.says(200, long)
	if a := r.post(t, completions, simple); a.status != 200 || a.body != long || a.err != nil {
		t.Errorf("status %d, %d bytes, %v", a.status, len(a.body), a.err)
	}
}

func TestClientGone(t *testing.T) {
	for name, body := range map[string]string{"whole": simple, "stream": streamed} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.prefill.hangs()
			r.decode.hangs()
			ctx, leave := context.WithCancel(context.Background())
			go func() {
				<-r.prefill.calls
				<-r.decode.calls
				leave()
			}()
			q, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+completions, strings.NewReader(body))
			if response, err := r.http.Client().Do(q); err == nil {
				_ = response.Body.Close()
				t.Fatal("an answer came")
			}
			r.cancelled(t, kvlayout.Prefill)
			r.cancelled(t, kvlayout.Decode)
			eventually(t, "the request counted", func() bool {
				return metric(t, r.OpsHandler(), `pdpool_router_requests_total{code="client-gone",endpoint="/v1/completions"}`) == 1
			})
		})
	}
}

func TestClientGoneInMidStream(t *testing.T) {
	r := newRig(t)
	r.decode.does(func(w http.ResponseWriter, q *http.Request) {
		stream(w)(lines(1))
		<-q.Context().Done()
	})
	ctx, leave := context.WithCancel(context.Background())
	response := r.open(ctx, t, completions, streamed)
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line == "" {
		t.Fatal(line, err)
	}
	leave()
	_ = response.Body.Close()
	r.cancelled(t, kvlayout.Decode)
}

func TestDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		set    func(*rig)
		status int
		text   string
	}{
		"prefill silent": {func(o *Options) { o.Answer = 50 * time.Millisecond }, func(r *rig) { r.prefill.hangs(); r.decode.hangs() }, 504, "prefill leg failed: leg-silent: "},
		"decode silent": {func(o *Options) { o.Answer = 300 * time.Millisecond }, func(r *rig) {
			r.decode.hangs()
		}, 504, "decode leg failed: leg-silent: "},
		"too old": {func(o *Options) { o.Request = 50 * time.Millisecond }, func(r *rig) { r.prefill.hangs(); r.decode.hangs() }, 504, "failed: request-deadline: "},
		"idle": {func(o *Options) { o.Idle = 50 * time.Millisecond }, func(r *rig) {
			r.decode.does(func(w http.ResponseWriter, q *http.Request) { stream(w)(lines(1)); <-q.Context().Done() })
		}, 200, "decode leg failed: leg-silent: "},
		"too old in mid stream": {func(o *Options) { o.Request = 300 * time.Millisecond }, func(r *rig) {
			r.decode.does(func(w http.ResponseWriter, q *http.Request) { stream(w)(lines(1)); <-q.Context().Done() })
		}, 200, "decode leg failed: request-deadline: "},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, c.change)
				c.set(r)
				a := r.post(t, completions, streamed)
				if a.status != c.status || !strings.Contains(a.body, c.text) || strings.Contains(a.body, "[DONE]") {
					t.Errorf("status %d, body %q", a.status, a.body)
				}
				eventually(t, "the ends of both legs", func() bool { return r.prefill.running.Load()+r.decode.running.Load() == 0 })
			})
		})
	}
}

func TestPrefillThatAnswersLateIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) { <-release; reply200(w) })
	if a := r.post(t, completions, simple); a.status != 200 || a.body != answer200 {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
	close(release)
	eventually(t, "prefill's leg counted", func() bool {
		return metric(t, r.OpsHandler(), `pdpool_router_legs_total{outcome="ok",role="prefill"}`) == 1
	})
}

func TestLoadReturnsToNothing(t *testing.T) {
	r := newRig(t)
	for _, set := range []func(){
		func() {}, func() { r.prefill.dies() }, func() { r.prefill.says(200, answer200); r.decode.dies() },
	} {
		set()
		r.post(t, completions, simple)
	}
	table, refusal := r.Registry.current.Load().table("m")
	if refusal != nil {
		t.Fatal(refusal)
	}
	eventually(t, "load", func() bool {
		p := table.prefills[0]
		return p.open.Load() == 0 && table.partners[p.instance][0].open.Load() == 0
	})
	eventually(t, "nothing in work and nothing held", func() bool {
		inWork, waiting := r.gate.count()
		return inWork+waiting == 0 && r.readers.held() == 0
	})
}
