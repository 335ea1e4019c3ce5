package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/tracing"
)

// reconcileWindow says how far back the reconciler looks, and how often.
type reconcileWindow struct {
	name  string
	back  time.Duration // how much of what it has seen it reads again
	every time.Duration
	// continues: it begins where it ended last time, minus back. After a restore that
	// is where the database ended, so what was lost is read first.
	continues bool
}

// The windows overlap, so that each object is read while it is new, when it is a day
// or two old and most of what will happen to it has happened, and for as long as
// Stripe lists the events that we may have missed. At a hundred payments a second the
// first window has three hundred pages, ten a second of the twenty-five that Stripe
// allows.
var reconcileWindows = []reconcileWindow{
	{name: "recent", back: 5 * time.Minute, every: 30 * time.Second, continues: true},
	{name: "days", back: 49 * time.Hour, every: 6 * time.Hour},
	{name: "month", back: 35 * 24 * time.Hour, every: 7 * 24 * time.Hour},
}

const (
	reconcileLease   = 2 * time.Minute // of a window, renewed after each page
	reconcileAgain   = 10 * time.Second
	recheckMax       = 50               // open findings that one round looks at again
	overdueAfter     = 10 * time.Second // Completers look twice a second; what is due for longer, nobody takes.
	adoptedKeyPrefix = "adopted "       // a caller's key has no space in it
)

// Reconciler compares Stripe's objects with our rows, one by one, and repairs what it
// can prove: it wakes the operation that works on a payment, adopts money that is ours
// and has no row, applies what happened to a refund, and has abandoned intents
// canceled. The rest becomes a finding, for a person. Any number may run; they share
// the work by a lease on each window.
type Reconciler struct {
	service *Service
	metrics *ReconcilerMetrics
	log     *slog.Logger
	tracer  *tracing.Tracer
}

// NewReconciler returns a reconciler; metrics may be nil.
func NewReconciler(s *Service, m *ReconcilerMetrics) *Reconciler {
	if m == nil {
		m = NewReconcilerMetrics(nil)
	}
	return &Reconciler{service: s, metrics: m, log: s.o.Log}
}

// Traced records a trace of each round, with a span for each object it repairs, linked
// to the trace of the object's order.
func (r *Reconciler) Traced(t *tracing.Tracer) *Reconciler {
	r.tracer = t
	return r
}

// RunOnce goes through one window that is due, and returns whether there was one. An
// error means that the database or Stripe is away; the window is gone through again
// from its beginning. A problem with one object is a finding, not an error.
func (r *Reconciler) RunOnce(ctx context.Context) (int, error) {
	for _, w := range reconcileWindows {
		claim, err := r.service.pool.ReconcileClaim(ctx, db.ReconcileClaimParams{Name: w.name, Lease: reconcileLease})
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("claim window %s: %w", w.name, err)
		}
		told, span := r.tracer.Begin(ctx, trace.SpanKindInternal, "", "reconcile ", w.name)
		err = r.goThrough(told, w, claim)
		span.End(err)
		if err != nil {
			return 0, errors.Join(fmt.Errorf("reconcile window %s: %w", w.name, err), r.release(ctx, w, claim, nil, reconcileAgain))
		}
		return 1, r.release(ctx, w, claim, &claim.Now, w.every)
	}
	return 0, nil
}

func (r *Reconciler) release(ctx context.Context, w reconcileWindow, claim db.ReconcileClaimRow, through *time.Time, pause time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := r.service.pool.ReconcileRelease(ctx, db.ReconcileReleaseParams{Name: w.name, LeaseToken: claim.LeaseToken, Pause: pause, Through: through})
	if err != nil {
		return fmt.Errorf("give window %s back: %w", w.name, err) // Its lease runs out.
	}
	return nil
}

func (r *Reconciler) goThrough(ctx context.Context, w reconcileWindow, claim db.ReconcileClaimRow) error {
	from := claim.Now.Add(-w.back)
	if w.continues && claim.CoveredThrough != nil {
		from = claim.CoveredThrough.Add(-w.back)
	}
	c := comparer{
		pool: r.service.pool, gateway: r.service.gateway, abandonedBefore: claim.Now.Add(-sweepAfter),
		saw: func(currency string) { r.metrics.drift.WithLabelValues(currency) }, // shown as 0 from then on
		intent: isolated(r, r.mendIntent, func(i Intent) Finding {
			return Finding{Object: aPaymentIntent, ObjectID: i.ID, TenantID: i.TenantID, OrderID: i.OrderID, Currency: i.Currency}
		}),
		refund: isolated(r, r.mendRefund, func(refund StripeRefund) Finding {
			return Finding{Object: aRefund, ObjectID: refund.ID, TenantID: refund.TenantID, OrderID: refund.OrderID, Currency: refund.Currency}
		}),
		unseen: r.parkUnseen,
		paged: func(ctx context.Context) error {
			n, err := r.service.pool.ReconcileExtend(ctx, db.ReconcileExtendParams{Name: w.name, LeaseToken: claim.LeaseToken, Lease: reconcileLease})
			if err == nil && n == 0 {
				err = errors.New("the lease of the window was lost")
			}
			return err
		},
	}
	if err := c.walk(ctx, from); err != nil {
		return err
	}
	return r.recheck(ctx, &c)
}

