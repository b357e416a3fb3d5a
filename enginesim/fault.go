package enginesim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// agentFaults are injected by the agent, which hears of them in the hello.
var agentFaults = []string{"copies-off", "interleave-off", "all-to-rank-0", "first-writer-ends"}

// faults is what --sim-fault asks for.
type faults struct {
	agent  []string
	flips  []flip
	delays []delay
	kills  []kill
}

// flip inverts the bits of the first byte of the row of a token, after the layer
// is computed and before it is saved.
type flip struct{ rank, layer, row int }

// delay keeps back what a worker has to say of its saved layers.
type delay struct {
	rank int
	wait time.Duration
}

// kill closes a worker's connection where it would save a layer.
type kill struct{ rank, layer int }

// parse reads NAME or NAME:key=value,...
func (f *faults) parse(spec string) error {
	name, rest, _ := strings.Cut(spec, ":")
	for _, a := range agentFaults {
		if name == a {
			if rest != "" {
				return fmt.Errorf("--sim-fault %s takes no parameters, not %q", name, rest)
			}
			f.agent = append(f.agent, name)
			return nil
		}
	}
	switch name {
	case "flip":
		v, err := parameters(name, rest, "rank", "layer", "row")
		if err == nil {
			f.flips = append(f.flips, flip{rank: v[0], layer: v[1], row: v[2]})
		}
		return err
	case "delay-writer":
		v, err := parameters(name, rest, "rank", "ms")
		if err == nil {
			f.delays = append(f.delays, delay{rank: v[0], wait: time.Duration(v[1]) * time.Millisecond})
		}
		return err
	case "kill-writer":
		v, err := parameters(name, rest, "rank", "layer")
		if err == nil {
			f.kills = append(f.kills, kill{rank: v[0], layer: v[1]})
		}
		return err
	}
	return fmt.Errorf("--sim-fault %q is unknown: there are %s, flip, delay-writer and kill-writer", name, strings.Join(agentFaults, ", "))
}

// parameters reads key=value pairs, all of them required, in any order.
func parameters(fault, text string, keys ...string) ([]int, error) {
	usage := fmt.Errorf("--sim-fault %s needs %s=N", fault, strings.Join(keys, "=N,"))
	values := make([]int, len(keys))
	pairs := strings.Split(text, ",")
	if len(pairs) != len(keys) {
		return nil, usage
	}
	for i, key := range keys {
		found := false
		for _, pair := range pairs {
			k, v, _ := strings.Cut(pair, "=")
			if k != key {
				continue
			}
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 || n > 1<<30 {
				return nil, fmt.Errorf("--sim-fault %s: %s=%s is not a number from 0", fault, k, v)
			}
			values[i], found = n, true
		}
		if !found {
			return nil, usage
		}
	}
	return values, nil
}

// check refuses faults that would never happen.
func (f *faults) check(l Layout, g Geometry, split, producer bool) error {
	saves := len(f.delays) + len(f.kills)
	switch {
	case !split && len(f.agent)+saves > 0:
		return fmt.Errorf("--sim-fault other than flip needs --kv-transfer-config: there is no agent")
	case split && !producer && saves+len(f.flips) > 0:
		return fmt.Errorf("--sim-fault flip, delay-writer and kill-writer belong to the prefill side (kv_role kv_producer)")
	}
	ranks := []int{}
	layers := []int{}
	for _, x := range f.flips {
		ranks, layers = append(ranks, x.rank), append(layers, x.layer)
	}
	for _, x := range f.delays {
		ranks = append(ranks, x.rank)
	}
	for _, x := range f.kills {
		ranks, layers = append(ranks, x.rank), append(layers, x.layer)
	}
	for _, r := range ranks {
		if r >= l.TP {
			return fmt.Errorf("--sim-fault: rank %d of %d", r, l.TP)
		}
	}
	for _, x := range layers {
		if x >= g.Layers {
			return fmt.Errorf("--sim-fault: layer %d of %d", x, g.Layers)
		}
	}
	return nil
}
