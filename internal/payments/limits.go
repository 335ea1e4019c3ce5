package payments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

// operation names an endpoint of Stripe. Stripe limits each by itself.
type operation string

const (
	opCreateIntent operation = "create_intent"
	opConfirm      operation = "confirm"
	opCancel       operation = "cancel"
	opGetIntent    operation = "get_intent"
	opRefund       operation = "refund"
	opListRefunds  operation = "list_refunds"
	opListIntents  operation = "list_intents"
)

// ErrThrottled says that a call was not sent, to stay within Stripe's limits.
var ErrThrottled = errors.New("held back: too many calls to this Stripe endpoint")

// limitWait is the longest a call waits for its turn before it is given up as
// not executed; the completer has more patience than a request.
const limitWait = 5 * time.Second

// Limits keeps the calls of this process within what Stripe allows an endpoint
// (https://docs.stripe.com/rate-limits).
type Limits struct {
	perSecond float64
	mu        sync.Mutex
	buckets   map[operation]*rate.Limiter
}

// NewLimits returns the discipline of one Stripe account, in calls a second per
// endpoint; 0 is no limit.
func NewLimits(perSecond float64) *Limits {
	return &Limits{perSecond: perSecond, buckets: map[operation]*rate.Limiter{}}
}

func (l *Limits) wait(ctx context.Context, op operation) error {
	if l == nil || l.perSecond == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limitWait)
	defer cancel()
	if err := l.bucket(op).Wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, ErrThrottled)
	}
	return nil
}

func (l *Limits) bucket(op operation) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[op]
	if !ok {
		b = rate.NewLimiter(rate.Limit(l.perSecond), max(1, int(l.perSecond)))
		l.buckets[op] = b
	}
	return b
}

// saw learns from what came back.
func (l *Limits) saw(Outcome) {}

// StripeMetrics counts calls by operation and outcome.
type StripeMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewStripeMetrics registers the metrics; with nil they count for nobody.
func NewStripeMetrics(r prometheus.Registerer) *StripeMetrics {
	f := promauto.With(r)
	return &StripeMetrics{
		calls: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_stripe_calls_total",
			Help: "Attempts of calls to Stripe, by what came of them."}, []string{"stripe_operation", "outcome"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_stripe_call_seconds",
			Help:    "Time of one attempt, the wait for a turn included.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}}, []string{"stripe_operation"}),
	}
}

func (m *StripeMetrics) observe(op operation, outcome string, took time.Duration) {
	m.calls.WithLabelValues(string(op), outcome).Inc()
	m.duration.WithLabelValues(string(op)).Observe(took.Seconds())
}
