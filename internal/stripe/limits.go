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
)

// operation is an endpoint of Stripe. Stripe limits the rate of each.
type Operation string

const (
	OpCreateIntent Operation = "create_intent"
	OpConfirm      Operation = "confirm"
	OpCapture      Operation = "capture"
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

// QueueFullError says that no new payment of a tenant is begun, because as many of its calls wait for Stripe as can be
// sent in time.
type QueueFullError struct {
	RetryAfter time.Duration // until there is room, if the tenant begins nothing meanwhile
}

func (e *QueueFullError) Error() string {
	return "no new payment is begun: too many calls of the tenant wait for Stripe"
}

const (
	// Longest wait for a turn; after it the call counts as not executed, and the completer tries
	// later.
	LimitWait = 5 * time.Second
	// A payment is begun only if its calls would wait no longer than this, so that they still have their turns in time if
	// the tenant's share is halved meanwhile, because another tenant comes.
	newWorkWait     = LimitWait / 2
	accountShare    = 4   // Stripe allows an account four times the rate of one endpoint.
	newWorkShare    = 0.8 // The rest of the account's rate is reserved for finishing what was begun.
	breakerWindow   = 10 * time.Second
	breakerCallsMin = 50  // With fewer calls, failures may be bad luck, and cost their payments a few seconds.
	breakerRatio    = 0.8 // of the calls in a window
	breakerOpen     = 5   // the part of its window for which a breaker is open
)

// paymentCalls are the calls of a new payment.
var paymentCalls = []Operation{OpCreateIntent, OpConfirm}

// Limits protects one Stripe account from this process: it limits calls per second
// (https://docs.stripe.com/rate-limits) and shares them fairly among the tenants, allows one
// change of an object at a time, and stops new payments while Stripe is down.
type Limits struct {
	perSecond float64
	account   *queue
	newWork   *queue
	waiting   *prometheus.GaugeVec
	open      prometheus.Gauge
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	denied    atomic.Bool // Stripe rejects our API key: no payment can be made
	probing   sync.Mutex

	mu        sync.Mutex
	endpoints map[Operation]*queue
	objects   map[string]*turn

	admitting sync.Mutex
	beginning map[string]int // payments that were admitted and are not recorded yet, by tenant
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
	l := &Limits{perSecond: perSecond, endpoints: map[Operation]*queue{}, objects: map[string]*turn{},
		beginning: map[string]int{}}
	l.account = newQueue(accountShare * perSecond)
	l.newWork = newQueue(accountShare * perSecond * newWorkShare)
	l.waiting = promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_stripe_calls_waiting",
		Help: "Calls that wait for their turn, to stay within STRIPE_RPS."}, []string{"stripe_operation"})
	for _, op := range paymentCalls {
		l.waiting.WithLabelValues(string(op)) // zero from the start: a panel without a series looks broken
	}
	l.open = open
	return l.WithBreakerWindow(breakerWindow)
}

// WithBreakerWindow sets the time in which calls are counted that fail or succeed, 10 s by default, before the limits are
// used. After a fifth of that time a breaker that has opened lets one payment try.
func (l *Limits) WithBreakerWindow(window time.Duration) *Limits {
	l.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "stripe", MaxRequests: 1, Interval: window, Timeout: window / breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= breakerCallsMin && float64(c.TotalFailures) >= breakerRatio*float64(c.Requests)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateClosed {
				l.open.Set(0)
			} else {
				l.open.Set(1)
			}
		},
	})
	return l
}

// wait takes a turn for a call to op that is made for a tenant, or returns ErrThrottled.
func (l *Limits) wait(ctx context.Context, tenantID string, op Operation) error {
	if t, ok := ctx.Value(turnKey{}).(turnTaken); ok {
		return t.err
	}
	if l.perSecond == 0 {
		return nil
	}
	waiting := l.waiting.WithLabelValues(string(op))
	waiting.Inc()
	defer waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, LimitWait)
	defer cancel()
	for _, q := range l.queues(op) {
		if err := q.wait(ctx, tenantID); err != nil {
			return fmt.Errorf("%s: %w", op, ErrThrottled)
		}
	}
	return nil
}

// queues are where a call to op takes its turns, one after the other.
func (l *Limits) queues(op Operation) []*queue {
	queues := []*queue{l.endpoint(op), l.account}
	if op == OpCreateIntent {
		queues = append(queues, l.newWork)
	}
	return queues
}

// hasRoom takes a turn for a call to op if there is one to spare.
func (l *Limits) hasRoom(op Operation) bool {
	if l.perSecond == 0 {
		return true
	}
	for _, q := range l.queues(op) {
		if !q.tryTake() {
			return false
		}
	}
	return true
}

// admit reports whether a new payment of a tenant may be begun, by how long its calls would wait: a QueueFullError if
// too long. It counts as one that waits until recorded is called, after which its first call comes at once, or never.
// Else a burst would be admitted whole, because none of its calls is in the queue yet.
func (l *Limits) admit(tenantID string) (recorded func(), err error) {
	if l.perSecond == 0 {
		return func() {}, nil
	}
	l.admitting.Lock()
	defer l.admitting.Unlock()
	var longest time.Duration
	for _, op := range paymentCalls {
		wait, coming := time.Duration(0), l.beginning[tenantID]
		for _, q := range l.queues(op) {
			wait += q.delayOf(tenantID, coming)
			coming = 0 // The first queue lets them through one by one.
		}
		longest = max(longest, wait)
	}
	if longest > newWorkWait {
		return nil, &QueueFullError{RetryAfter: longest - newWorkWait}
	}
	l.beginning[tenantID]++
	return sync.OnceFunc(func() {
		l.admitting.Lock()
		defer l.admitting.Unlock()
		if l.beginning[tenantID]--; l.beginning[tenantID] == 0 {
			delete(l.beginning, tenantID)
		}
	}), nil
}

// turnTaken is the result of a wait that a call's context carries, because its caller has
// waited for it.
type turnTaken struct{ err error }

type turnKey struct{}

func withTurn(ctx context.Context, err error) context.Context {
	return context.WithValue(ctx, turnKey{}, turnTaken{err})
}

func (l *Limits) endpoint(op Operation) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, ok := l.endpoints[op]
	if !ok {
		q = newQueue(l.perSecond)
		l.endpoints[op] = q
	}
	return q
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
