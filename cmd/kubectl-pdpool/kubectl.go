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
	maxCause   = 64 << 10
	pipesStay  = 2 * time.Second
	cutMessage = "it says more than %d MiB"
)

// kubectl asks the cluster as the user does, with the user's context and plugins. It
// ends with ctx, whatever kubectl has started.
func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return ask(ctx, maxAnswer, args)
}

func ask(ctx context.Context, most int, args []string) ([]byte, error) {
	said, answer := &bounded{most: maxCause}, &bounded{most: most, strict: true}
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = answer, said, pipesStay
	err := cmd.Run()
	text := cause(said.kept.String())
	switch {
	case answer.over:
		err = fmt.Errorf(cutMessage, most>>20)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left something behind
		return answer.kept.Bytes(), nil
	case err == nil:
		return answer.kept.Bytes(), nil
	case text != "":
		err = errors.New(text)
	}
	return nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
}

// bounded keeps what is written up to a length. Beyond it a strict one fails, so that
// the writer's pipe breaks, and others drop.
type bounded struct {
	kept   bytes.Buffer // no embedded one, whose ReadFrom io.Copy would take
	most   int
	strict bool
	over   bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) <= b.most {
		return b.kept.Write(p)
	}
	b.over = true
	if b.strict {
		return 0, errors.New("too long")
	}
	b.kept.Write(p[:b.most-b.kept.Len()])
	return len(p), nil
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
