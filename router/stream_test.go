package router

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestStreamIsHeldBackUntilItSaysSomething: what breaks off or errs before costs only
// an attempt.
func TestStreamIsHeldBackUntilItSaysSomething(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"headers only":  func(w http.ResponseWriter) { stream(w) },
		"a comment":     func(w http.ResponseWriter) { stream(w)(": ping\n\n") },
		"half an event": func(w http.ResponseWriter) { stream(w)(`data: {"x"`) },
		"an error event": func(w http.ResponseWriter) {
			stream(w)(`data: {"error":{"message":"x","rule":"engine-gone"}}` + "\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairs(t, 1, 2)
			for i, e := range p.decodes {
				e.does(func(w http.ResponseWriter, _ *http.Request) {
					if len(p.decodes[0].calls)+len(p.decodes[1].calls) == 1 {
						begin(w)
						panic(http.ErrAbortHandler)
					}
					send := stream(w)
					send(lines(i))
					send("data: [DONE]\n\n")
				})
			}
			a := p.post(t, completions, streamed)
			if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Contains(a.body, "error") || a.header.Get(AttemptsHeader) != "2" {
				t.Errorf("status %d after %s attempts, %q", a.status, a.header.Get(AttemptsHeader), a.body)
			}
		})
	}
}

func TestNothingIsRetriedOnceSomethingWasSent(t *testing.T) {
	p := newPairs(t, 2, 2)
	for _, e := range p.decodes {
		e.does(func(w http.ResponseWriter, _ *http.Request) { stream(w)(lines(1)); panic(http.ErrAbortHandler) })
	}
	a := p.post(t, completions, streamed)
	if a.header.Get(AttemptsHeader) != "1" || len(p.decodes[0].calls)+len(p.decodes[1].calls) != 1 || !strings.Contains(a.body, `"code":"leg-lost"`) {
		t.Errorf("%s attempts, %q", a.header.Get(AttemptsHeader), a.body)
	}
}

// TestErrorOfTheFirstEventIsTheStatus: a client sees why instead of a stream that ends.
func TestErrorOfTheFirstEventIsTheStatus(t *testing.T) {
	r := newRig(t)
	for event, status := range map[string]int{
		`{"error":{"message":"too long","code":400}}`:                   400,
		`{"object":"error","message":"too long","code":422}`:            422,
		`{"error":{"message":"boom at 10.0.0.1","code":500}}`:           500,
		`{"error":{"message":"no row","code":500,"rule":"late-write"}}`: 500,
	} {
		r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
			stream(w)("data: " + event + "\n\ndata: [DONE]\n\n")
		})
		if a := r.post(t, completions, streamed); a.status != status || strings.Contains(a.body, "10.0.0.1") || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, %s", event, a.status, a.body)
		}
	}
}

// TestErrorInMidStream: its addresses are masked, the client's text is not touched, and
// it is counted as broken.
func TestErrorInMidStream(t *testing.T) {
	r := newRig(t)
	const text = `data: {"choices":[{"text":"\"error\" at 10.9.8.7"}]}` + "\n\n"
	for _, end := range []string{"", "data: [DONE]\n\n"} {
		r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
			send := stream(w)
			send(text)
			send(text + `data: {"error":{"message":"lost\n10.9.8.7:1",`)
			send(`"code":500}}` + "\n\n" + end)
		})
		a := r.post(t, completions, streamed)
		if want := text + text + `data: {"error":{"message":"lost\nan address","code":500}}` + "\n\n" + end; a.body != want {
			t.Errorf("%q, not %q", a.body, want)
		}
	}
	if n := metric(t, r.OpsHandler(), `pdpool_router_requests_total{code="broken",endpoint="/v1/completions"}`); n != 2 {
		t.Errorf("broken counted %v times", n)
	}
}

// TestStreamThatEndsWithoutItsEnd: a clean end of the connection is none of the answer.
func TestStreamThatEndsWithoutItsEnd(t *testing.T) {
	r := newRig(t)
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) { stream(w)(lines(1)) })
	a := r.post(t, completions, streamed)
	if !strings.HasPrefix(a.body, lines(1)+`data: {"error":{"message":"decode leg failed: leg-lost: `) || strings.Contains(a.body, "[DONE]") {
		t.Errorf("%q", a.body)
	}
	// An end without its blank line is one.
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) { stream(w)(lines(1) + "data: [DONE]\n") })
	if a := r.post(t, completions, streamed); a.body != lines(1)+"data: [DONE]\n" {
		t.Errorf("%q", a.body)
	}
}

// TestRunningStreamsOfADrainingInstanceGoOn: it gets nothing new.
func TestRunningStreamsOfADrainingInstanceGoOn(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		send := stream(w)
		send(lines(1))
		<-release
		send("data: [DONE]\n\n")
	})
	response := r.open(t.Context(), t, completions, streamed)
	defer func() { _ = response.Body.Close() }()
	in := bufio.NewReader(response.Body)
	if line, err := in.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	r.instances[1].Draining = true
	r.publish()
	if a := r.post(t, completions, simple); a.status != 503 || a.code(t) != RuleNoInstance {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	close(release)
	if rest, err := io.ReadAll(in); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestStreamWhoseLinesEndByCR is one as any other.
func TestStreamWhoseLinesEndByCR(t *testing.T) {
	r := newRig(t)
	const whole = "data: 1\r\r: ping\r\rdata: 2\rdata: 3\r\rdata: [DONE]\r\r"
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		send := stream(w)
		send(whole[:9])
		send(whole[9:])
	})
	if a := r.post(t, completions, streamed); a.status != 200 || a.body != whole {
		t.Errorf("status %d, %q", a.status, a.body)
	}
}

// TestErrorThatIsTooLongInMidStream: nothing of it is sent, and the client is told.
func TestErrorThatIsTooLongInMidStream(t *testing.T) {
	r := newRig(t)
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
		send := stream(w)
		send(lines(1))
		send(`data: {"error":{"message":"10.9.8.7 ` + strings.Repeat("x", 2*maxHeld))
		send(`"}}` + "\n\ndata: [DONE]\n\n")
	})
	a := r.post(t, completions, streamed)
	if !strings.HasPrefix(a.body, lines(1)+`data: {"error":{"message":"decode leg failed: leg-failed: `) || strings.Contains(a.body, "10.9.8.7") || strings.Contains(a.body, "[DONE]") {
		t.Errorf("%.300q", a.body)
	}
}

// TestPrefillsAnswerMayBeginWithBlanks: JSON may.
func TestPrefillsAnswerMayBeginWithBlanks(t *testing.T) {
	r := newRig(t)
	r.prefill.says(200, "\n \r\n"+answer200)
	if a := r.post(t, completions, simple); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	eventually(t, "prefill's leg counted", func() bool {
		return metric(t, r.OpsHandler(), `pdpool_router_legs_total{outcome="ok",role="prefill"}`) == 1
	})
}
