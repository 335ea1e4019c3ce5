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
			Help: "Webhook deliveries attempted, by result: delivered, failed (tried again later), gave_up, fenced."}, []string{"result"}),
		pending: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_pending", Help: "Deliveries not yet made."}),
		failed:  f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_failed", Help: "Deliveries given up and kept."}),
		oldest:  f.NewGauge(prometheus.GaugeOpts{Name: "payonce_notifier_oldest_seconds", Help: "Age of the oldest delivery not yet made."}),
	}
	for _, result := range []string{"delivered", "failed", "gave_up", "fenced"} {
		m.deliveries.WithLabelValues(result) // A counter that is born with its first count hides that one from increase().
	}
	return m
}
