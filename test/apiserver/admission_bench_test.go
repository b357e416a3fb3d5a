package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// What BenchmarkAdmission measures: so many pools are stored, and so many clients
// create, each the given number of pools of a way in each round.
const (
	storedPools      = 1000
	creators         = 50
	saturatedCreates = 16
	pacedCreates     = 8
)

// interval is how often a client creates while the load is paced: all of them make 200
// creates a second, a quarter of what two cores can do.
const interval = 250 * time.Millisecond

// way is what the API server asks before it admits a pool. It is the name of the
// namespace in which pools are created that way.
type way string

const (
	// notAsked is the API server alone.
	notAsked way = "not-asked"
	// bare is a handler that admits at once: what any webhook costs.
	bare way = "bare"
	// conditions is that handler, asked under the chart's conditions.
	conditions way = "conditions"
	// ours is PDPool's webhook as the chart has it.
	ours way = "ours"
)

var ways = []way{notAsked, bare, conditions, ours}

// BenchmarkAdmission measures how long a create takes from the client's side, with
// the API server alone, with a bare webhook asked and with PDPool's:
//
//	KUBEBUILDER_ASSETS=$(hack/devcluster/devcluster.sh assets) go test ./test/apiserver -run '^$' -bench Admission -benchtime 5x
//
// Saturated, each client creates as soon as it has its answer, and the ways take
// turns: API server, etcd, webhook and clients wait for each other's cores, so that
// most of what is seen is that. Paced, each client creates four times a second, in
// any of the ways; where many creates are late, which they are while the client's
// one before has no answer, the machine was too busy for the figures to mean anything.
//
// Creates are dry runs, so that all see as many stored pools: the server does all
// that it does for a create but the write itself. The controller does not run.
func BenchmarkAdmission(b *testing.B) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		b.Skip("KUBEBUILDER_ASSETS names no etcd and kube-apiserver")
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapErrors)))
	a := newAdmission(b)
	a.store(b)
	saturated, paced := newLoad("saturated"), newLoad("paced")
	for b.Loop() {
		a.saturate(b, saturated)
		a.pace(b, paced)
	}
	rows := []string{strings.Join(columns, "\t")}
	for _, l := range []*load{saturated, paced} {
		for _, w := range ways {
			rows = append(rows, strings.Join(l.row(w), "\t"))
			if w != notAsked {
				b.ReportMetric(l.over(w, 99), fmt.Sprintf("%s-%s-over-p99-ms", l.name, w))
			}
		}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err := table.Write([]byte(strings.Join(rows, "\t\n") + "\t\n"))
	if err = errors.Join(err, table.Flush()); err != nil {
		b.Fatal(err)
	}
	fmt.Print("\n" + text.String()) // a log would be cut
	b.ReportMetric(0, "ns/op")
}

// columns are what row has: over is what a way takes more than the API server alone;
// call and handler are means of what API server and handler say that they spent on
// the webhook; CPU is what a create took of the API server and of clients and webhook.
var columns = []string{
	"load", "way", "creates", "late", "p50 ms", "p99 ms", "over p50", "over p99", "call ms", "handler ms", "server CPU ms", "own CPU ms",
}

// load is a way to create at, with what creates took.
type load struct {
	name string
	of   map[way]*creates
}

// creates are those of one way under one load.
type creates struct {
	mu    sync.Mutex
	times []time.Duration
	late  int
	// counted is during the creates of this way, alone or with those of others.
	counted counts
	alone   bool
}

func newLoad(name string) *load {
	l := &load{name: name, of: map[way]*creates{}}
	for _, w := range ways {
		l.of[w] = &creates{counted: counts{}}
	}
	return l
}

func (c *creates) add(took time.Duration, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, took)
	if late {
		c.late++
	}
}

// percentile is in milliseconds.
func (c *creates) percentile(of int) float64 {
	sorted := slices.Sorted(slices.Values(c.times))
	return sorted[len(sorted)*of/100].Seconds() * 1000
}

// over is what a way takes more than the API server alone, in milliseconds.
func (l *load) over(w way, percentile int) float64 {
	return l.of[w].percentile(percentile) - l.of[notAsked].percentile(percentile)
}

func (l *load) row(w way) []string {
	c := l.of[w]
	row := []string{l.name, string(w), fmt.Sprint(len(c.times)), fmt.Sprint(c.late)}
	figure := func(known bool, v float64) {
		if !known {
			row = append(row, "")
			return
		}
		row = append(row, fmt.Sprintf("%.2f", v))
	}
	asked, perCreate := w != notAsked, 1000/float64(len(c.times))
	figure(true, c.percentile(50))
	figure(true, c.percentile(99))
	figure(asked, l.over(w, 50))
	figure(asked, l.over(w, 99))
	figure(asked, c.counted.mean(callSeconds, w.hook()))
	figure(asked, c.counted.mean(here+handlerSeconds, w.path()))
	figure(c.alone, c.counted.sum(cpuSeconds, "")*perCreate)
	figure(c.alone, c.counted.sum(here+cpuSeconds, "")*perCreate)
	return row
}

// store fills the API server.
func (a *admission) store(b *testing.B) {
	b.Helper()
	a.each(b, storedPools/creators, func(c client.Client, i, n int) error {
		return c.Create(b.Context(), pool("default", func(p *v1alpha1.PDPool) { p.Name = poolName(i, n) }))
	})
}

// saturate has all clients create one after the other, in turn in each way.
func (a *admission) saturate(b *testing.B, l *load) {
	b.Helper()
	for _, w := range ways {
		of := l.of[w]
		of.alone = true
		before := a.counted(b)
		a.each(b, saturatedCreates, func(c client.Client, i, n int) error {
			start := time.Now()
			err := createIn(b.Context(), c, w, i, n)
			of.add(time.Since(start), false)
			return err
		})
		of.counted.since(before, a.counted(b))
	}
}

// pace has each client create when it is its turn, the ways shuffled. A create that
// is late counts from when it was due.
func (a *admission) pace(b *testing.B, l *load) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	plans := make([][]way, creators)
	for i := range plans {
		plans[i] = slices.Repeat(ways, pacedCreates)
		random.Shuffle(len(plans[i]), func(x, y int) { plans[i][x], plans[i][y] = plans[i][y], plans[i][x] })
	}
	before := a.counted(b)
	first := time.Now().Add(interval)
	a.each(b, pacedCreates*len(ways), func(c client.Client, i, n int) error {
		start := first.Add(time.Duration(n)*interval + time.Duration(i)*interval/creators)
		wait := time.Until(start)
		if wait > 0 {
			if err := until(b.Context(), wait); err != nil {
				return err
			}
			start = time.Now()
		}
		w := plans[i][n]
		err := createIn(b.Context(), c, w, i, n)
		l.of[w].add(time.Since(start), wait <= 0)
		return err
	})
	after := a.counted(b)
	for _, w := range ways {
		l.of[w].counted.since(before, after)
	}
}

func until(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func createIn(ctx context.Context, c client.Client, w way, i, n int) error {
	return c.Create(ctx, pool(string(w), func(p *v1alpha1.PDPool) { p.Name = poolName(i, n) }), client.DryRunAll)
}

func poolName(i, n int) string { return fmt.Sprintf("pool-%d-%d", i, n) }

// each has all clients call create so many times.
func (a *admission) each(b *testing.B, times int, create func(c client.Client, i, n int) error) {
	b.Helper()
	var wg sync.WaitGroup
	failed := make([]error, creators)
	for i, c := range a.clients {
		wg.Go(func() {
			for n := range times {
				if failed[i] = create(c, i, n); failed[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			b.Fatal(err)
		}
	}
}
