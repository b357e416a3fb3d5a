package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// benchClient keeps enough connections for all parallel requests of a benchmark.
func benchClient(b *testing.B) *http.Client {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(b *testing.B, c *http.Client, url, body string) {
	response, err := c.Post(url+completions, "application/json", strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Errorf("status %d, %v", response.StatusCode, err)
	}
}

// BenchmarkRequest compares a request by the router with both of its legs sent by
// the client itself, which is what a router without cost would take.
func BenchmarkRequest(b *testing.B) {
	long := `{"model":"m","max_tokens":8,"prompt":"` + strings.Repeat("word ", 64<<10/5) + `"}`
	tokens := strings.Repeat(lines(7), 128)
	for _, c := range []struct {
		name, body string
		answer     func(http.ResponseWriter, *http.Request)
	}{
		{"whole", simple, func(w http.ResponseWriter, _ *http.Request) { reply200(w) }},
		{"64KiB", long, func(w http.ResponseWriter, _ *http.Request) { reply200(w) }},
		{"stream128", streamed, func(w http.ResponseWriter, _ *http.Request) {
			send := stream(w)
			for event := range strings.SplitAfterSeq(tokens, "\n\n") {
				send(event)
			}
		}},
	} {
		r := newRig(b)
		r.decode.does(c.answer)
		client := benchClient(b)
		b.Run(c.name+"/direct", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask(b, client, r.prefill.URL, c.body)
					ask(b, client, r.decode.URL, c.body)
				}
			})
		})
		b.Run(c.name+"/router", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask(b, client, r.http.URL, c.body)
				}
			})
		})
	}
}

// BenchmarkFailure is the time from a prefill's failure to the client's error.
func BenchmarkFailure(b *testing.B) {
	r := newRig(b)
	r.prefill.says(500, `{"error":{"message":"boom"}}`)
	r.decode.hangs()
	client := benchClient(b)
	for b.Loop() {
		response, err := client.Post(r.http.URL+completions, "application/json", strings.NewReader(simple))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadGateway {
			b.Fatal(response.StatusCode)
		}
	}
}

// BenchmarkLegs is what both bodies of a long request cost.
func BenchmarkLegs(b *testing.B) {
	p := shapes()["agent-tp4"]
	body := `{"model":"m","stream":true,"max_tokens":8,"prompt":"` + strings.Repeat("word ", 64<<10/5) + `"}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, f := inspect(completions, "", body)
		if f != nil {
			b.Fatal(f)
		}
		_ = r.body(p.prefill.instance.Role, p.params(p.prefill.instance.Role, goldenTransfer))
		_ = r.body(p.decode.instance.Role, p.params(p.decode.instance.Role, goldenTransfer))
	}
}
