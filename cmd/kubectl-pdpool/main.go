// Command kubectl-pdpool is the plugin kubectl pdpool; see package cli.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/cli"
)

// version is set when a release is linked.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil && !cli.Silent(err) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(cli.ExitCode(err))
}

func run(ctx context.Context, args []string, in io.Reader, out, diagnostics io.Writer) error {
	cmd := cli.Command(ctx, cli.Options{
		Version: version, In: in, Out: out, Err: diagnostics, Colour: colours(out), Kubectl: kubectl, Now: time.Now,
	})
	cmd.SetArgs(args)
	return cmd.Execute()
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

// kubectl asks the cluster as the user does, with the user's context and plugins.
func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if text := cause(said.String()); text != "" {
		err = errors.New(text)
	}
	return nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
}

// logLine is how the libraries of kubectl begin a line of their own log.
var logLine = regexp.MustCompile(`^[EWIF]\d{4} \d\d:\d\d:\d\d`)

// cause is what kubectl says is wrong, without the log that it writes beside it, where
// each try has a line.
func cause(said string) string {
	var lines []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line != "" && !logLine.MatchString(line) && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return strings.TrimSpace(said)
	}
	return strings.Join(lines, "; ")
}
