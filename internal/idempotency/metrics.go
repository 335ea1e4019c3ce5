package idempotency

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of claims and keys. Labels are operations and fixed words, never a tenant, a key or an id: their number is
// bounded.
type Metrics struct {
	requests  *prometheus.CounterVec
	claims    *prometheus.CounterVec
	fenced    *prometheus.CounterVec
	inDoubt   prometheus.Counter
	reaped    *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	return &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_idempotent_requests_total",
			Help: "Requests with an idempotency key, by state of the key."}, []string{"operation", "result"}),
		claims: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_claims_total",
			Help: "Claims by origin: fresh, resumed (released earlier) or taken_over (the lease expired).",
		}, []string{"operation", "result"}),
		fenced: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_fenced_writes_total",
			Help: "Writes rejected because the writer had lost its lease."}, []string{"operation"}),
		inDoubt: f.NewCounter(prometheus.CounterOpts{Name: "payonce_commits_in_doubt_total",
			Help: "Commits whose response was lost, so that the outcome had to be read back."}),
		reaped: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_keys_reaped_total",
			Help: "Keys that reached the end of a retention period, by kind: response (dropped) or tombstone (deleted).",
		}, []string{"kind"}),
		durations: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_recovery_point_seconds",
			Help:    "Time from one recovery point to the next, including the calls to Stripe between them.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40}},
			[]string{"operation", "recovery_point"}),
	}
}

// expect creates the series with zero. Prometheus sees no increase in a series that appears with its first count, so an
// alert would miss the first takeovers.
func (m *Metrics) expect(operation string) {
	for _, state := range []State{Fresh, Replay, InFlight, Waiting, Mismatch, Expired} {
		m.requests.WithLabelValues(operation, state.String())
	}
	for _, result := range []string{"fresh", "resumed", "taken_over"} {
		m.claims.WithLabelValues(operation, result)
	}
	m.fenced.WithLabelValues(operation)
}

func (m *Metrics) claimed(operation string) { m.claims.WithLabelValues(operation, "fresh").Inc() }

func (m *Metrics) takeover(c *Claim) {
	result := "resumed"
	if c.tookOver {
		result = "taken_over"
	}
	m.claims.WithLabelValues(c.Operation, result).Inc()
}

func (m *Metrics) reached(operation, point string, took time.Duration) {
	m.durations.WithLabelValues(operation, point).Observe(took.Seconds())
}

// String is the state's name in metrics.
func (s State) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Replay:
		return "replay"
	case InFlight:
		return "in_flight"
	case Waiting:
		return "resumed"
	case Mismatch:
		return "mismatch"
	case Expired:
		return "expired"
	}
	panic("bug: a state without a name")
}
