package faultplan_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/fault"
	"github.com/pdpool/pdpool/transferagent/fault/faultplan"
)

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
func write(t *testing.T, plan faultplan.Planner, sourceDCP, dcp, interleave, tokens int) [][]byte {
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
			if wrongRows(c.dcp, c.interleave, c.tokens, write(t, faultplan.Break(kvlayout.WritePlan, f), c.sourceDCP, c.dcp, c.interleave, c.tokens)) == 0 {
				t.Errorf("%s changes nothing at %+v", name, c)
			}
		}
		// Equal DCP is copied rank to rank; the fault must show there too.
		for r, memory := range write(t, faultplan.Break(kvlayout.WritePlan, f), 4, 4, 1, 16) {
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
	readers := write(t, faultplan.Break(kvlayout.WritePlan, f), 1, 4, 1, 16)
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
		out, err := faultplan.Break(kvlayout.WritePlan, f)(kept, kvlayout.WriteSpec{
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
