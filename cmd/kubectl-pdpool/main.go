// Command kubectl-pdpool is the plugin kubectl pdpool; see package cli.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/cli"
)

// version is set when a release is linked.
var version = "dev"

// farewell is how long an interrupted command may take to end what it started. Most
// of a command heeds no context: it reads, or computes.
const farewell = 250 * time.Millisecond

func main() { os.Exit(interruptible(os.Args[1:])) }

// interruptible runs the command and returns its exit status. A signal ends it at once,
// as it would without a handler, but not before kubectl is ended and not in the midst of
// what is printed.
func interruptible(args []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, os.Stdin, os.Stdout, os.Stderr) }()
	select {
	case err := <-done:
		if err != nil && !cli.Silent(err) {
			fmt.Fprintln(os.Stderr, "error:", cli.Legible(err.Error()))
		}
		return cli.ExitCode(err)
	case s := <-signals:
		cancel()
		select {
		case <-done:
		case <-time.After(farewell):
		}
		return exitOf(s)
	}
}

// exitOf is the exit status of a process that a signal ends, as shells have it.
func exitOf(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// run runs the command. What it prints is written when it is complete, and not at all
// where ctx has ended before.
func run(ctx context.Context, args []string, in io.Reader, out, diagnostics io.Writer) error {
	var printed bytes.Buffer
	cmd := cli.Command(ctx, cli.Options{
		Version: version, In: in, Out: &printed, Err: diagnostics, Colour: colours(out), Kubectl: kubectl, Now: time.Now,
	})
	cmd.SetArgs(args)
	err := cmd.Execute()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, failed := out.Write(printed.Bytes()); failed != nil {
		return failed
	}
	return err
}

// colours says that out is a terminal whose user has not asked for plain text.
func colours(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
