package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/test/cluster"
)

// series reads a pod's /metrics: each by its name with labels, and what has a name summed up.
func series(ctx context.Context, pod *corev1.Pod, port int) map[string]float64 {
	GinkgoHelper()
	response, err := k8s.Request(ctx, pod.Namespace, fmt.Sprintf("pods/%s:%d", pod.Name, port), http.MethodGet, "/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
	out := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(response.Body, 8<<20))
	for lines.Scan() {
		line := lines.Text()
		end := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if strings.HasPrefix(line, "#") || err != nil {
			continue
		}
		name, _, labels := strings.Cut(line[:end], "{")
		out[name] += value
		if labels {
			out[line[:end]] += value
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return out
}

// footprint is what one process of the pool holds.
type footprint struct {
	name                    string
	goroutines, descriptors float64 // 0 where the process doesn't tell
	memory                  cluster.Memory
}

// footprints are those of the pool's agents, routers and engines.
func (p pool) footprints(ctx context.Context) []footprint {
	GinkgoHelper()
	var out []footprint
	add := func(pod *corev1.Pod, process string, port int) {
		f := footprint{name: pod.Labels[v1alpha1.LabelRole] + " " + process}
		if port != 0 {
			told := series(ctx, pod, port)
			f.goroutines, f.descriptors = told["go_goroutines"], told["process_open_fds"]
			Expect(f.goroutines).To(BeNumerically(">", 0), f.name)
		}
		var err error
		f.memory, err = machine.Memory(pod, process)
		Expect(err).NotTo(HaveOccurred())
		if port == 0 {
			f.descriptors, err = machine.Descriptors(pod, process)
			Expect(err).NotTo(HaveOccurred())
		}
		out = append(out, f)
	}
	for _, role := range []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode} {
		pod, ports := p.pod(ctx, role)
		add(&pod, "transfer-agent", ports.Agent)
		add(&pod, "enginesim", 0)
	}
	for _, pod := range p.routers(ctx) {
		add(&pod, "router", routerMetrics)
	}
	return out
}

// routerMetrics is the router's port metrics.
const routerMetrics = 9090

const mebibyte = 1 << 20

var _ = Describe("A soak", func() {
	It("of 5,000 requests ends with the memory, descriptors and goroutines it began with", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP"}.start(ctx, namespace, "pool")
		shape := loadShape{clients: 16, prompt: 200, tokens: 4, patience: time.Minute}
		// What is kept up to a bound, as the agents do with the newest 4,096 transfers
		// that have ended, is there before the count.
		shape.total = 4500
		warm := p.load(ctx, shape).wait()
		p.idle(ctx)
		before := p.footprints(ctx)
		shape.total = 5000
		began := time.Now()
		outcomes := p.load(ctx, shape).wait()
		took := time.Since(began)
		show("soak", outcomes)
		for _, o := range append(warm, outcomes...) {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		Expect(outcomes).To(HaveLen(5000))
		p.quiet(ctx)
		p.idle(ctx)
		Eventually(func(g Gomega, ctx context.Context) {
			for i, now := range p.footprints(ctx) {
				was := before[i]
				g.Expect(now.name).To(Equal(was.name))
				g.Expect(now.goroutines).To(BeNumerically("<=", was.goroutines+4), now.name)
				g.Expect(now.descriptors).To(BeNumerically("<=", was.descriptors+4), now.name)
				// A collector that has just not run holds a few megabytes.
				g.Expect(now.memory.Now).To(BeNumerically("<", was.memory.Now+8*mebibyte), now.name)
			}
		}).WithContext(ctx).WithTimeout(time.Minute).WithPolling(2 * time.Second).Should(Succeed())
		for i, now := range p.footprints(ctx) {
			was := before[i]
			AddReportEntry("soak", fmt.Sprintf("%-24s goroutines %3.0f -> %3.0f, descriptors %3.0f -> %3.0f, memory %5.1f -> %5.1f MiB",
				now.name, was.goroutines, now.goroutines, was.descriptors, now.descriptors,
				float64(was.memory.Now)/mebibyte, float64(now.memory.Now)/mebibyte), ReportEntryVisibilityAlways)
		}
		AddReportEntry("soak", fmt.Sprintf("%.0f requests a second", 5000/took.Seconds()), ReportEntryVisibilityAlways)
	})
})

// idle waits until the connections of a load have gone.
func (p pool) idle(ctx context.Context) {
	GinkgoHelper()
	machine.HTTP().CloseIdleConnections()
	routers := p.routers(ctx)
	Eventually(func(g Gomega, ctx context.Context) {
		for i := range routers {
			g.Expect(series(ctx, &routers[i], routerMetrics)["pdpool_router_inflight"]).To(BeZero())
		}
	}).WithContext(ctx).WithTimeout(soon).Should(Succeed())
}
