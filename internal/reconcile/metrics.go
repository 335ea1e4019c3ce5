package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
)

// Metrics counts what the reconciler did, and shows what an operator must
// look at: money that is not where our rows say, and work that does not end.
type Metrics struct {
	results    *prometheus.CounterVec
	passedBy   *prometheus.CounterVec
	drift      *prometheus.GaugeVec
	open       prometheus.Gauge
	unfinished prometheus.Gauge
	parked     prometheus.Gauge
	inFlight   prometheus.Gauge
	overdue    prometheus.Gauge
	oldest     prometheus.Gauge
	doubtful   prometheus.Gauge
	owed       *prometheus.GaugeVec
	owedMinor  *prometheus.GaugeVec
	unknown    prometheus.Gauge
	holds      holdMetrics
}

// holdMetrics shows the authorizations: what is held on cards, and what becomes of it.
type holdMetrics struct {
	open, minor, expired *prometheus.GaugeVec
	next                 prometheus.Gauge
	inDoubt, doubtAge    prometheus.Gauge
	currencies           map[string]bool // that had a row; only Measure uses it
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		drift: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_money_drift_minor",
			Help: "Difference between Stripe and this database in minor units; a surplus is not offset against a loss. " +
				"Anything but 0 needs an operator."}, []string{"currency"}),
		open: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_discrepancies_open",
			Help: "Objects that differ between Stripe and this database and that an operator must resolve."}),
		results: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_reconciled_total",
			Help: "Actions of the reconciler: expedited, adopted, applied, canceled_abandoned, unaccounted, discrepancy_found or " +
				"resolved."}, []string{"result"}),
		passedBy: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_reconciler_passed_by_minor_total",
			Help: "What PaymentIntents of tenants that are not here have taken, in minor units, each time that one is listed: " +
				"they are of another cell, or a restore has lost the tenant."}, []string{"currency"}),
		unfinished: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_keys_unfinished",
			Help: "Keys of unfinished requests, including parked ones, counted up to 100000."}),
		parked: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_keys_parked",
			Help: "Keys of requests that were parked (dead-lettered) and wait for an operator."}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_keys_in_flight",
			Help: "Unfinished keys that a process is working on right now."}),
		overdue: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_keys_overdue",
			Help: "Unfinished keys that have been due for more than ten seconds and that no completer has claimed."}),
		oldest: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_keys_oldest_seconds",
			Help: "Age of the oldest unfinished key, except those that are parked or wait for the customer or the bank."}),
		doubtful: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_unknown_outcomes",
			Help: "Calls that move money and whose outcome is not yet known."}),
		owed: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_refunds_owed",
			Help: "Payments that must be refunded and a refund of which failed, and whose money is not back yet, " +
				"including parked ones."},
			[]string{"currency"}),
		owedMinor: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_refunds_owed_minor",
			Help: "Sum of the refunds that are owed, in minor units."}, []string{"currency"}),
		unknown: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_unknown_outcomes_oldest_seconds",
			Help: "Time since the oldest call that moves money and has no known outcome was first sent."}),
		holds: holdMetrics{
			currencies: map[string]bool{},
			open: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_authorizations_open",
				Help: "Payments that are authorized and neither captured nor released, counted up to 100000."},
				[]string{"currency"}),
			minor: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_authorizations_open_minor",
				Help: "Sum of the open authorizations, in minor units."}, []string{"currency"}),
			expired: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_authorizations_expired",
				Help: "Authorizations that were recorded in the last day as expired without a capture."}, []string{"currency"}),
			next: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_authorization_expires_seconds",
				Help: "Time until the next open authorization expires. Negative: overdue, +Inf: there is none."}),
			inDoubt: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_captures_in_doubt",
				Help: "Captures whose outcome is not yet known."}),
			doubtAge: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_captures_in_doubt_oldest_seconds",
				Help: "Time since the oldest capture without a known outcome was first sent."}),
		},
	}
	m.holds.next.Set(math.Inf(1))
	for _, result := range []string{"expedited", "adopted", "applied", "canceled_abandoned", "discrepancy_found",
		"resolved"} {
		m.results.WithLabelValues(result) // Otherwise increase() would miss the first count.
	}
	return m
}

