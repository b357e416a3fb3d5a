package router

import (
	"strconv"
	"time"

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
	retries   *prometheus.CounterVec
	exhausted prometheus.Counter
	limited   *prometheus.CounterVec
	suspected *prometheus.CounterVec
	queued    prometheus.Histogram
	lingering prometheus.Gauge
	seconds   *prometheus.HistogramVec
	firstByte *prometheus.HistogramVec
	prefill   prometheus.Histogram
	asked     *prometheus.CounterVec
}

func newMetrics(s *Server) *metrics {
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
		retries:   counter("retries_total", "Attempts that failed and were followed by one on another pair, by the leg that failed and by why.", "leg", "reason"),
		exhausted: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "pdpool", Subsystem: "router", Name: "retries_exhausted_total", Help: "Requests that failed on as many pairs as one may be sent to."}),
		limited:   counter("limited_total", "Requests that were refused by a limit of the router, by limit.", "limit"),
		suspected: counter("suspected_total", "Pods that requests began to pass over, by what was seen of them.", "reason"),
		queued:    prometheus.NewHistogram(histogram("queue_seconds", "Time that requests waited to be in work, of those that had to.")),
		lingering: gauge("lingering_legs", "Legs kept open for a stock decode engine after their request has ended."),
		seconds:   prometheus.NewHistogramVec(histogram("request_seconds", "Time from a request's headers to the end of its answer."), []string{"endpoint"}),
		firstByte: prometheus.NewHistogramVec(histogram("first_byte_seconds", "Time from a request's headers to the first byte of decode's answer."), []string{"endpoint"}),
		prefill:   prometheus.NewHistogram(histogram("prefill_seconds", "Time of good prefill legs.")),
		asked:     counter("reasons_total", "Questions to agents why a transfer failed, by what came of it.", "result"),
	}
	m.registry.MustRegister(m.requests, m.legs, m.retries, m.exhausted, m.limited, m.suspected, m.queued, m.lingering, m.seconds, m.firstByte, m.prefill, m.asked,
		stateCollector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// request counts a request that was answered with a status.
func (m *metrics) request(endpoint string, status int) {
	m.requests.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pdpool_router_"+name, help, labels, nil)
}

var (
	instancesDesc = desc("instances", "Instances that may get requests, by role.", "role")
	avoidedDesc   = desc("instances_suspected", "Instances that are passed over where there are others, by role.", "role")
	pairsDesc     = desc("pairs", "Pairs of instances that may get requests.")
	inflightDesc  = desc("inflight", "Requests in work: sent to a pair and not answered yet.")
	waitingDesc   = desc("queued", "Requests that wait to be in work.")
	bufferedDesc  = desc("buffered_bytes", "Bytes of the bodies of requests that are not answered yet.")
)

// stateCollector tells what the router holds.
type stateCollector struct{ *Server }

// Describe implements prometheus.Collector.
func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, avoidedDesc, pairsDesc, inflightDesc, waitingDesc, bufferedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	s := c.Registry.current.Load()
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		tell(instancesDesc, float64(s.count(role)), string(role))
		tell(avoidedDesc, float64(s.avoided(role, time.Now().UnixNano())), string(role))
	}
	tell(pairsDesc, float64(s.pairs()))
	inWork, waiting := c.gate.count()
	tell(inflightDesc, float64(inWork))
	tell(waitingDesc, float64(waiting))
	tell(bufferedDesc, float64(c.readers.held()))
}
