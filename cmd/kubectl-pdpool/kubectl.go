package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of what kubectl may say, and of the time that what it has started may keep
// its pipes open when it has ended.
const (
	maxAnswer  = 256 << 20 // bytes; the pods of a cluster of thousands of nodes have less
	maxContext = 64 << 10  // bytes of an answer about the user's own configuration
	maxCause   = 64 << 10
	pipesStay  = 2 * time.Second
	cutMessage = "it says more than %d KiB"
)

// kubectl asks the cluster as the user does, with the user's context and plugins. It
// ends with ctx, whatever kubectl has started.
func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	most := maxAnswer
	if len(args) > 0 && args[0] == "config" {
		most = maxContext
	}
	return ask(ctx, most, args)
}

func ask(ctx context.Context, most int, args []string) ([]byte, error) {
	said, answer := &bounded{most: maxCause}, &bounded{most: most, strict: true}
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = answer, said, pipesStay
	err := cmd.Run()
	text := cause(string(said.bytes()))
	switch {
	case answer.over:
		err = fmt.Errorf(cutMessage, most>>10)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left something behind
		return answer.bytes(), nil
	case err == nil:
		return answer.bytes(), nil
	case text != "":
		err = errors.New(text)
	}
	return nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
}

// bounded keeps what is written up to a length. Beyond it a strict one fails, so that
// the writer's pipe breaks, and others drop.
type bounded struct {
	parts  [][]byte // which cost no more than they hold, as one slice does that grows
	length int
	most   int
	strict bool
	over   bool
}

func (b *bounded) Write(p []byte) (int, error) {
	fits := p[:min(len(p), b.most-b.length)]
	if b.over = b.over || len(fits) < len(p); b.over && b.strict {
		b.parts = nil
		return 0, errors.New("too long")
	}
	b.parts = append(b.parts, bytes.Clone(fits))
	b.length += len(fits)
	return len(p), nil
}

func (b *bounded) bytes() []byte { return bytes.Join(b.parts, nil) }

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
