package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/enginesim"
)

const geometry = `{"kind":"MLA","layers":2,"attentionHeads":4,"kvHeads":1,"headValues":16}`

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		in    string
		out   string // a part of it
		err   string // a part of it
		usage bool
	}{
		{args: nil, err: "a command is needed", usage: true},
		{args: []string{"sreve"}, err: `"sreve" is no command`, usage: true},
		{args: []string{"serve"}, err: "a model is needed", usage: true},
		{args: []string{"serve", "m"}, err: "--sim-geometry"},
		{args: []string{"help"}, out: "usage: enginesim serve"},
		{args: []string{"version"}, out: "dev"},
		{args: []string{"answer", "m", "--sim-geometry", geometry, "--max-tokens", "x"}, err: "--max-tokens", usage: true},
		{args: []string{"answer", "m", "--sim-geometry", geometry, "--max-tokens", "3"}, in: "a b\n", out: " "},
		{args: []string{"answer", "m", "--sim-geometry", geometry}, err: "prompt is empty"},
	} {
		var out strings.Builder
		err := run(t.Context(), tc.args, strings.NewReader(tc.in), &out, io.Discard)
		var wrong *enginesim.UsageError
		if errors.As(err, &wrong) != tc.usage || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %v, want %q, usage %t", tc.args, err, tc.err, tc.usage)
		}
		if !strings.Contains(out.String(), tc.out) {
			t.Errorf("%q prints %q", tc.args, out.String())
		}
	}
}

// serve ends without an error when it is told to.
func TestServeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := []string{"serve", "m", "--sim-geometry", geometry, "--host", "127.0.0.1", "--port", "0", "--num-gpu-blocks-override", "2"}
	if err := run(ctx, args, nil, io.Discard, io.Discard); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
