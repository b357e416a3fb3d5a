package fault_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
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

// memories of a source and N readers, one byte per row.
const (
	block  = 4
	blocks = 8
)

func region() kvlayout.Region {
	return kvlayout.Region{
		BlockStride: block, Blocks: blocks, BlockTokens: block,
		Heads: kvlayout.HeadRange{Count: 1}, HeadStride: block, TokenStride: 1, RowBytes: 1,
	}
}

// write runs the plans of all readers and returns their memories.
func write(t *testing.T, plan fault.Planner, sourceDCP, dcp, interleave, tokens int) [][]byte {
	t.Helper()
	source := make([]byte, block*blocks)
	for i := range source {
		source[i] = byte(i + 1)
	}
	var readers [][]byte
	for r := range dcp {
		reader := make([]byte, block*blocks)
		copies, err := plan(nil, kvlayout.WriteSpec{
			Source: region(), Target: region(), SourceBlocks: []int32{0, 1, 2, 3, 4, 5, 6, 7}, TargetBlocks: []int32{1, 0, 2, 3, 4, 5, 6, 7},
			SourceDCP: sourceDCP, Placement: kvlayout.Placement{DCP: dcp, Interleave: interleave, BlockTokens: block}, TargetRank: r,
			Tokens: tokens, Heads: kvlayout.HeadRange{Count: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range copies {
			for i := range int64(c.Count) {
				copy(reader[c.Dst+i*c.DstStride:][:c.Length], source[c.Src+i*c.SrcStride:][:c.Length])
			}
		}
		readers = append(readers, reader)
	}
	return readers
}

// wrongRows counts prompt tokens that are not where they belong.
func wrongRows(dcp, interleave, tokens int, readers [][]byte) int {
	place := kvlayout.Placement{DCP: dcp, Interleave: interleave, BlockTokens: block}
	targets := []int{1, 0, 2, 3, 4, 5, 6, 7}
	wrong := 0
	for token := range tokens {
		rank, b, slot := place.Locate(token)
		if readers[rank][targets[b]*block+slot] != byte(token+1) {
			wrong++
		}
	}
	return wrong
}

func TestEveryPlanFaultShows(t *testing.T) {
	for _, name := range []string{"copies-off", "interleave-off", "all-to-rank-0"} {
		f, err := fault.Parse([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ sourceDCP, dcp, interleave, tokens int }{
			{1, 4, 4, 13}, {1, 4, 1, 13}, {1, 2, 2, 5}, {1, 4, 4, 2}, {1, 1, 1, 13}, {1, 1, 1, 1},
		} {
			if n := wrongRows(c.dcp, c.interleave, c.tokens, write(t, kvlayout.WritePlan, c.sourceDCP, c.dcp, c.interleave, c.tokens)); n != 0 {
				t.Fatalf("without a fault %d rows are wrong", n)
			}
			if wrongRows(c.dcp, c.interleave, c.tokens, write(t, f.Plan(kvlayout.WritePlan), c.sourceDCP, c.dcp, c.interleave, c.tokens)) == 0 {
				t.Errorf("%s changes nothing at %+v", name, c)
			}
		}
		// Equal DCP is copied rank to rank; the fault must show there too.
		for r, memory := range write(t, f.Plan(kvlayout.WritePlan), 4, 4, 1, 16) {
			if memory[block] != 0 {
				t.Errorf("%s at equal DCP: reader %d got its rows", name, r)
			}
		}
	}
}

func TestInterleaveOffShiftsByOneRank(t *testing.T) {
	f, err := fault.Parse([]string{"interleave-off"})
	if err != nil {
		t.Fatal(err)
	}
	readers := write(t, f.Plan(kvlayout.WritePlan), 1, 4, 1, 16)
	for r := range readers {
		if got, want := readers[(r+1)%4][block], byte(r+1); got != want {
			t.Errorf("token %d is not on rank %d: found %d", r, (r+1)%4, got)
		}
	}
}

func TestFaultyPlanRefusesWhatThePlanRefuses(t *testing.T) {
	for _, name := range []string{"copies-off", "interleave-off", "all-to-rank-0"} {
		f, err := fault.Parse([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		kept := []kvlayout.Copy{{Src: 1}}
		out, err := f.Plan(kvlayout.WritePlan)(kept, kvlayout.WriteSpec{
			Source: region(), Target: region(), SourceBlocks: []int32{0, 1}, TargetBlocks: nil,
			Placement: kvlayout.Placement{DCP: 1, BlockTokens: block}, Tokens: 8, Heads: kvlayout.HeadRange{Count: 1},
		})
		var fault *kvlayout.PlanError
		if !errors.As(err, &fault) || fault.Fault != kvlayout.FaultTargetShort {
			t.Errorf("%s: %v instead of %s", name, err, kvlayout.FaultTargetShort)
		}
		if diff := cmp.Diff(kept, out); diff != "" {
			t.Errorf("%s changed dst (-want +got):\n%s", name, diff)
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
