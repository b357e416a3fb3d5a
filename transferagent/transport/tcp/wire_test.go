package tcp

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/transferagent/transport"
)

var sample = header{
	target: 7, seq: 1 << 40, payload: 30, runs: 2,
	flow: transport.Flow{Transfer: "t-1", Writer: transport.Rank{DP: 1, TP: 2}, Reader: transport.Rank{DP: -3, TP: 4}},
}

func sampleFrame() []byte {
	b := appendHeader(nil, sample)
	b = appendRun(b, run{5, 100, 10, 2})
	return appendRun(b, run{1 << 40, -1, 10, 1})
}

func TestFrameRoundTrip(t *testing.T) {
	b := sampleFrame()
	h, err := parseHeader([headerSize]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != headerSize+h.rest() {
		t.Errorf("%d bytes follow the header, it says %d", len(b)-headerSize, h.rest())
	}
	all, err := parseRuns(b[headerSize+h.name:], h.payload)
	if err != nil {
		t.Fatal(err)
	}
	want := []run{{5, 100, 10, 2}, {1 << 40, -1, 10, 1}}
	if diff := cmp.Diff(want, listed(all), cmp.AllowUnexported(run{})); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	h.flow.Transfer = string(b[headerSize : headerSize+h.name])
	want2 := sample
	want2.name = 3
	if h != want2 {
		t.Errorf("header %+v, want %+v", h, want2)
	}
	for n := range len(b) - headerSize - h.name {
		if _, err := parseRuns(b[headerSize+h.name:][:n], h.payload); err == nil {
			t.Errorf("runs cut off at %d bytes were taken", n)
		}
	}
}

func listed(all runs) (out []run) {
	for i := range all.len() {
		out = append(out, all.at(i))
	}
	return out
}

// FuzzFrame: whatever is taken keeps to the caps and is written as it was read.
func FuzzFrame(f *testing.F) {
	f.Add(sampleFrame())
	f.Add(make([]byte, headerSize))
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		h, err := parseHeader([headerSize]byte(b))
		if err != nil {
			return
		}
		if h.payload > maxPayload || h.runs > maxRuns || h.name > transport.MaxTransferName {
			t.Fatalf("over the caps: %+v", h)
		}
		rest := b[headerSize:]
		if len(rest) < h.rest() {
			return
		}
		h.flow.Transfer = string(rest[:h.name])
		checked, err := parseRuns(rest[h.name:h.rest()], h.payload)
		if err != nil {
			return
		}
		sum := int64(0)
		again := appendHeader(nil, h)
		all := listed(checked)
		for _, r := range all {
			sum += r.length * r.count
			again = appendRun(again, r)
		}
		if sum != int64(h.payload) || len(all) != h.runs {
			t.Fatalf("%d bytes in %d runs for %+v", sum, len(all), h)
		}
		given := bytes.Clone(b[:headerSize+h.rest()])
		given[42], given[43] = 0, 0 // not used
		if !bytes.Equal(again, given) {
			t.Fatalf("read %x, written %x", given, again)
		}
		touch(checked, make([]byte, 1000))
	})
}

// touch goes to all places of runs that are said to lie within mem; it must not panic.
func touch(all runs, mem []byte) {
	if !all.within(int64(len(mem))) {
		return
	}
	for _, r := range listed(all) {
		for i := range r.count {
			_ = mem[r.offset+i*r.stride:][:r.length]
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(helloBytes(token{1}))
	f.Add(welcomeBytes(statusStale))
	f.Add(appendAck(nil, ack{statusBounds, 5, 6}))
	f.Add(address{80, token{2}}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= helloSize {
			if k, err := parseHello([helloSize]byte(b)); err == nil && !bytes.Equal(helloBytes(k)[8:], b[8:helloSize]) {
				t.Fatalf("hello %x", b)
			}
		}
		if len(b) >= welcomeSize {
			if s, err := parseWelcome([welcomeSize]byte(b)); err == nil && !bytes.Equal(welcomeBytes(s)[:6], b[:6]) {
				t.Fatalf("welcome %x", b)
			}
		}
		if len(b) >= ackSize {
			if a, err := parseAck([ackSize]byte(b)); err == nil && !bytes.Equal(appendAck(nil, a), b[:ackSize]) {
				t.Fatalf("ack %x", b)
			}
		}
		if a, err := parseAddress(b); err == nil && !bytes.Equal(a.bytes(), b) {
			t.Fatalf("address %x", b)
		}
	})
}
