package notifier

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of all notifiers of a process.
type Metrics struct {
	deliveries *prometheus.CounterVec
	pending    prometheus.Gauge
	failed     prometheus.Gauge
	oldest     prometheus.Gauge
}

// NewMetrics registers with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		deliveries: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_notifier_attempts_total",
			Help: "Webhook delivery attempts, by result: delivered, failed (retried later), gave_up, fenced.",
		}, []string{"result"}),
		pending: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_pending",
			Help: "Deliveries that are not delivered yet."}),
		failed: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_failed",
			Help: "Deliveries that failed for good and can be sent again."}),
		oldest: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_oldest_seconds",
			Help: "Age of the oldest delivery that is not delivered yet."}),
	}
	for _, result := range []string{"delivered", "failed", "gave_up", "fenced"} {
		// increase() does not count the first increment of a counter that did not exist before.
		m.deliveries.WithLabelValues(result)
	}
	return m
}