// seen has the gauges of a currency shown as 0 from now on.
func (m *Metrics) seen(currency string) {
	for _, gauge := range []*prometheus.GaugeVec{
		m.drift, m.owed, m.owedMinor, m.holds.open, m.holds.minor, m.holds.expired,
	} {
		gauge.WithLabelValues(currency)
	}
}

// Measure sets the gauges from the database, so every process shows the same. What cannot be measured keeps no other
// gauge from being set.
func (r *Reconciler) Measure(ctx context.Context) (int, error) {
	return 0, errors.Join(r.measureDrift(ctx), r.measureOwed(ctx), r.measureAuthorizations(ctx), r.measureKeys(ctx))
}

func (r *Reconciler) measureAuthorizations(ctx context.Context) error {
	rows, err := r.pool.AuthorizationStats(ctx)
	if err != nil {
		return fmt.Errorf("measure the authorizations: %w", err)
	}
	m, next := r.metrics.holds, math.Inf(1)
	// A currency whose last authorization has ended has no row, and one that was shown stays shown.
	for currency := range m.currencies {
		m.open.WithLabelValues(currency).Set(0)
		m.minor.WithLabelValues(currency).Set(0)
		m.expired.WithLabelValues(currency).Set(0)
	}
	for _, row := range rows {
		m.currencies[row.Currency] = true
		m.open.WithLabelValues(row.Currency).Set(float64(row.Held))
		m.minor.WithLabelValues(row.Currency).Set(float64(row.HeldMinor))
		m.expired.WithLabelValues(row.Currency).Set(float64(row.Expired))
		if row.Held > 0 {
			next = min(next, row.NextSeconds)
		}
	}
	m.next.Set(next)
	return nil
}

func (r *Reconciler) measureDrift(ctx context.Context) error {
	drift, err := r.pool.MoneyDrift(ctx)
	if err != nil {
		return fmt.Errorf("measure the drift: %w", err)
	}
	var open int64
	for _, row := range drift {
		r.metrics.drift.WithLabelValues(row.Currency).Set(float64(row.DriftMinor))
		open += row.Open
	}
	r.metrics.open.Set(float64(open))
	return nil
}

func (r *Reconciler) measureOwed(ctx context.Context) error {
	owed, err := r.pool.RefundsOwedStats(ctx)
	if err != nil {
		return fmt.Errorf("measure the refunds that are owed: %w", err)
	}
	for _, row := range owed {
		r.metrics.owed.WithLabelValues(row.Currency).Set(float64(row.Owed))
		r.metrics.owedMinor.WithLabelValues(row.Currency).Set(float64(row.OwedMinor))
	}
	return nil
}

func (r *Reconciler) measureKeys(ctx context.Context) error {
	work, err := r.pool.KeyStats(ctx, db.KeyStatsParams{
		Grace: overdueAfter, AwaitsCustomer: payments.ActionRequired, CustomerMustAct: payments.CustomerMustAct,
	})
	if err != nil {
		return fmt.Errorf("measure the unfinished work: %w", err)
	}
	r.metrics.unfinished.Set(float64(work.Unfinished))
	r.metrics.parked.Set(float64(work.Parked))
	r.metrics.inFlight.Set(float64(work.InFlight))
	r.metrics.overdue.Set(float64(work.Overdue))
	r.metrics.oldest.Set(work.OldestSeconds)
	r.metrics.doubtful.Set(float64(work.Unknown))
	r.metrics.unknown.Set(work.UnknownSeconds)
	r.metrics.holds.inDoubt.Set(float64(work.UnknownCaptures))
	r.metrics.holds.doubtAge.Set(work.UnknownCapturesSeconds)
	return nil
}
