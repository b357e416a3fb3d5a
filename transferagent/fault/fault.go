// Package fault breaks transfers on purpose, to show that what checks them sees
// it. Only Simulator pools take faults: they come with an engine's Hello. It says
// which there are; what they do is up to who asks.
package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of the faults, as in Hello and on enginesim's command line.
const (
	CopiesOff       = "copies-off"
	InterleaveOff   = "interleave-off"
	AllToRank0      = "all-to-rank-0"
	FirstWriterEnds = "first-writer-ends"
	Flip            = "flip"
	DelayWriter     = "delay-writer"
	KillWriter      = "kill-writer"
)

// MaxFaults is the number of faults that Parse takes.
const MaxFaults = 16

// Faults is what an engine asked to have broken. The zero value breaks nothing.
type Faults struct {
	plan        string // CopiesOff, InterleaveOff, AllToRank0 or ""
	firstWriter bool
	flips       []FlippedByte
	delays      []Delay
	kills       []Kill
}

// FlippedByte is a byte of a source row that the engine flips before it says that
// the layer is saved. Row counts the tokens of the prompt.
type FlippedByte struct{ Rank, Layer, Row int }

// Delay is how long a worker is late: it tells of all its layers that much after
// the last one is complete.
type Delay struct {
	Rank int
	By   time.Duration
}

// Kill names a worker that closes its connection instead of saving the layer.
type Kill struct{ Rank, Layer int }

// Parse reads fault names such as "copies-off" or "flip:rank=1,layer=0,row=7". At
// most one of them may change plans.
func Parse(names []string) (Faults, error) {
	var f Faults
	if len(names) > MaxFaults {
		return f, fmt.Errorf("%d faults are more than the %d that may be given", len(names), MaxFaults)
	}
	for _, name := range names {
		if err := f.add(name); err != nil {
			return Faults{}, err
		}
	}
	return f, nil
}

func (f *Faults) add(text string) error {
	name, list, _ := strings.Cut(text, ":")
	switch name {
	case CopiesOff, InterleaveOff, AllToRank0:
		if f.plan != "" && f.plan != name {
			return fmt.Errorf("faults %s and %s exclude each other", f.plan, name)
		}
		f.plan = name
		return noArguments(text, name, list)
	case FirstWriterEnds:
		f.firstWriter = true
		return noArguments(text, name, list)
	case Flip:
		v, err := arguments(text, list, "rank", "layer", "row")
		if err == nil {
			f.flips = append(f.flips, FlippedByte{Rank: v[0], Layer: v[1], Row: v[2]})
		}
		return err
	case DelayWriter:
		v, err := arguments(text, list, "rank", "ms")
		if err == nil {
			f.delays = append(f.delays, Delay{Rank: v[0], By: time.Duration(v[1]) * time.Millisecond})
		}
		return err
	case KillWriter:
		v, err := arguments(text, list, "rank", "layer")
		if err == nil {
			f.kills = append(f.kills, Kill{Rank: v[0], Layer: v[1]})
		}
		return err
	}
	return fmt.Errorf("unknown fault %q", text)
}

func noArguments(text, name, list string) error {
	if list != "" || text != name {
		return fmt.Errorf("fault %q takes no arguments", text)
	}
	return nil
}

// maxArgument bounds numbers in faults; a wait of a million milliseconds is longer
// than any deadline.
const maxArgument = 1_000_000

// arguments reads "a=1,b=2" with exactly the given keys, in any order.
func arguments(text, list string, keys ...string) ([]int, error) {
	values := make([]int, len(keys))
	seen := make([]bool, len(keys))
	for part := range strings.SplitSeq(list, ",") {
		key, number, _ := strings.Cut(part, "=")
		i := slices.Index(keys, key)
		if i < 0 || seen[i] {
			return nil, fmt.Errorf("fault %q: %q is not one of %s, each once", text, part, strings.Join(keys, "=, ")+"=")
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > maxArgument {
			return nil, fmt.Errorf("fault %q: %q is not a number from 0 to %d", text, number, maxArgument)
		}
		values[i], seen[i] = n, true
	}
	if i := slices.Index(seen, false); i >= 0 {
		return nil, fmt.Errorf("fault %q lacks %s=", text, keys[i])
	}
	return values, nil
}

// Plan is the fault that changes plans, by name; "" when none does. Package
// faultplan does it.
func (f Faults) Plan() string { return f.plan }

// FirstWriterEnds says that decode reports done at its first writer.
func (f Faults) FirstWriterEnds() bool { return f.firstWriter }

// Flips lists the bytes to flip; the engine does it.
func (f Faults) Flips() []FlippedByte { return slices.Clone(f.flips) }

// Delay is how long a worker tells of all its layers late, 0 when it does not; the
// engine does it.
func (f Faults) Delay(rank int) time.Duration {
	var sum time.Duration
	for _, d := range f.delays {
		if d.Rank == rank {
			sum += d.By
		}
	}
	return sum
}

// Kills reports whether a worker closes its connection instead of saving the
// layer; the engine does it.
func (f Faults) Kills(rank, layer int) bool {
	return slices.Contains(f.kills, Kill{Rank: rank, Layer: layer})
}

// None reports whether nothing is broken.
func (f Faults) None() bool {
	return f.plan == "" && !f.firstWriter && len(f.flips)+len(f.delays)+len(f.kills) == 0
}
