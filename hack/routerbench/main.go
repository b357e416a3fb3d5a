// Command routerbench measures PDPool's router beside a client that does both legs
// itself and beside other routers, where they are installed. Engines are fake ones
// that answer at once. All contenders take turns in each repetition, in an order that
// is drawn anew, and ratios are taken within a repetition.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "routerbench: "+err.Error())
		os.Exit(1)
	}
}

type options struct {
	router, vllm, smg string
	only              string
	rounds            int
	duration          time.Duration
	raw               string
}

// parse reads the flags, and the loads that they name.
func parse(args []string, errOut io.Writer) (o options, chosen []cell, err error) {
	f := flag.NewFlagSet("routerbench", flag.ContinueOnError)
	f.StringVar(&o.router, "router", "bin/router", "PDPool's router")
	f.StringVar(&o.vllm, "vllm-router", "vllm-router", "vllm-router, left out where it is not found")
	f.StringVar(&o.smg, "smg", "smg", "smg, left out where it is not found")
	f.StringVar(&o.only, "cells", "", "loads, comma separated; empty: all")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, whose medians are reported")
	f.DurationVar(&o.duration, "duration", 1500*time.Millisecond, "time of one load on one contender")
	f.StringVar(&o.raw, "raw", "", "file for each measurement as a line of JSON")
	f.SetOutput(errOut)
	if err := f.Parse(args); err != nil {
		return o, nil, err
	}
	if o.only == "" {
		return o, cells, nil
	}
	names := strings.Split(o.only, ",")
	chosen = slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return !slices.Contains(names, c.name) })
	if len(chosen) != len(names) {
		return o, nil, fmt.Errorf("--cells %q names a load that does not exist", o.only)
	}
	return o, chosen, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, chosen, err := parse(args, errOut)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "routerbench-")
	if err != nil {
		return err
	}
	all, err := contenders(ctx, o, dir, errOut)
	defer func() {
		for _, c := range all {
			c.stop()
		}
	}()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of logs; kept when a router did not start
	raw := io.Discard
	if o.raw != "" {
		file, err := os.Create(o.raw)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // Encode would have told
		raw = file
	}
	r := results{}
	for round := range o.rounds {
		for _, c := range chosen {
			if err := r.round(ctx, c, all, o.duration, round, json.NewEncoder(raw)); err != nil {
				return err
			}
		}
	}
	return r.print(out, chosen, all)
}

// round puts one load on all contenders, in an order that is drawn.
func (r results) round(ctx context.Context, c cell, all []*contender, d time.Duration, round int, raw *json.Encoder) error {
	for _, i := range rand.Perm(len(all)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.fails && !all[i].own() {
			continue
		}
		m := measure(c, all[i], d)
		r[key{c.name, all[i].name}] = append(r[key{c.name, all[i].name}], m)
		if err := raw.Encode(map[string]any{"round": round, "cell": c.name, "router": all[i].name, "result": m}); err != nil {
			return err
		}
	}
	return nil
}

// contenders starts all that there are: direct and PDPool's own must.
func contenders(ctx context.Context, o options, dir string, errOut io.Writer) ([]*contender, error) {
	d, err := direct()
	if err != nil {
		return nil, err
	}
	all := []*contender{d}
	peers := []launch{own(o.router, dir), vllmRouter(o.vllm, kvlayout.Write), vllmRouter(o.vllm, kvlayout.Read), smg(o.smg)}
	for i, l := range peers {
		if _, err := exec.LookPath(l.program); err != nil && i > 0 {
			fmt.Fprintf(errOut, "%s is left out: %s is not installed\n", l.name, l.program) //nolint:errcheck // a note
			continue
		}
		c, err := l.start(ctx, dir)
		if err != nil {
			return all, fmt.Errorf("start %s: %w", l.name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// measure is one load on one contender, after a short one that is not counted.
func measure(c cell, to *contender, d time.Duration) measured {
	for _, e := range to.engines {
		e.gap.Store(int64(c.gap))
		e.fails.Store(c.fails)
	}
	c.run(to, d/5)
	m := c.run(to, d)
	for _, e := range to.engines {
		e.fails.Store(false)
	}
	return m
}
