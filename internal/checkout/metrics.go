package checkout

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/db"
)

// Metrics counts the checkouts that have ended, in the process that ended them, and
// shows those that have not, as the database has them.
type Metrics struct {
	checkouts  *prometheus.CounterVec
	unfinished *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	stuck      prometheus.Gauge
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		checkouts: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_checkouts_ended_total",
			Help: "Finished checkouts by final status: completed or compensated."}, []string{"status"}),
		unfinished: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_checkouts_unfinished",
			Help: "Unfinished checkouts by state: forward, unknown, undoing, or stuck (needs an operator)."},
			[]string{"state"}),
		oldest: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_checkouts_oldest_seconds",
			Help: "Age of the oldest unfinished checkout in each state."}, []string{"state"}),
		stuck: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_reservations_stuck",
			Help: "Abandoned checkouts that still hold stock five minutes after their reservations ran out."}),
	}
	for _, status := range []db.CheckoutStatus{db.CheckoutStatusCompleted, db.CheckoutStatusCompensated} {
		m.checkouts.WithLabelValues(string(status)) // so that the first one is visible as an increase
	}
	return m
}

func (m *Metrics) ended(status db.CheckoutStatus) { m.checkouts.WithLabelValues(string(status)).Inc() }

// states are all states of CheckoutStats. One without a row is set to zero, or its
// gauge would keep the old value.
var states = []string{"forward", "unknown", "undoing", "stuck"}

// Measure sets the gauges from the database, so every process shows the same.
func (s *Service) Measure(ctx context.Context) (int, error) {
	rows, err := s.pool.CheckoutStats(ctx, Create)
	if err != nil {
		return 0, fmt.Errorf("measure the checkouts: %w", err)
	}
	stuck, err := s.pool.ReservationsStuck(ctx, expireGrace)
	if err != nil {
		return 0, fmt.Errorf("measure the reservations: %w", err)
	}
	s.o.Metrics.stuck.Set(float64(stuck))
	seen := map[string]db.CheckoutStatsRow{}
	for _, row := range rows {
		seen[row.State] = row
	}
	for _, state := range states {
		s.o.Metrics.unfinished.WithLabelValues(state).Set(float64(seen[state].Checkouts))
		s.o.Metrics.oldest.WithLabelValues(state).Set(seen[state].OldestSeconds)
	}
	return 0, nil
}
