package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/internal/postgres"
)

// vitalsWithin bounds the read of PostgreSQL's statistics. If a server takes longer, the gauges
// keep their values, and payonce_loop_idle_seconds shows how old they are.
const vitalsWithin = 5 * time.Second

// vitals are gauges of PostgreSQL's own statistics. A loop reads them, and never a scrape: the load on the database
// must not depend on how often, and by how many, the metrics are scraped.
type vitals struct {
	pool              *postgres.Pool
	live, dead        *prometheus.GaugeVec
	oldestTransaction prometheus.Gauge
}

// newVitals registers the gauges. They are zero or absent until the loop has run once.
func newVitals(pool *postgres.Pool, r prometheus.Registerer) *vitals {
	f := promauto.With(r)
	return &vitals{
		pool: pool,
		live: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_database_live_rows",
			Help: "Live rows in the frequently updated tables, as estimated by PostgreSQL."}, []string{"table"}),
		dead: f.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_database_dead_rows",
			Help: "Dead rows not yet vacuumed in the frequently updated tables, as estimated by PostgreSQL."},
			[]string{"table"}),
		oldestTransaction: f.NewGauge(prometheus.GaugeOpts{Name: "payonce_database_oldest_transaction_seconds",
			Help: "Age of the oldest open transaction of any session. Vacuum cannot remove newer dead rows while it is open."}),
	}
}

// RunOnce sets the gauges.
func (v *vitals) RunOnce(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, vitalsWithin)
	defer cancel()
	stats, err := v.pool.Vitals(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range stats.Tables {
		v.live.WithLabelValues(t.Name).Set(float64(t.Live))
		v.dead.WithLabelValues(t.Name).Set(float64(t.Dead))
	}
	v.oldestTransaction.Set(stats.OldestTransactionSeconds)
	return 0, nil
}
