package router

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestRenamingInPieces: where a stream is cut makes no difference.
func TestRenamingInPieces(t *testing.T) {
	const from, to = "___prefill_addr_1___x", "ours"
	for _, text := range []string{
		"", "a", "_", "___prefill_addr_1___", `{"id":"cmpl-___prefill_addr_1___x-0"}`, "____prefill_addr_1___x___prefill_addr_1___x_",
		"___prefill_addr_2___x", "___prefill_addr____prefill_addr_1___x",
	} {
		want := strings.ReplaceAll(text, from, to)
		for size := 1; size <= len(text)+1; size++ {
			r := &renaming{from: []byte(from), to: []byte(to)}
			var got strings.Builder
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				got.Write(r.pass([]byte(rest[:n])))
				rest = rest[n:]
			}
			got.Write(r.rest())
			if got.String() != want {
				t.Errorf("%q in pieces of %d: %q", text, size, got.String())
			}
		}
	}
}

// TestStockAnswersHoldNoAddress: a stock engine repeats X-Request-Id, in which both
// addresses are, in the id of its answer.
func TestStockAnswersHoldNoAddress(t *testing.T) {
	r := stockRig(t)
	long := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		body   string
		answer func(w http.ResponseWriter, id string)
		want   string
	}{
		"whole": {simple, func(w http.ResponseWriter, id string) {
			reply(w, 200, `{"id":"cmpl-`+id+`","choices":[]}`)
		}, `{"id":"cmpl-ID","choices":[]}`},
		"long": {simple, func(w http.ResponseWriter, id string) {
			body := `{"text":"` + long + `","id":"cmpl-` + id + `"}`
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			reply(w, 200, body)
		}, `{"text":"` + long + `","id":"cmpl-ID"}`},
		"stream": {streamed, func(w http.ResponseWriter, id string) {
			send := stream(w)
			send(`data: {"id":"cmpl-` + id + `"}` + "\n\n")
			send(`data: {"id":"cmpl-` + id[:30])
			send(id[30:] + `"}` + "\n\ndata: [DONE]\n\n")
		}, "data: {\"id\":\"cmpl-ID\"}\n\ndata: {\"id\":\"cmpl-ID\"}\n\ndata: [DONE]\n\n"},
		"stream that breaks": {streamed, func(w http.ResponseWriter, id string) {
			stream(w)("data: 1\n\n" + `data: {"id":"` + id[:12])
			panic(http.ErrAbortHandler)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.decode.does(func(w http.ResponseWriter, q *http.Request) { c.answer(w, q.Header.Get("X-Request-Id")) })
			for _, mine := range []string{"", "mine"} {
				var a answer
				if mine == "" {
					a = r.post(t, completions, c.body)
				} else {
					a = r.post(t, completions, c.body, "X-Request-Id", mine)
				}
				id := publicID(mine, a.header.Get(TransferHeader))
				if want := strings.ReplaceAll(c.want, "ID", id); c.want != "" && (a.status != 200 || a.body != want || a.err != nil) {
					t.Errorf("status %d, %.200q, not %.200q, %v", a.status, a.body, want, a.err)
				}
				if strings.Contains(a.body, "127.0.0.1") {
					t.Errorf("an address in %.300q", a.body)
				}
				if c.want == "" && !strings.HasPrefix(a.body, "data: 1\n\n"+`data: {"error":`) {
					t.Errorf("%q", a.body)
				}
			}
		})
	}
}
