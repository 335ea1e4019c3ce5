package disputes

import (
	"context"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics shows the open disputes and how long there is to answer them.
type Metrics struct {
	open     *prometheus.GaugeVec
	due      prometheus.Gauge
	failures prometheus.Counter
}

// openStatuses are the statuses that are always shown; another one that Stripe adds is shown when it occurs.
var openStatuses = []string{"needs_response", "under_review", "warning_needs_response", "warning_under_review"}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		open: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_disputes_open",
			Help: "Disputes that have not ended, by Stripe's status, and won ones whose money is not back yet; without " +
				"inquiries whose payment is refunded in full."},
			[]string{"status"}),
		due: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_dispute_evidence_due_seconds",
			Help: "Time until the next deadline to respond to a dispute or inquiry. Without a response a dispute is " +
				"lost, and an inquiry may become one. Negative: overdue, +Inf: there is none."}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "payonce_dispute_failures_total",
			Help: "Disputes that were read at Stripe and could not be recorded. They are read again."}),
	}
	m.due.Set(math.Inf(1))
	return m
}

// Measure sets the gauges from the database, so every process shows the same.
func (s *Service) Measure(ctx context.Context) (int, error) {
	rows, err := s.pool.DisputeStats(ctx)
	if err != nil {
		return 0, fmt.Errorf("measure the open disputes: %w", err)
	}
	open, due := map[string]int64{}, math.Inf(1)
	for _, row := range rows {
		open[row.Status] = row.Open
		if row.Status == "needs_response" || row.Status == "warning_needs_response" {
			due = min(due, row.DueSeconds)
		}
	}
	s.metrics.open.Reset()
	for _, status := range openStatuses {
		s.metrics.open.WithLabelValues(status)
	}
	for status, n := range open {
		s.metrics.open.WithLabelValues(status).Set(float64(n))
	}
	s.metrics.due.Set(due)
	return 0, nil
}
