// Package bench measures the movers between two agent processes of one machine,
// beside plain copies of the same pieces and raw TCP streams. It is a preflight for
// a node and the project's own benchmark: `transfer-agent bench`.
//
// All contenders take turns in each repetition, so that their ratios hold on a busy
// machine too:
//
//	memcpy    the pieces copied by one goroutine, target after target
//	inorder   the same in the order of the source
//	stream    one TCP connection to the peer, 1 MiB writes, no pieces
//	gathered  the pieces gathered into 1 MiB writes of one connection
//	mover     one batch for each target, posted at once, until the last is done
package bench

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// Options say what to measure.
type Options struct {
	Backend  agentconfig.Backend
	Patterns []Pattern
	// Rounds are measured apart; Repetitions are the turns of a round.
	Rounds, Repetitions int
	// Peer makes the command that runs ServePeer with this backend and folder.
	Peer func(ctx context.Context, backend agentconfig.Backend, dir string) *exec.Cmd
}

// Turn is one run of a contender: wall time and what both processes used, in seconds.
type Turn struct {
	Seconds float64 `json:"s"`
	CPU     float64 `json:"cpu_s"`
	OK      bool    `json:"ok"`
}

// Result is one round of one contender. OK of its turns says that the peer's memory
// had every byte in place, and no other byte changed, after the round.
type Result struct {
	Round   int    `json:"round"`
	Name    string `json:"lib"`
	Backend string `json:"cfg"`
	Pattern string `json:"pattern"`
	Pieces  int    `json:"pieces"`
	Bytes   int64  `json:"bytes"`
	Turns   []Turn `json:"runs"`
}

// Mover is the name of the contender that is measured.
const Mover = "mover"

// Run measures and hands each result to take as it comes.
func Run(ctx context.Context, o Options, take func(Result) error) error {
	dir, remove, err := sharedDir()
	if err != nil {
		return err
	}
	defer remove()
	own, err := newMover(o.Backend, dir, "own") //nolint:contextcheck // a mover lives until Close
	if err != nil {
		return err
	}
	defer own.Close() //nolint:errcheck // the process ends
	other, err := start(o.Peer(ctx, o.Backend, dir))
	if err != nil {
		return err
	}
	defer other.stop()
	src, free, err := mapped(sourceSize)
	if err != nil {
		return err
	}
	defer free() //nolint:errcheck // the process ends
	fill(src.Bytes)
	if err := own.Register(0, src); err != nil {
		return err
	}
	session, err := own.Dial(ctx, "127.0.0.1", other.address)
	if err != nil {
		return fmt.Errorf("dial the peer: %w", err)
	}
	defer session.Close() //nolint:errcheck // the process ends
	for round := range o.Rounds {
		for _, p := range o.Patterns {
			m := &measurement{o: o, round: round, pattern: p, src: src.Bytes, session: session, other: other}
			if err := m.run(ctx, take); err != nil {
				return fmt.Errorf("pattern %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// measurement is one pattern in one round.
type measurement struct {
	o       Options
	round   int
	pattern Pattern
	src     []byte
	session transport.Session
	other   *process
}

func (m *measurement) run(ctx context.Context, take func(Result) error) error {
	ready, err := m.other.ask(ask{Prepare: m.pattern.Name})
	if err != nil {
		return err
	}
	c := &plain{p: m.pattern, src: m.src, gather: make([]byte, 0, 1<<20)}
	for range m.pattern.targets {
		t, free, err := mapped(m.pattern.size)
		if err != nil {
			return err
		}
		defer free() //nolint:errcheck // nobody uses it any more
		c.dst = append(c.dst, t.Bytes)
	}
	if c.stream, err = (&net.Dialer{}).DialContext(ctx, "tcp", ready.Stream); err != nil {
		return err
	}
	defer c.stream.Close() //nolint:errcheck // the peer's end of it goes with the pattern
	if err := c.stream.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	results, err := m.turns([]contender{
		{"memcpy", c.memcpy},
		{"inorder", c.inOrder},
		{"stream", c.flat},
		{"gathered", c.gathered},
		{Mover, func() error { return moved(ctx, m.session, m.pattern, ready.First) }},
	})
	if err != nil {
		return err
	}
	after, err := m.other.ask(ask{Sum: true})
	if err != nil {
		return err
	}
	if got, want := after.Sum, sum(c.dst); got != want {
		return fmt.Errorf("the peer's memory has sum %08x, a copy of the same pieces %08x", got, want)
	}
	for _, r := range results {
		if err := take(r); err != nil {
			return err
		}
	}
	return nil
}

// patience bounds the turns of one pattern.
const patience = 10 * time.Minute

type contender struct {
	name string
	once func() error
}

// turns runs all contenders in turn, after one turn of each that is not counted.
func (m *measurement) turns(all []contender) ([]Result, error) {
	results := make([]Result, len(all))
	for i, c := range all {
		results[i] = Result{
			Round: m.round, Name: c.name, Backend: string(m.o.Backend), Pattern: m.pattern.Name,
			Pieces: m.pattern.Pieces(), Bytes: m.pattern.Bytes(),
		}
		if err := c.once(); err != nil { // maps, touches, connects
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range m.o.Repetitions {
		for i, c := range all {
			before, err := m.other.ask(ask{})
			if err != nil {
				return nil, err
			}
			used, start := cpuSeconds(), time.Now()
			if err := c.once(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			took := time.Since(start).Seconds()
			used = cpuSeconds() - used
			after, err := m.other.ask(ask{})
			if err != nil {
				return nil, err
			}
			results[i].Turns = append(results[i].Turns, Turn{Seconds: took, CPU: used + after.CPU - before.CPU, OK: true})
		}
	}
	return results, nil
}
