package inbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/db"
)

const (
	resultApplied   = "applied"
	resultDuplicate = "duplicate" // received before, dropped
	resultHeld      = "held"      // waits for an earlier event of its subject, or for its preparation
	resultFailed    = "failed"    // will be tried again
	resultAway      = "away"      // the same, and the attempt does not count: another system was away
	resultParked    = "parked"
	resultFenced    = "fenced" // another process took over its lease
)

// Attributes of spans.
const (
	spanConsumer = "messaging.consumer.group.name"
	spanResult   = "payonce.result"
	spanAttempt  = "payonce.attempt"
)

// Metrics of all consumers and processors of a process.
type Metrics struct {
	events  *prometheus.CounterVec
	pending *prometheus.GaugeVec
	parked  *prometheus.GaugeVec
	oldest  *prometheus.GaugeVec
}

// NewMetrics registers with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		events: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_inbox_events_total",
			Help: "Received events by outcome: applied, duplicate, held, failed, away, parked or fenced.",
		}, []string{"consumer", "result"}),
		pending: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_inbox_pending",
			Help: "Received events not yet applied."}, []string{"consumer"}),
		parked: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_inbox_parked",
			Help: "Received events that were parked (dead-lettered) and wait for an operator."}, []string{"consumer"}),
		oldest: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_inbox_oldest_seconds",
			Help: "Age of the oldest received event not yet applied."}, []string{"consumer"}),
	}
}

func (m *Metrics) observe(consumers []string, stats []db.InboxStatsRow) {
	for _, name := range consumers {
		m.pending.WithLabelValues(name).Set(0)
		m.parked.WithLabelValues(name).Set(0)
		m.oldest.WithLabelValues(name).Set(0)
	}
	for _, s := range stats {
		m.pending.WithLabelValues(s.Consumer).Set(float64(s.Pending))
		m.parked.WithLabelValues(s.Consumer).Set(float64(s.Parked))
		m.oldest.WithLabelValues(s.Consumer).Set(s.OldestSeconds)
	}
}
