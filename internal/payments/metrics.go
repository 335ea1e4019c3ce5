package payments

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/db"
)

// Metrics counts what has ended, in the process that ended it. What is still open is
// in the database, and ReconcilerMetrics shows it.
type Metrics struct {
	checkouts *prometheus.CounterVec
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{checkouts: promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "payonce_checkouts_ended_total",
		Help: "Finished checkouts by final status: completed or compensated."}, []string{"status"})}
	for _, status := range []db.CheckoutStatus{db.CheckoutStatusCompleted, db.CheckoutStatusCompensated} {
		m.checkouts.WithLabelValues(string(status)) // so that the first one is visible as an increase
	}
	return m
}

func (m *Metrics) checkoutEnded(status db.CheckoutStatus) {
	m.checkouts.WithLabelValues(string(status)).Inc()
}

// StripeMetrics counts calls by operation and outcome.
type StripeMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewStripeMetrics registers the metrics; r may be nil.
func NewStripeMetrics(r prometheus.Registerer) *StripeMetrics {
	f := promauto.With(r)
	return &StripeMetrics{
		calls: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_stripe_calls_total",
			Help: "Attempts to call Stripe, by outcome."}, []string{"stripe_operation", "outcome"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_stripe_call_seconds",
			Help:    "Time of one attempt to call Stripe, including the wait for the rate limiter.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}}, []string{"stripe_operation"}),
	}
}

func (m *StripeMetrics) observe(op operation, outcome string, took time.Duration) {
	m.calls.WithLabelValues(string(op), outcome).Inc()
	m.duration.WithLabelValues(string(op)).Observe(took.Seconds())
}
