package main

import (
	"io"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/memlimit"
)

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, c := range []struct {
		env      string
		args     []string
		limit    int64
		buffered int64
	}{
		{"", nil, math.MaxInt64, 512 << 20},
		{"1000000000", nil, 900000000, 250000000},
		{"100000000", nil, 90000000, 25000000},
		{"134217728", nil, 134217728 / 100 * 90, 134217728 / 100 * 25},
		{"100000000000", nil, 90000000000, 512 << 20},
		{"1000000000", []string{"--max-buffered=400000000"}, 900000000, 400000000},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv(memlimit.Env, c.env)
		o, _, err := parse(c.args, io.Discard, io.Discard)
		if got := debug.SetMemoryLimit(-1); err != nil || got != c.limit || o.limits.MaxBuffered != c.buffered ||
			c.limit < 200<<20 && o.limits.MaxBody > o.limits.MaxBuffered/2+100 {
			t.Errorf("%q %v: limit %d, %d for bodies, %v", c.env, c.args, got, o.limits.MaxBuffered, err)
		}
	}
	for _, env := range []string{"x", "0", "-1", "64Mi"} {
		t.Setenv(memlimit.Env, env)
		if _, _, err := parse(nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), memlimit.Env) {
			t.Errorf("%q: %v", env, err)
		}
	}
}
