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
		deliveries: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_delivery_attempts_total",
			Help: "Attempts to deliver a webhook to a tenant, by result: delivered, failed (will be retried), gave_up, " +
				"postponed (not sent and not counted: its secret cannot be decrypted), fenced, or skipped (not sent: its " +
				"endpoint is disabled).",
		}, []string{"result"}),
		pending: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_deliveries_pending",
			Help: "Webhook deliveries that are still to be made."}),
		failed: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_deliveries_failed",
			Help: "Webhook deliveries that failed for three days and, within the last day, were given up. A 410 is not counted."}),
		oldest: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_deliveries_oldest_seconds",
			Help: "Age of the oldest webhook delivery still to be made."}),
	}
	for _, result := range []string{"delivered", "failed", "gave_up", "postponed", "fenced", "skipped"} {
		// increase() does not count the first increment of a counter that did not exist before.
		m.deliveries.WithLabelValues(result)
	}
	return m
}
