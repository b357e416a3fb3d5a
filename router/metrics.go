package router

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pdpool/pdpool/kvlayout"
)

// Outcomes of a leg, as its metric tells them.
const (
	outcomeOK          = "ok"
	outcomeRefused     = "refused" // the engine answered 4xx
	outcomeFailed      = "failed"
	outcomeUnreachable = "unreachable"
	outcomeLost        = "lost"
	outcomeSilent      = "silent"
	outcomeCancelled   = "cancelled" // ended by the router or by the client
)

// What stands in the label code of a request that did not end with its status.
const (
	codeClientGone = "client-gone"
	codeBroken     = "broken" // failed after its answer had begun
)

// metrics are the router's own; instances and pairs are counted when asked.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	legs      *prometheus.CounterVec
	inflight  prometheus.Gauge
	lingering prometheus.Gauge
	seconds   *prometheus.HistogramVec
	firstByte *prometheus.HistogramVec
	prefill   prometheus.Histogram
	asked     *prometheus.CounterVec
}

func newMetrics(r *Registry) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "pdpool", Subsystem: "router", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "pdpool", Subsystem: "router", Name: name, Help: help})
	}
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "pdpool", Subsystem: "router", Name: name, Help: help, Buckets: buckets}
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		requests:  counter("requests_total", "Requests by endpoint and by HTTP status; client-gone and broken stand for those that ended otherwise.", "endpoint", "code"),
		legs:      counter("legs_total", "Legs sent to engines, by role and by how they ended.", "role", "outcome"),
		inflight:  gauge("inflight", "Requests that are not answered yet."),
		lingering: gauge("lingering_legs", "Legs kept open for a stock decode engine after their request has ended."),
		seconds:   prometheus.NewHistogramVec(histogram("request_seconds", "Time from a request's headers to the end of its answer."), []string{"endpoint"}),
		firstByte: prometheus.NewHistogramVec(histogram("first_byte_seconds", "Time from a request's headers to the first byte of decode's answer."), []string{"endpoint"}),
		prefill:   prometheus.NewHistogram(histogram("prefill_seconds", "Time of good prefill legs.")),
		asked:     counter("reasons_total", "Questions to agents why a transfer failed, by what came of it.", "result"),
	}
	m.registry.MustRegister(m.requests, m.legs, m.inflight, m.lingering, m.seconds, m.firstByte, m.prefill, m.asked,
		snapshotCollector{r}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// request counts a request that was answered with a status.
func (m *metrics) request(endpoint string, status int) {
	m.requests.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
}

var (
	instancesDesc = prometheus.NewDesc("pdpool_router_instances", "Instances that may get requests, by role.", []string{"role"}, nil)
	pairsDesc     = prometheus.NewDesc("pdpool_router_pairs", "Pairs of instances that may get requests.", nil, nil)
)

// snapshotCollector tells what the registry holds.
type snapshotCollector struct{ registry *Registry }

// Describe implements prometheus.Collector.
func (snapshotCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- instancesDesc
	ch <- pairsDesc
}

// Collect implements prometheus.Collector.
func (c snapshotCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.registry.current.Load()
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(s.count(role)), string(role))
	}
	ch <- prometheus.MustNewConstMetric(pairsDesc, prometheus.GaugeValue, float64(s.pairs()))
}
