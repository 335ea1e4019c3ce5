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
)

// loop is work that comes up again and again. Packages run no loops of their
// own; all of them are in the list that serve makes.
type loop struct {
	name  string
	every time.Duration // how often to look when there was nothing to do
	// wake, if not nil, ends the pause early: a hint, never needed.
	wake    <-chan struct{}
	runOnce func(context.Context) (n int, err error)
	// subscribes: a turn lasts until something goes wrong, so the time of the
	// last one says nothing.
	subscribes bool
}

// loopMetrics show for each loop whether it still turns. What a loop shows of the
// database is as old as its last turn; one that fails leaves numbers that look
// well, and this is how they are told from fresh ones.
//
// How long a loop has stood still is measured here, by the process's own timer. A
// time of day would be compared with Prometheus's clock: of a host that is an hour
// late every loop would seem to stand, and of one that is early none ever would.
type loopMetrics struct {
	items    *prometheus.CounterVec
	failures *prometheus.CounterVec

	mu     sync.Mutex
	turned map[string]time.Time
}

var loopIdle = prometheus.NewDesc("payonce_loop_idle_seconds",
	"Seconds since the loop last completed an iteration without an error, or since the process started if none has.", []string{"loop"}, nil)

func newLoopMetrics(r prometheus.Registerer) *loopMetrics {
	f := promauto.With(r)
	m := &loopMetrics{
		turned: map[string]time.Time{},
		items: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_loop_items_total",
			Help: "Items that the loop has processed: claims, events, time windows or rows."}, []string{"loop"}),
		failures: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_loop_failures_total",
			Help: "Iterations of the loop that failed. The next iteration continues where the failed one stopped."}, []string{"loop"}),
	}
	r.MustRegister(m)
	return m
}

// turns notes that a loop has turned, or is about to for the first time.
func (m *loopMetrics) turns(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turned[name] = at
}

// Describe implements prometheus.Collector.
func (m *loopMetrics) Describe(all chan<- *prometheus.Desc) { all <- loopIdle }

// Collect implements prometheus.Collector.
func (m *loopMetrics) Collect(all chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, at := range m.turned {
		all <- prometheus.MustNewConstMetric(loopIdle, prometheus.GaugeValue, time.Since(at).Seconds(), name)
	}
}

// start runs the loops until ctx ends; wait returns when all have stopped, each
// between two items, or when the time for that is up: an item that waits for
// Stripe can take longer than whoever stops the process has patience.
func start(ctx context.Context, log *slog.Logger, m *loopMetrics, patience time.Duration, loops ...loop) (wait func()) {
	var running sync.WaitGroup
	for _, l := range loops {
		m.items.WithLabelValues(l.name)
		m.failures.WithLabelValues(l.name)
		if !l.subscribes {
			m.turns(l.name, time.Now())
		}
		running.Go(func() {
			for ctx.Err() == nil {
				n := l.once(ctx, log, m)
				if n > 0 {
					continue // There may be more. Look again at once.
				}
				select {
				case <-time.After(l.every/2 + time.Duration(rand.Int64N(int64(l.every)))):
				case <-l.wake:
				case <-ctx.Done():
				}
			}
		})
	}
	stopped, late := make(chan struct{}), make(chan struct{})
	go func() {
		running.Wait()
		close(stopped)
	}()
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, func() { close(late) }) })
	return func() {
		select {
		case <-stopped:
		case <-late: // What is cut off now is as if this process had been killed.
			log.Warn("loops were cut off in the middle of an item; its lease runs out and others finish it", "after", patience)
		}
	}
}

// once runs one turn. Nothing that goes wrong in it stops the loop.
func (l loop) once(ctx context.Context, log *slog.Logger, m *loopMetrics) (n int) {
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
		log.Warn("loop", "loop", l.name, "error", err.Error())
		m.failures.WithLabelValues(l.name).Inc()
		return 0
	}
	if !l.subscribes {
		m.turns(l.name, time.Now())
	}
	return n
}
