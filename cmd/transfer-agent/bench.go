package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/bench"
)

// commandBench measures the movers on this machine, between this process and a
// second one that it starts.
const commandBench = "bench"

func runBench(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("transfer-agent bench", flag.ContinueOnError)
	backends := f.String("backends", "SharedMemory,TCP", "the `backends` to measure")
	patterns := f.String("patterns", "whole,dcp64,dcp1", "the `patterns`: blocks to one rank, blocks dealt to four, rows dealt to four")
	rounds := f.Int("rounds", 5, "rounds, whose medians are reported")
	turns := f.Int("repetitions", 5, "turns of each contender in a round")
	output := f.String("output", "text", "text, or json: a line for each contender, pattern and round")
	peer := f.String("peer", "", "serve as the second process, with sockets in this `folder`")
	f.SetOutput(io.Discard)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stdout)
		fmt.Fprintln(stdout, "Usage: transfer-agent bench [flags]\n\nMeasures the movers between two processes of this machine, beside copies and TCP streams of the same bytes.") //nolint:errcheck // help
		f.PrintDefaults()
		return flag.ErrHelp
	} else if err != nil {
		return &usageError{err.Error()}
	}
	if *peer != "" {
		return bench.ServePeer(ctx, agentconfig.Backend(*backends), *peer, stdin, stdout)
	}
	switch {
	case f.NArg() > 0:
		return &usageError{fmt.Sprintf("unexpected argument %q", f.Arg(0))}
	case *rounds < 1 || *rounds > 1000 || *turns < 1 || *turns > 1000:
		return &usageError{fmt.Sprintf("%d rounds of %d repetitions: allowed are 1 to 1000 of each", *rounds, *turns)}
	case *output != "text" && *output != "json":
		return &usageError{fmt.Sprintf("--output %q is not text or json", *output)}
	}
	named, err := bench.Named(strings.Split(*patterns, ",")...)
	if err != nil {
		return &usageError{err.Error()}
	}
	for b := range strings.SplitSeq(*backends, ",") {
		o := bench.Options{Backend: agentconfig.Backend(b), Patterns: named, Rounds: *rounds, Repetitions: *turns, Peer: secondProcess(stderr)}
		if err := benchOne(ctx, o, stdout, *output == "json"); err != nil {
			return fmt.Errorf("backend %s: %w", b, err)
		}
	}
	return nil
}

func benchOne(ctx context.Context, o bench.Options, stdout io.Writer, lines bool) error {
	var all []bench.Result
	to := json.NewEncoder(stdout)
	err := bench.Run(ctx, o, func(r bench.Result) error {
		all = append(all, r)
		if lines {
			return to.Encode(r)
		}
		return nil
	})
	if err != nil || lines {
		return err
	}
	return bench.Report(stdout, all)
}

// secondProcess runs this program again as the peer.
func secondProcess(stderr io.Writer) func(context.Context, agentconfig.Backend, string) *exec.Cmd {
	return func(ctx context.Context, b agentconfig.Backend, dir string) *exec.Cmd {
		c := exec.CommandContext(ctx, os.Args[0], commandBench, "--peer", dir, "--backends", string(b)) //nolint:gosec // this program itself
		c.Stderr = stderr
		return c
	}
}
