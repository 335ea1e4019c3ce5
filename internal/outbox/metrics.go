package outbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of all relays of a process.
type Metrics struct {
	published prometheus.Counter
	failures  *prometheus.CounterVec
	fenced    prometheus.Counter
	idsTaken  prometheus.Counter
	latency   prometheus.Histogram
	waiting   prometheus.Gauge
	oldest    prometheus.Gauge
	parked    prometheus.Gauge
}

// NewMetrics registers with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		published: f.NewCounter(prometheus.CounterOpts{Name: "payonce_outbox_published_total",
			Help: "Events marked as published."}),
		failures: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_outbox_failures_total",
			Help: "Events that the broker rejected, by kind of error: transient or permanent."}, []string{"kind"}),
		fenced: f.NewCounter(prometheus.CounterOpts{Name: "payonce_outbox_fenced_total",
			Help: "Events that a relay could not mark as published because another relay had taken over its lease."}),
		idsTaken: f.NewCounter(prometheus.CounterOpts{Name: "payonce_outbox_ids_taken_total",
			Help: "Attempts to publish an event that the broker dropped because another publisher had sent a message under the " +
				"event's id."}),
		latency: f.NewHistogram(prometheus.HistogramOpts{Name: "payonce_outbox_latency_seconds",
			Help:    "Time from writing an event to marking it as published, by the database's clock.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
		waiting: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_outbox_waiting",
			Help: "Events not yet published, counted up to 100000."}),
		oldest: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_outbox_oldest_seconds",
			Help: "Age of the oldest event not yet published."}),
		parked: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_outbox_parked",
			Help: "Events that were parked (dead-lettered) and wait for an operator; each blocks the later events of its " +
				"aggregate."}),
	}
	m.failures.WithLabelValues(kind(true))
	m.failures.WithLabelValues(kind(false))
	return m
}
