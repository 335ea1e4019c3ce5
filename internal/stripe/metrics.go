package stripe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts calls by operation and outcome.
type Metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	return &Metrics{
		calls: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_stripe_calls_total",
			Help: "Attempts to call Stripe, by outcome."}, []string{"stripe_operation", "outcome"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_stripe_call_seconds",
			Help:    "Time of one attempt to call Stripe, without the wait for the rate limiter.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}},
			[]string{"stripe_operation"}),
	}
}

func (m *Metrics) observe(op Operation, outcome string, took time.Duration) {
	m.calls.WithLabelValues(string(op), outcome).Inc()
	m.duration.WithLabelValues(string(op)).Observe(took.Seconds())
}
