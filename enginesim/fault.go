package enginesim

import (
	"fmt"
	"slices"

	"github.com/pdpool/pdpool/transferagent/fault"
)

// agentFaults are injected by the agent, which hears of them in the hello; the
// others are this engine's own. All belong to prefill, which writes, except that
// decode is who ends at the first writer.
var agentFaults = []string{fault.CopiesOff, fault.InterleaveOff, fault.AllToRank0, fault.FirstWriterEnds}

func belongsToPrefill(agentFault string) bool { return agentFault != fault.FirstWriterEnds }

// faults is what --sim-fault asks for.
type faults struct {
	agent []string
	own   fault.Faults
}

func parseFaults(specs []string) (faults, error) {
	var f faults
	var own []string
	for _, s := range specs {
		if slices.Contains(agentFaults, s) {
			f.agent = append(f.agent, s)
		} else {
			own = append(own, s)
		}
	}
	if _, err := fault.Parse(specs); err != nil {
		return f, fmt.Errorf("--sim-fault: %w", err)
	}
	var err error
	if f.own, err = fault.Parse(own); err != nil {
		return f, fmt.Errorf("--sim-fault: %w", err)
	}
	return f, nil
}

// check refuses faults that would never happen on this side.
func (f *faults) check(c *Config) error {
	split := c.Socket != ""
	switch {
	case split && !c.Producer && !f.own.None():
		return fmt.Errorf("--sim-fault %s, %s and %s belong to the prefill side (kv_role kv_producer)", fault.Flip, fault.DelayWriter, fault.KillWriter)
	case !split && len(f.agent) > 0:
		return fmt.Errorf("--sim-fault %s needs --kv-transfer-config: there is no agent", f.agent[0])
	}
	for _, name := range f.agent {
		switch {
		case belongsToPrefill(name) && !c.Producer:
			return fmt.Errorf("--sim-fault %s belongs to the prefill side (kv_role kv_producer)", name)
		case !belongsToPrefill(name) && c.Producer:
			return fmt.Errorf("--sim-fault %s belongs to the decode side (kv_role kv_consumer)", name)
		}
	}
	for _, x := range f.own.Flips() {
		if x.Rank >= c.Layout.TP || x.Layer >= c.Geometry.Layers {
			return fmt.Errorf("--sim-fault %s: rank %d, layer %d of %d ranks, %d layers", fault.Flip, x.Rank, x.Layer, c.Layout.TP, c.Geometry.Layers)
		}
	}
	return nil
}

// checkWorkers refuses a fault of a worker's saves that no worker has.
func (c *Config) checkWorkers(specs []string) error {
	for _, spec := range specs {
		one, err := fault.Parse([]string{spec})
		if err != nil {
			return fmt.Errorf("--sim-fault: %w", err)
		}
		if slices.Contains(agentFaults, spec) || len(one.Flips()) > 0 {
			continue
		}
		if c.Socket == "" {
			return fmt.Errorf("--sim-fault %s needs --kv-transfer-config: there is no agent", spec)
		}
		if !c.strikes(one) {
			return fmt.Errorf("--sim-fault %s strikes none of %d ranks and %d layers", spec, c.Layout.TP, c.Geometry.Layers)
		}
	}
	return nil
}

func (c *Config) strikes(f fault.Faults) bool {
	for tp := range c.Layout.TP {
		if f.Delay(tp) > 0 {
			return true
		}
		for layer := range c.Geometry.Layers {
			if f.Kills(tp, layer) {
				return true
			}
		}
	}
	return false
}
