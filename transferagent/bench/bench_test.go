package bench

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

const variable = "PDPOOL_BENCH_PEER"

// TestMain is the peer where the test is run as one.
func TestMain(m *testing.M) {
	if dir, is := os.LookupEnv(variable); is {
		backend := agentconfig.Backend(os.Args[1])
		if err := ServePeer(context.Background(), backend, dir, os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // nowhere else to say it
		}
		return
	}
	m.Run()
}

// TestBothProcesses: every contender has its turns, and the bytes that the mover puts
// into the peer's memory are those of the copy (Run says so or fails).
func TestBothProcesses(t *testing.T) {
	for _, backend := range []agentconfig.Backend{agentconfig.TCP, agentconfig.SharedMemory} {
		t.Run(string(backend), func(t *testing.T) {
			patterns, err := Named("dcp64", "dcp1")
			if err != nil {
				t.Fatal(err)
			}
			var all []Result
			err = Run(t.Context(), Options{
				Backend: backend, Patterns: patterns, Rounds: 1, Repetitions: 1,
				Peer: func(ctx context.Context, b agentconfig.Backend, dir string) *exec.Cmd {
					c := exec.CommandContext(ctx, os.Args[0], string(b))
					c.Env, c.Stderr = append(os.Environ(), variable+"="+dir), os.Stderr
					return c
				},
			}, func(r Result) error { all = append(all, r); return nil })
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 10 {
				t.Fatalf("%d results, 5 contenders in 2 patterns are 10", len(all))
			}
			for _, r := range all {
				if len(r.Turns) != 1 || r.Turns[0].Seconds <= 0 || r.Bytes != 71_958_528 {
					t.Errorf("%s %s: %d turns, %d bytes", r.Pattern, r.Name, len(r.Turns), r.Bytes)
				}
			}
			if n := only(all, "dcp1", Mover)[0].Pieces; n != 62_464 {
				t.Errorf("dcp1 has %d pieces, not 62,464", n)
			}
			if r := Ratio(all, "dcp64", "memcpy"); r <= 0 {
				t.Errorf("ratio %f", r)
			}
		})
	}
}

func TestUnknownPattern(t *testing.T) {
	if _, err := Named("dcp7"); err == nil {
		t.Error("an unknown pattern was taken")
	}
}

// TestWrongByteIsSeen: sums of memory that differ in one byte differ.
func TestWrongByteIsSeen(t *testing.T) {
	a, b := make([]byte, 1<<12), make([]byte, 1<<12)
	b[77] = 1
	if sum([][]byte{a}) == sum([][]byte{b}) {
		t.Error("equal sums")
	}
}
