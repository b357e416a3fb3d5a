package enginesim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// group is one data parallel rank: its TP ranks with their memory, and the block
// ids that they share.
type group struct {
	cfg    *Config
	dp     int // within this process
	ranks  []*rank
	blocks *blocks
	link   *linker // to the agent; nil when unsplit
	log    *slog.Logger
	tally  *tally

	// first says of each rank that no rank before it holds the same rows.
	first []bool

	notices    sparse          // of what the agent refuses
	patience   time.Duration   // with an agent that says nothing of a transfer; 0: what it says
	stop       <-chan struct{} // closed when the instance ends
	background sync.WaitGroup  // what waits for the agent after a request's answer
}

// tally counts what /sim/state tells.
type tally struct {
	live       atomic.Int64 // requests in work, or with blocks not given back
	violations atomic.Int64 // rows found written where nothing may be
	checked    atomic.Int64 // bytes of KV memory compared
	answered   atomic.Int64
	failed     atomic.Int64
	refused    atomic.Int64 // messages that the agent refused
	prompted   atomic.Int64 // tokens
	generated  atomic.Int64 // tokens
}

func newGroup(cfg *Config, dp int, random *rand.Rand, log *slog.Logger) (*group, error) {
	g := &group{
		cfg: cfg, dp: dp, log: log, tally: &tally{},
		blocks: newBlocks(cfg.Blocks, cfg.MaxQueue, random),
	}
	type share struct{ dcp, head int }
	seen := map[share]bool{}
	for tp := range cfg.Layout.TP {
		r := shapeRank(cfg.Geometry, cfg.Layout, tp, cfg.Blocks)
		if err := r.allocate(fmt.Sprintf("kv-dp%d-tp%d", dp, tp)); err != nil {
			return nil, errors.Join(err, g.release())
		}
		g.ranks = append(g.ranks, r)
		s := share{r.dcp, r.headFirst}
		g.first = append(g.first, !seen[s])
		seen[s] = true
	}
	all := make([]int32, cfg.Blocks)
	for i := range all {
		all[i] = int32(i)
	}
	g.poison(all)
	return g, nil
}

// release gives the memory back; nobody may use it any more.
func (g *group) release() error {
	var errs []error
	for _, r := range g.ranks {
		errs = append(errs, r.free())
	}
	return errors.Join(errs...)
}

// each runs f for every rank at once.
func (g *group) each(f func(*rank) error) error {
	return parallel(len(g.ranks), func(i int) error { return f(g.ranks[i]) })
}

// poison makes each block's content its own, new poison.
func (g *group) poison(ids []int32) {
	for _, id := range ids {
		g.blocks.pattern[id] = g.blocks.newPattern()
	}
	_ = g.each(func(r *rank) error {
		for _, id := range ids {
			r.poison(id, g.blocks.pattern[id])
		}
		return nil
	})
}

// lateWriteError: a block was written while it belonged to nobody.
type lateWriteError struct{ where string }

func (e *lateWriteError) Error() string {
	return "late write: " + e.where + " was written while the block was free"
}

// take waits for count blocks and checks that nobody has written into them since
// they were freed; then it poisons them again.
func (g *group) take(ctx context.Context, count int, who holder) ([]int32, error) {
	ids, err := g.blocks.take(ctx, count, who)
	if err != nil {
		return nil, err
	}
	err = g.each(func(r *rank) error {
		for _, id := range ids {
			if err := r.checkPoison(id, g.blocks.pattern[id], &g.tally.checked); err != nil {
				return err
			}
		}
		return nil
	})
	g.poison(ids)
	if err == nil {
		return ids, nil
	}
	g.violation(err.Error())
	g.blocks.put(ids)
	return nil, &lateWriteError{where: err.Error()}
}

// give poisons blocks and frees them. Nothing may write into them any more.
func (g *group) give(ids []int32) {
	g.poison(ids)
	g.blocks.put(ids)
}

func (g *group) violation(text string) {
	g.tally.violations.Add(1)
	g.log.Error("KV memory was written where nothing may be", "dp", g.dp, "where", text)
}
