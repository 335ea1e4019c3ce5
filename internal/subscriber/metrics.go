package subscriber

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Why a message is taken for forged.
const (
	reasonUnreadable = "unreadable" // not an event of this service
	reasonUnknown    = "unknown"    // no such event in the outbox, or not that tenant's
	reasonChanged    = "changed"    // the event in the outbox is another
)

// Metrics of all subscribers of a process.
type Metrics struct {
	forged      *prometheus.CounterVec
	unannounced *prometheus.CounterVec
}

// NewMetrics registers with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		forged: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_forged_messages_total",
			Help: "Messages of the broker that are not what this service published, by reason: unreadable, unknown or " +
				"changed. None has had an effect."}, []string{"consumer", "reason"}),
		unannounced: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_unannounced_events_total",
			Help: "Events that a consumer took from the outbox because no message of the broker had announced them in time.",
		}, []string{"consumer"}),
	}
}

func (m *Metrics) init(consumer string) {
	for _, reason := range []string{reasonUnreadable, reasonUnknown, reasonChanged} {
		// increase() does not count the first increment of a counter that did not exist before.
		m.forged.WithLabelValues(consumer, reason)
	}
	m.unannounced.WithLabelValues(consumer)
}
