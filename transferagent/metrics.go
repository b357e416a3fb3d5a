package transferagent

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// maxLabels bounds the values of one label that come from other processes.
const maxLabels = 64

// labels bounds the values of one label: words of at most 40 lower-case letters,
// digits and hyphens, the first maxLabels of them; all else is "other".
type labels struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

func (l *labels) bound(value string) string {
	if !isWord(value) {
		return "other"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[value]; ok {
		return value
	}
	if len(l.seen) >= maxLabels {
		return "other"
	}
	if l.seen == nil {
		l.seen = map[string]struct{}{}
	}
	l.seen[value] = struct{}{}
	return value
}

func isWord(s string) bool {
	if len(s) > 40 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// metrics are the agent's numbers, in a registry of their own.
type metrics struct {
	registry *prometheus.Registry

	transfers   *prometheus.CounterVec // mode, outcome, rule
	bytes       *prometheus.CounterVec // direction
	copySeconds prometheus.Histogram
	completion  prometheus.Histogram
	handshakes  *prometheus.CounterVec // result
	refusals    *prometheus.CounterVec // rule
	dropped     *prometheus.CounterVec // port, reason
	connections *prometheus.GaugeVec   // connection
	relayed     *prometheus.CounterVec // result
	routers     prometheus.Gauge
	sessions    prometheus.Gauge

	rules, reasons labels
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, names ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "pdpool", Subsystem: "agent", Name: name, Help: help}, names)
	}
	m.transfers = counter("transfers_total", "Transfers that ended, by mode, outcome (done, failed, aborted) and the rule that failed them.", "mode", "outcome", "rule")
	m.bytes = counter("bytes_total", "Bytes of KV cache that the mover copied to peers (sent) and that peers wrote here (received).", "direction")
	m.copySeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "pdpool", Subsystem: "agent", Name: "copy_seconds",
		Help:    "Time from posting a batch (one layer from one writer to one reader) to its last byte in place.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
	})
	m.completion = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "pdpool", Subsystem: "agent", Name: "completion_lag_seconds",
		Help:    "Time from the last that a flow's end needed to telling it: at decode from the write_done that was received to done at the engine's socket, at prefill from the last copy in place to write_done at the peer's.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1, 5},
	})
	m.handshakes = counter("handshakes_total", "Handshakes by result: served, not-ready, dialled, failed.", "result")
	m.refusals = counter("refusals_total", "Connections, memory, messages and peers that were refused, by rule.", "rule")
	m.dropped = counter("dropped_messages_total", "Messages that were dropped unread, by port and reason.", "port", "reason")
	m.connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "pdpool", Subsystem: "agent", Name: "kv_connections", Help: "Connections of the engine to the KV socket.",
	}, []string{"connection"})
	m.relayed = counter("relayed_registrations_total", "Registrations of the engine relayed to routers, by result (sent, failed).", "result")
	m.routers = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "pdpool", Subsystem: "agent", Name: "routers", Help: "Routers that registrations are relayed to.",
	})
	m.sessions = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "pdpool", Subsystem: "agent", Name: "mover_sessions", Help: "Sessions of the own mover with peers.",
	})
	m.registry.MustRegister(m.sessions, m.transfers, m.bytes, m.copySeconds, m.completion, m.handshakes, m.refusals, m.dropped, m.connections, m.relayed, m.routers,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// told accounts for the end of a flow being told; since is zero when nothing was waited for.
func (m *metrics) told(since time.Time) {
	if !since.IsZero() {
		m.completion.Observe(time.Since(since).Seconds())
	}
}

// gauge adds a number that is read when it is asked for.
func (m *metrics) gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: "pdpool", Subsystem: "agent", Name: name, Help: help}, read))
}

func (m *metrics) refuse(rule string) { m.refusals.WithLabelValues(m.rules.bound(rule)).Inc() }

func (m *metrics) drop(port, reason string) {
	m.dropped.WithLabelValues(port, m.reasons.bound(reason)).Inc()
}
