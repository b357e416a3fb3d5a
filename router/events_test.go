package router

import (
	"strings"
	"testing"
)

// mark stands for a mask that shows where it was used.
func mark(text string) string { return strings.ReplaceAll(text, "bad", "BAD") }

// TestEventsInAnyPieces: however a stream is cut, what is passed is the same, whole
// events only.
func TestEventsInAnyPieces(t *testing.T) {
	const in = "data: {\"a\":\"bad \\\"error\\\"\"}\n\n: ping\r\n\r\ndata: {\"error\":{\"message\":\"bad\"}}\r\n\r\n" +
		"event: error\ndata: {\"object\":\"error\",\ndata: \"message\":\"bad\"}\n\ndata: {\"error\":null,\"x\":\"bad\"}\n\ndata: [DONE]\n\n"
	const want = "data: {\"a\":\"bad \\\"error\\\"\"}\n\n: ping\r\n\r\ndata: {\"error\":{\"message\":\"BAD\"}}\r\n\r\n" +
		"event: error\ndata: {\"object\":\"error\",\ndata: \"message\":\"BAD\"}\n\ndata: {\"error\":null,\"x\":\"bad\"}\n\ndata: [DONE]\n\n"
	for size := 1; size <= len(in); size++ {
		e := &events{mask: mark}
		var out strings.Builder
		for from := 0; from < len(in); from += size {
			piece := []byte(in[from:min(from+size, len(in))])
			passed := e.pass(piece)
			if n := len(passed); n > 0 && passed[n-1] != '\n' {
				t.Fatalf("pieces of %d: %q is no whole event", size, passed)
			}
			out.Write(passed)
		}
		if out.String() != want || !e.done || !e.failed || len(e.held) > 0 {
			t.Fatalf("pieces of %d: %q, done %v, failed %v", size, out.String(), e.done, e.failed)
		}
	}
}

// TestLongEventIsPassedInPieces: it is not kept for ever.
func TestLongEventIsPassedInPieces(t *testing.T) {
	e := &events{mask: mark}
	piece := []byte(strings.Repeat("x", 60<<10))
	n, total := 0, 0
	for range 10 {
		n += len(e.pass(piece))
		total += len(piece)
		if total-n > maxHeld+len(piece) {
			t.Fatalf("%d bytes are held", total-n)
		}
	}
	if !e.part {
		t.Error("no part was passed")
	}
	if n += len(e.pass([]byte("\n\n"))); n != total+2 || e.part {
		t.Errorf("%d of %d bytes, part %v", n, total+2, e.part)
	}
}

func TestFirstSaid(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", ": x\n\n": "-", "data: 1": "-", "data: 1\n": "-", "data: 1\n\n": "1", "data:1\r\n\r\n": "1",
		": x\n\ndata: 1\n\ndata: 2\n\n": "1", "id: 3\ndata: a\ndata: b\n\n": "ab", ": x\n\ndata: 1": "-",
		"data: 1\r\r": "1", ": x\r\rdata: a\rdata: b\r\r": "ab", "data: 1\r\n\r": "-", "data: 1\r": "-",
		"event: error\n\n": "!", "event: error\ndata: x\n\n": "x!", "event: errors\ndata: x\n\n": "x",
		`data: {"err\u006fr":1}` + "\n\n": `{"err\u006fr":1}!`, `data: {"error":null}` + "\n\n": `{"error":null}`,
	} {
		s, ok := firstSaid([]byte(in))
		got := string(s.data)
		if !ok {
			got = "-"
		}
		if s.failed {
			got += "!"
		}
		if got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

// TestErrorsAreSeen however an engine writes them: none keeps an address, none counts as a
// good end.
func TestErrorsAreSeen(t *testing.T) {
	long := strings.Repeat("x", 2*maxHeld)
	for name, c := range map[string]struct{ in, want string }{
		"by name, no JSON":       {"event: error\ndata: bad thing\n\n", "event: error\ndata: BAD thing\n\n"},
		"by name, then done":     {"event: error\ndata: bad\n\ndata: [DONE]\n\n", "event: error\ndata: BAD\n\ndata: [DONE]\n\n"},
		"by name behind data":    {"data: bad\nevent:error\n\n", "data: BAD\nevent:error\n\n"},
		"an escaped key":         {`data: {"err\u006fr":"bad"}` + "\n\n", `data: {"err\u006fr":"BAD"}` + "\n\n"},
		"all of the key escaped": {`data: {"\u0065\u0072\u0072\u006f\u0072":"bad"}` + "\n\n", `data: {"\u0065\u0072\u0072\u006f\u0072":"BAD"}` + "\n\n"},
		"lines end by CR":        {"data: {\"error\":\"bad\"}\r\rdata: bad\r\r", "data: {\"error\":\"BAD\"}\r\rdata: bad\r\r"},
		"too long":               {"data: 1\n\ndata: {\"error\":{\"message\":\"bad " + long + "\"}}\n\ndata: [DONE]\n\n", "data: 1\n\n"},
		"too long, by name":      {"event: error\ndata: bad " + long + "\n\n", ""},
		"without its end":        {"event: error\ndata: bad", "event: error\ndata: BAD"},
	} {
		for _, size := range []int{1, 7, 8 << 10} {
			e := &events{mask: mark}
			var out strings.Builder
			for from := 0; from < len(c.in); from += size {
				out.Write(e.pass([]byte(c.in[from:min(from+size, len(c.in))])))
			}
			out.Write(e.end())
			if got := out.String(); got != c.want || !e.failed {
				t.Errorf("%s in pieces of %d: %.100q, failed %v", name, size, got, e.failed)
			}
		}
	}
}

// TestLongEventInTinyPieces: each byte is looked at and copied a bounded number of times.
func TestLongEventInTinyPieces(t *testing.T) {
	e := &events{mask: mark}
	piece := []byte{'x'}
	allocated := testing.AllocsPerRun(1, func() {
		for range maxHeld {
			if len(e.pass(piece)) > 0 {
				t.Fatal("passed")
			}
		}
		e.pass([]byte("\n\n"))
	})
	if allocated > 1000 {
		t.Errorf("%v times memory was taken", allocated)
	}
}

// FuzzEvents: nothing of a stream is lost, whatever it is and however it is cut.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"error\":1}\n\n", 3)
	f.Add("\n\n\r\n\r\n\n\r\n", 1)
	f.Add("data: 1\r\rdata: 2\r\r\n\r\r\n", 1)
	f.Fuzz(func(t *testing.T, in string, size int) {
		if size < 1 {
			return
		}
		e := &events{mask: func(s string) string { return s }}
		var out strings.Builder
		for from := 0; from < len(in); from += size {
			out.Write(e.pass([]byte(in[from:min(from+size, len(in))])))
			if size > len(in) {
				break
			}
		}
		if got := out.String() + string(e.held); got != in {
			t.Fatalf("%q became %q", in, got)
		}
	})
}
