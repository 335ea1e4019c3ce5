package payments

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/db"
)

// Metrics count what became of things, in the process that ended them. What
// stands open is in the database, and the Reconciler's metrics show it.
type Metrics struct {
	checkouts *prometheus.CounterVec
}

// NewMetrics registers the metrics; with nil they count for nobody.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{checkouts: promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "payonce_checkouts_ended_total",
		Help: "Checkouts that came to their end, by which: completed or compensated."}, []string{"status"})}
	for _, status := range []db.CheckoutStatus{db.CheckoutStatusCompleted, db.CheckoutStatusCompensated} {
		m.checkouts.WithLabelValues(string(status)) // so that the first one is a rise from zero
	}
	return m
}

func (m *Metrics) checkoutEnded(status db.CheckoutStatus) {
	m.checkouts.WithLabelValues(string(status)).Inc()
}