// mendIntent does what an intent's judgment asks for. It does not trust the page that
// the intent was read from: before anything is written it is judged again under the
// order's lock, and before it is called lost it is read again.
func (r *Reconciler) mendIntent(ctx context.Context, i Intent, j judgment) error {
	switch j.ruling {
	case agrees:
		return r.resolve(ctx, i.TenantID, i.ID, "", "Stripe and our rows agree")
	case inWork:
		return r.hurry(ctx, i.TenantID, j.key)
	case orphaned:
		adopted, err := r.service.adoptPayment(ctx, i)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", i.ID, err)
		}
		if adopted == "" {
			return nil // Another operation works on it by now. The next round will see.
		}
		r.done("adopted", "adopted a payment that Stripe has and we had not", "tenant_id", i.TenantID, "order_id", i.OrderID, "payment_id", adopted, "payment_intent", i.ID)
		return r.resolve(ctx, i.TenantID, i.ID, "", "adopted as "+adopted)
	case abandoned:
		begun, err := r.service.sweep(ctx, i)
		if err != nil {
			return fmt.Errorf("sweep %s: %w", i.ID, err)
		}
		if !begun {
			return nil
		}
		r.done("swept", "canceling an intent that nobody will confirm", "tenant_id", i.TenantID, "order_id", i.OrderID, "payment_intent", i.ID)
		return nil
	case disagrees, moved:
	}
	if j.key != "" { // Its key is parked. Wake it.
		if err := r.hurry(ctx, i.TenantID, j.key); err != nil {
			return err
		}
	}
	return r.park(ctx, j.finding)
}

func (r *Reconciler) mendRefund(ctx context.Context, refund StripeRefund, j judgment) error {
	switch j.ruling {
	case agrees:
		return r.resolve(ctx, refund.TenantID, refund.ID, "", "Stripe and our rows agree")
	case inWork:
		return r.hurry(ctx, j.finding.TenantID, j.key)
	case orphaned:
		adopted, err := r.service.adoptRefund(ctx, refund)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", refund.ID, err)
		}
		if !adopted {
			return nil
		}
		r.done("adopted", "adopted a refund that Stripe has and we had not", "tenant_id", refund.TenantID, "refund_id", refund.RefundID, "stripe_refund", refund.ID)
		return r.resolve(ctx, refund.TenantID, refund.ID, "", "adopted as "+refund.RefundID)
	case moved:
		err := r.service.pool.InTx(ctx, func(q *db.Queries) error {
			_, err := r.service.applyRefund(ctx, q, j.finding.TenantID, j.finding.RefundID, refund)
			return err
		})
		if err != nil {
			return fmt.Errorf("apply %s: %w", refund.ID, err)
		}
		r.done("applied", "applied the new status of a refund", "tenant_id", j.finding.TenantID, "refund_id", j.finding.RefundID, "status", string(refund.Status))
		return r.resolve(ctx, j.finding.TenantID, refund.ID, "", "the refund is "+string(refund.Status)+" here too")
	case disagrees, abandoned:
	}
	return r.park(ctx, j.finding)
}

// isolated keeps one object that cannot be repaired from holding up all others of its
// window. It becomes a finding with the reason, which raises an alert, and is tried
// again in every round until it is repaired.
func isolated[T any](r *Reconciler, mend func(context.Context, T, judgment) error, name func(T) Finding) func(context.Context, T, judgment) error {
	return func(ctx context.Context, object T, j judgment) error {
		ctx, span := r.tell(ctx, name(object), j)
		err := guarded(func() error { return mend(ctx, object, j) })
		span.End(err)
		if err == nil || !ofTheObject(ctx, err) {
			return err
		}
		f := j.finding
		if f.ObjectID == "" { // Nothing was wrong with the object; we failed to act on it.
			f = name(object)
			f.Kind = db.DiscrepancyKindStatusMismatch
		}
		f.Detail = strings.TrimPrefix(f.Detail+"; not mended: "+db.ErrorText(err), "; ")
		return r.park(ctx, f)
	}
}

