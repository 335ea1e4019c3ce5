package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/internal/postgres"
)

// loop is work that is repeated until the process stops. Packages start no loops: service.loops is the list of all.
type loop struct {
	name  string
	every time.Duration // the pause after an iteration that had nothing to do, at most
	// wake, if not nil, ends the pause early, but not before rest is over. It is a hint: a loop must work without.
	wake    <-chan struct{}
	rest    time.Duration
	runOnce func(context.Context) (n int, err error)
	// worked, if not nil, is called after an iteration that had something to do: it may have left work for other loops.
	worked func()
	// subscribes: one iteration lasts until an error, so the time since the last one means nothing.
	subscribes bool
}

// loopMetrics show for each loop when it last completed an iteration. The gauges that a loop sets are as old as that:
// after a failure they keep values that look healthy, and only these metrics show that they are stale.
//
// The idle time is measured here, by the process's own timer. A time of day would be compared with
// Prometheus's clock:
// on a host whose clock is an hour slow every loop would seem to be idle, and on one that is fast none ever would.
type loopMetrics struct {
	items    *prometheus.CounterVec
	failures *prometheus.CounterVec

	mu        sync.Mutex
	completed map[string]time.Time
}

var loopIdle = prometheus.NewDesc("payonce_loop_idle_seconds",
	"Seconds since the loop last completed an iteration without an error, or since the process started if none has.",
	[]string{"loop"}, nil)

func newLoopMetrics(r prometheus.Registerer) *loopMetrics {
	f := promauto.With(r)
	m := &loopMetrics{
		completed: map[string]time.Time{},
		items: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_loop_items_total",
			Help: "Items that the loop has processed: claims, events, time windows or rows."}, []string{"loop"}),
		failures: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_loop_failures_total",
			Help: "Iterations of the loop that failed. The next iteration continues where the failed one stopped."},
			[]string{"loop"}),
	}
	r.MustRegister(m)
	return m
}

// complete records that a loop has completed an iteration, or starts its first.
func (m *loopMetrics) complete(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.completed[name] = at
}

// Describe implements prometheus.Collector.
func (m *loopMetrics) Describe(all chan<- *prometheus.Desc) { all <- loopIdle }

// Collect implements prometheus.Collector.
func (m *loopMetrics) Collect(all chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, at := range m.completed {
		all <- prometheus.MustNewConstMetric(loopIdle, prometheus.GaugeValue, time.Since(at).Seconds(), name)
	}
}

// beginWithin is how long the first iteration of a loop holds up that of the next. Loops begin one after another: if all
// looked at once, each process would begin with a connection for each, and twenty that start together would take all
// that a server has. One that takes long, because it calls Stripe, holds up no others.
const beginWithin = 500 * time.Millisecond

// start runs the loops until ctx ends. wait returns when all have stopped, each between two items, or after the grace
// period: an item that waits for Stripe can take longer than the orchestrator waits before it kills the process.
func start(
	ctx context.Context, log *slog.Logger, m *loopMetrics, grace time.Duration, loops ...loop,
) (wait func()) {
	var running sync.WaitGroup
	turns := make(chan struct{}, 1)
	for _, l := range loops {
		m.items.WithLabelValues(l.name)
		m.failures.WithLabelValues(l.name)
		if !l.subscribes {
			m.complete(l.name, time.Now())
		}
		ctx := postgres.ForAllTenants(ctx, "loop "+l.name)
		running.Go(func() {
			end := func() {}
			if !l.subscribes {
				end = takeTurn(ctx, turns)
			}
			for ctx.Err() == nil {
				n := l.runIteration(ctx, log, m)
				end()
				if n > 0 {
					if l.worked != nil {
						l.worked()
					}
					continue // There may be more items, so no pause.
				}
				pause(ctx, l.rest, nil)
				// Jittered, or processes that were started together would poll together.
				pause(ctx, l.every-l.rest-time.Duration(rand.Int64N(int64(l.every/8)+1)), l.wake)
			}
		})
	}
	stopped, late := make(chan struct{}), make(chan struct{})
	go func() {
		running.Wait()
		close(stopped)
	}()
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return func() {
		select {
		case <-stopped:
		case <-late: // The same as if this process had been killed.
			log.Warn(
				"loops did not stop in time; another process finishes their items when the leases have expired",
				"after", grace,
			)
		}
	}
}

// takeTurn waits for a turn, which ends after a while even if it is not ended.
func takeTurn(ctx context.Context, turns chan struct{}) (end func()) {
	select {
	case turns <- struct{}{}:
		end = sync.OnceFunc(func() { <-turns })
		time.AfterFunc(beginWithin, end)
		return end
	case <-ctx.Done():
		return func() {}
	}
}

// pause returns after d, or when woken, or when ctx ends.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	select {
	case <-time.After(d):
	case <-wake:
	case <-ctx.Done():
	}
}

// runIteration runs the loop once. Neither an error nor a panic stops the loop.
func (l loop) runIteration(ctx context.Context, log *slog.Logger, m *loopMetrics) (n int) {
	defer func() {
		if bug := recover(); bug != nil {
			log.Error("bug: a loop panicked", "loop", l.name, "panic", bug, "stack", string(debug.Stack()))
			m.failures.WithLabelValues(l.name).Inc()
			n = 0
		}
	}()
	n, err := l.runOnce(ctx)
	m.items.WithLabelValues(l.name).Add(float64(max(0, n)))
	if err != nil && ctx.Err() == nil {
		log.Warn("loop failed; it will retry", "loop", l.name, "error", err.Error())
		m.failures.WithLabelValues(l.name).Inc()
		return 0
	}
	if !l.subscribes {
		m.complete(l.name, time.Now())
	}
	return n
}
