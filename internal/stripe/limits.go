package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

// operation is an endpoint of Stripe. Stripe limits the rate of each.
type Operation string

const (
	OpCreateIntent Operation = "create_intent"
	OpConfirm      Operation = "confirm"
	OpCancel       Operation = "cancel"
	OpGetIntent    Operation = "get_intent"
	OpRefund       Operation = "refund"
	OpListRefunds  Operation = "list_refunds"
	OpListIntents  Operation = "list_intents"

	OpSearchIntents Operation = "search_intents"
)

// ErrUnavailable says that no new payment is begun: Stripe is down, or rejects our API key.
var ErrUnavailable = errors.New("no new payment is begun: Stripe is unavailable")

// ErrThrottled says that a call was not sent, to stay within Stripe's rate limits.
var ErrThrottled = errors.New("held back: too many calls to Stripe")

const (
	// Longest wait for a turn; after it the call counts as not executed, and the completer tries
	// later.
	LimitWait       = 5 * time.Second
	accountShare    = 4   // Stripe allows an account four times the rate of one endpoint.
	newWorkShare    = 0.8 // The rest of the account's rate is reserved for finishing what was begun.
	breakerWindow   = 10 * time.Second
	breakerCallsMin = 50  // With fewer calls, failures may be bad luck, and cost their payments a few seconds.
	breakerRatio    = 0.8 // of the calls in a window
	breakerOpen     = 2 * time.Second
)

// Limits protects one Stripe account from this process: it limits calls per second
// (https://docs.stripe.com/rate-limits), allows one change of an object at a time,
// and stops new payments while Stripe is down.
type Limits struct {
	perSecond float64
	account   *rate.Limiter
	newWork   *rate.Limiter
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	denied    atomic.Bool // Stripe rejects our API key: no payment can be made
	probing   sync.Mutex

	mu      sync.Mutex
	buckets map[Operation]*rate.Limiter
	objects map[string]*turn
}

// turn queues the changes of one object.
type turn struct {
	mine    chan struct{} // holds one token
	waiting int
}

// NewLimits returns the limits for a rate in calls per second to one endpoint; 0 is no
// limit. metrics may be nil.
func NewLimits(perSecond float64, metrics prometheus.Registerer) *Limits {
	open := promauto.With(metrics).NewGauge(prometheus.GaugeOpts{Name: "payonce_stripe_circuit_breaker_open",
		Help: "1 while new payments are rejected because Stripe is not responding."})
	l := &Limits{perSecond: perSecond, buckets: map[Operation]*rate.Limiter{}, objects: map[string]*turn{}}
	l.account = limiter(accountShare * perSecond)
	l.newWork = limiter(accountShare * perSecond * newWorkShare)
	l.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "stripe", MaxRequests: 1, Interval: breakerWindow, Timeout: breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= breakerCallsMin && float64(c.TotalFailures) >= breakerRatio*float64(c.Requests)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateClosed {
				open.Set(0)
			} else {
				open.Set(1)
			}
		},
	})
	return l
}

// wait takes a turn for a call to op, or returns ErrThrottled.
func (l *Limits) wait(ctx context.Context, op Operation) error {
	if t, ok := ctx.Value(turnKey{}).(turnTaken); ok {
		return t.err
	}
	if l.perSecond == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, LimitWait)
	defer cancel()
	for _, bucket := range l.queue(op) {
		if err := bucket.Wait(ctx); err != nil {
			return fmt.Errorf("%s: %w", op, ErrThrottled)
		}
	}
	return nil
}

// queue is the buckets that a call to op takes a token of.
func (l *Limits) queue(op Operation) []*rate.Limiter {
	queue := []*rate.Limiter{l.bucket(op), l.account}
	if op == OpCreateIntent {
		queue = append(queue, l.newWork)
	}
	return queue
}

// hasRoom takes a turn for a call to op if there is one at once.
func (l *Limits) hasRoom(op Operation) bool {
	if l.perSecond == 0 {
		return true
	}
	for _, bucket := range l.queue(op) {
		if !bucket.Allow() {
			return false
		}
	}
	return true
}

// turnTaken is the result of a wait that a call's context carries, because its caller has
// waited for it.
type turnTaken struct{ err error }

type turnKey struct{}

func withTurn(ctx context.Context, err error) context.Context {
	return context.WithValue(ctx, turnKey{}, turnTaken{err})
}

func (l *Limits) bucket(op Operation) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[op]
	if !ok {
		b = limiter(l.perSecond)
		l.buckets[op] = b
	}
	return b
}

func limiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
}

// alone waits until no other change of the object is in progress in this process:
// Stripe would reject one of the two with a lock timeout. Across processes, the claim
// on an order's payment and the queue of a payment's refunds see to that.
func (l *Limits) alone(ctx context.Context, object string) (done func(), err error) {
	l.mu.Lock()
	t, ok := l.objects[object]
	if !ok {
		t = &turn{mine: make(chan struct{}, 1)}
		l.objects[object] = t
	}
	t.waiting++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(l.objects, object)
		}
	}
	select {
	case t.mine <- struct{}{}:
		return func() { <-t.mine; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%s: %w", object, ErrThrottled)
	}
}

// saw counts a response for the breaker, or that there was none (status 0). It is counted when
// it is known: a call that hangs outlasts the window in which it was sent. The breaker never
// stops a call: what was begun must be finished, and shows the breaker that Stripe is back.
func (l *Limits) saw(httpStatus int) {
	denied := httpStatus == http.StatusUnauthorized || httpStatus == http.StatusForbidden
	alive := httpStatus > 0 && httpStatus < 500 && !denied
	if denied || alive {
		l.denied.Store(denied)
	}
	done, err := l.breaker.Allow()
	switch {
	case err != nil: // The breaker is open and does not count.
	case alive:
		done(nil)
	default:
		done(errStripeAway)
	}
}

var errStripeAway = errors.New("no response that shows Stripe is up")

// ready reports whether a new payment may be begun. After Stripe was away, or has
// rejected our API key, one read at a time probes whether that is still so; never a
// new charge.
func (l *Limits) ready(ctx context.Context, look func(context.Context) error) error {
	state := l.breaker.State()
	if state == gobreaker.StateClosed && !l.denied.Load() {
		return nil
	}
	if state == gobreaker.StateOpen || !l.probing.TryLock() {
		return ErrUnavailable
	}
	defer l.probing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, breakerOpen)
	defer cancel()
	if err := look(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