// tell begins a span for an object on which Stripe and our rows disagree, linked to the
// trace of its order that the outbox has stored: from a payment's trace one finds what
// repaired it, days later and in another process.
func (r *Reconciler) tell(ctx context.Context, object Finding, j judgment) (context.Context, tracing.Span) {
	if j.ruling == agrees || !tracing.Current(ctx).Recording() {
		return ctx, tracing.Span{}
	}
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "mend ", object.Object)
	span.Set("payonce.verdict", j.ruling.String())
	span.Set("stripe.object_id", object.ObjectID)
	span.Set(tracing.Tenant, object.TenantID)
	span.Set(tracing.Resource, object.OrderID)
	origin, err := r.service.pool.OutboxOrigin(ctx, db.OutboxOriginParams{TenantID: object.TenantID, AggregateID: object.OrderID})
	if err == nil { // its events may be deleted by now, or the database away: then there is no link
		span.Link(origin)
	}
	return ctx, span
}

// parkUnseen records a finding for an object that Stripe refuses to show.
func (r *Reconciler) parkUnseen(ctx context.Context, object string, row ourRow, why error) error {
	if !ofTheObject(ctx, why) {
		return why
	}
	return r.park(ctx, Finding{
		Kind: db.DiscrepancyKindStatusMismatch, Object: object, ObjectID: row.objectID, TenantID: row.tenantID, OrderID: row.orderID, Currency: row.currency,
		Detail: "Stripe does not show it: " + db.ErrorText(why),
	})
}

// ofTheObject reports whether an error would recur with everything working: the
// database rejected the write, Stripe rejected the request, or there is a bug. Any
// other error may pass by itself and is never a finding.
func ofTheObject(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, db.ErrInDoubt) {
		return false
	}
	for _, definite := range []error{ErrNotShown, ErrNoSuchObject, ErrRefundExceedsPayment, errBug} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return db.Judged(err)
}

var errBug = errors.New("bug")

// guarded turns a panic into an error: it fails one object, not the process.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errBug, p, debug.Stack())
		}
	}()
	return fn()
}

func (r *Reconciler) hurry(ctx context.Context, tenantID, key string) error {
	if key == "" {
		return nil // A checkout or a cancel works on it, and is not waiting.
	}
	hurried, err := idempotency.Hurried(ctx, r.service.pool.Queries, tenantID, key)
	if hurried {
		r.metrics.results.WithLabelValues("hurried").Inc()
	}
	return err
}

// park records a finding. It is logged once, not every half minute.
func (r *Reconciler) park(ctx context.Context, f Finding) error {
	news, err := r.service.pool.DiscrepancyRecord(ctx, db.DiscrepancyRecordParams{
		TenantID: f.TenantID, Object: f.Object, ObjectID: f.ObjectID, Kind: f.Kind, OrderID: optional(f.OrderID), PaymentID: optional(f.PaymentID), RefundID: optional(f.RefundID),
		Currency: f.Currency, DriftMinor: f.DriftMinor, Detail: f.Detail,
	})
	if err != nil {
		return fmt.Errorf("record the finding about %s: %w", f.ObjectID, err)
	}
	if news {
		r.metrics.results.WithLabelValues("parked").Inc()
		r.log.Error("Stripe and our rows disagree; a person must look", "tenant_id", f.TenantID, "object_id", f.ObjectID, "kind", string(f.Kind), "order_id", f.OrderID,
			"payment_id", f.PaymentID, "refund_id", f.RefundID, "drift_minor", f.DriftMinor, "currency", f.Currency, "detail", f.Detail)
	}
	return r.resolve(ctx, f.TenantID, f.ObjectID, string(f.Kind), "found to be of another kind: "+string(f.Kind))
}

// resolve closes the findings of an object, except those of one kind.
func (r *Reconciler) resolve(ctx context.Context, tenantID, objectID, except, how string) error {
	n, err := r.service.pool.DiscrepanciesResolve(ctx, db.DiscrepanciesResolveParams{TenantID: tenantID, ObjectID: objectID, ExceptKind: except, Resolution: how})
	if err != nil {
		return fmt.Errorf("resolve the findings of %s: %w", objectID, err)
	}
	if n > 0 {
		r.done("resolved", how, "tenant_id", tenantID, "object_id", objectID)
	}
	return nil
}

func (r *Reconciler) done(result, what string, attrs ...any) {
	r.metrics.results.WithLabelValues(result).Inc()
	r.log.Warn("reconciler: "+what, append([]any{"result", result}, attrs...)...)
}

// recheck judges the open findings again. Their window may have passed long ago, and a
// person may have fixed them at Stripe.
func (r *Reconciler) recheck(ctx context.Context, c *comparer) error {
	open, err := r.service.pool.DiscrepanciesOpen(ctx, recheckMax)
	if err != nil {
		return fmt.Errorf("read the open findings: %w", err)
	}
	if err := c.again(ctx, open); err != nil {
		return err
	}
	for _, f := range open {
		if err := r.service.pool.DiscrepanciesTouch(ctx, db.DiscrepanciesTouchParams{TenantID: f.TenantID, ObjectID: f.ObjectID}); err != nil {
			return fmt.Errorf("record that %s was checked: %w", f.ObjectID, err)
		}
	}
	return nil
}
