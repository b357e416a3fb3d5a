package transferagent

import (
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/fault"
	"github.com/pdpool/pdpool/transferagent/fault/faultplan"
	"github.com/pdpool/pdpool/transferagent/session"
)

// applyFaults has a machine break what a simulated engine asked for.
func applyFaults(cfg *session.Config, names []string) error {
	f, err := fault.Parse(names)
	if err != nil || f.None() {
		return err
	}
	cfg.Plan = faultplan.Break(kvlayout.WritePlan, f)
	cfg.FirstWriterEnds = f.FirstWriterEnds()
	return nil
}
