package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/transferagent/fault"
)

func TestParse(t *testing.T) {
	f, err := fault.Parse([]string{"flip:rank=1,layer=0,row=7", "delay-writer:ms=2000,rank=1", "kill-writer:rank=0,layer=3", "first-writer-ends"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]fault.FlippedByte{{Rank: 1, Layer: 0, Row: 7}}, f.Flips()); diff != "" {
		t.Errorf("flips (-want +got):\n%s", diff)
	}
	if got := f.Delay(1); got != 2*time.Second {
		t.Errorf("rank 1 waits %s, not 2 s", got)
	}
	if got := f.Delay(0); got != 0 {
		t.Errorf("rank 0 waits %s", got)
	}
	if !f.Kills(0, 3) || f.Kills(0, 2) || f.Kills(1, 3) {
		t.Error("the kill is not at rank 0 layer 3 alone")
	}
	if !f.FirstWriterEnds() || f.None() {
		t.Error("first-writer-ends was not taken")
	}
	if none, err := fault.Parse(nil); err != nil || !none.None() || none.FirstWriterEnds() {
		t.Errorf("no faults: %+v, %v", none, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		names []string
		says  string
	}{
		{[]string{"copies-of"}, `unknown fault "copies-of"`},
		{[]string{""}, `unknown fault ""`},
		{[]string{"copies-off:"}, `"copies-off:" takes no arguments`},
		{[]string{"copies-off:rank=1"}, "takes no arguments"},
		{[]string{"copies-off", "interleave-off"}, "exclude each other"},
		{[]string{"flip"}, "is not one of rank=, layer=, row="},
		{[]string{"flip:rank=1,layer=2"}, "lacks row="},
		{[]string{"flip:rank=1,rank=1,row=2"}, "each once"},
		{[]string{"flip:rank=x,layer=2,row=1"}, `"x" is not a number`},
		{[]string{"delay-writer:rank=1,ms=-5"}, `"-5" is not a number from 0`},
		{[]string{"delay-writer:rank=1,ms=99999999"}, "from 0 to 1000000"},
		{make([]string, 17), "17 faults"},
	} {
		if f, err := fault.Parse(c.names); err == nil || !strings.Contains(err.Error(), c.says) || !f.None() {
			t.Errorf("%q: got %+v, %v; want an error with %q", c.names, f, err, c.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("flip:rank=1,layer=0,row=7")
	f.Add("kill-writer:rank=1,layer=2")
	f.Fuzz(func(t *testing.T, text string) {
		if faults, err := fault.Parse([]string{text}); err == nil && faults.None() {
			t.Errorf("%q was taken and does nothing", text)
		}
	})
}
