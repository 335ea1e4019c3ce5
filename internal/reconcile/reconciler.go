package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/tracing"
)

// scanWindow says how far back the reconciler looks, and how often.
type scanWindow struct {
	name  string
	back  time.Duration // how much of what it has seen it reads again
	every time.Duration
	// continues: it begins where it ended last time, minus back. After a restore that
	// is where the database ended, so what was lost is read first.
	continues bool
	// confirmable: it does not read Stripe's list, which goes by creation, but the intents that can still be paid
	// and that no operation works on; "young": those of the last two days; "old": the others.
	confirmable string
	refunds     bool // it reads the refunds only
	// lost: it reads what a life of this database did that was lost (db/migrations/00019_lives.sql).
	lost bool
}

// The windows overlap, so that each object is read while it is new, when it is a day
// or two old and most of what will happen to it has happened, and for as long as
// Stripe lists the events that we may have missed. At a hundred payments a second the
// first window has three hundred pages, ten a second of the twenty-five that Stripe
// allows.
var scanWindows = []scanWindow{
	{name: payments.LostTimeWindow, back: 10 * time.Minute, lost: true},
	{name: "recent", back: 5 * time.Minute, every: 30 * time.Second, continues: true},
	{name: "days", back: 49 * time.Hour, every: 6 * time.Hour},
	{name: "month", back: 35 * 24 * time.Hour, every: 7 * 24 * time.Hour},
	// Most refunds that come back do so within minutes or hours.
	{name: "refunds_young", back: youngFor, every: 4 * time.Minute, refunds: true},
	// A bank may send a refund back weeks after it succeeded, and one that is pending fails after 45 days at the latest.
	{name: "refunds", back: 90 * 24 * time.Hour, every: 22 * time.Hour, refunds: true},
	{name: "confirmable", every: 4 * time.Minute, confirmable: young},
	{name: "confirmable_old", every: 22 * time.Hour, confirmable: old},
}

var windowNames = namesOf(scanWindows)

func namesOf(windows []scanWindow) (names []string) {
	for _, w := range windows {
		names = append(names, w.name)
	}
	return names
}

const (
	reconcileLease = 2 * time.Minute // of a window, renewed after each page
	reconcileAgain = 10 * time.Second
	skipMax        = 3
	recheckMax     = 50               // open discrepancies that one round looks at again
	overdueAfter   = 10 * time.Second // Completers are woken within a second; none takes what is due for longer.
)

// Reconciler compares Stripe's objects with our rows, one by one, and repairs what it
// can prove: it wakes the operation that works on a payment, adopts money that is ours
// and has no row, applies what happened to a refund, and has abandoned intents
// canceled. The rest becomes a discrepancy, for an operator. Any number may run; they share
// the work by a lease on each window.
type Reconciler struct {
	service *payments.Service
	repairs payments.Repairs
	pool    *postgres.Pool
	gateway payments.Gateway
	metrics *Metrics
	log     *slog.Logger
	tracer  *tracing.Tracer

	unregistered sync.Map // the operations that logUnregistered has logged
}

// Options of New.
type Options struct {
	Metrics *Metrics // may be nil
	Log     *slog.Logger
}

// New returns a reconciler of the service's payments. It starts nothing.
func New(pool *postgres.Pool, gateway payments.Gateway, s *payments.Service, o Options) *Reconciler {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{pool: pool, gateway: gateway, service: s, repairs: s.Repairs(), metrics: o.Metrics, log: o.Log}
}

// Traced records a trace of each round, with a span for each object it repairs, linked
// to the trace of the object's order.
func (r *Reconciler) Traced(t *tracing.Tracer) *Reconciler {
	r.tracer = t
	return r
}

// RunOnce has refunds that are owed tried again, goes through one window that is due, and returns whether there was
// either. An error means that the database or Stripe is away; the window is gone through again from its beginning. A
// problem with one object is a discrepancy, not an error.
func (r *Reconciler) RunOnce(ctx context.Context) (int, error) {
	owed, owedErr := r.repairs.RetryOwed(ctx)
	windows, err := r.runWindow(ctx)
	return owed + windows, errors.Join(owedErr, err)
}

// runWindow goes through the first window that is due.
func (r *Reconciler) runWindow(ctx context.Context) (int, error) {
	due, err := r.pool.ReconcileDue(ctx, windowNames)
	if err != nil {
		return 0, fmt.Errorf("look for windows that are due: %w", err)
	}
	for _, w := range scanWindows {
		if !slices.Contains(due, w.name) {
			continue
		}
		since, err := r.lostSince(ctx, w)
		if err != nil {
			return 0, err
		}
		if w.lost && since == nil {
			continue
		}
		claim, err := r.pool.ReconcileClaim(ctx, db.ReconcileClaimParams{Name: w.name, Lease: reconcileLease})
		if errors.Is(err, postgres.ErrNoRows) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("claim window %s: %w", w.name, err)
		}
		traced, span := r.tracer.Begin(ctx, trace.SpanKindInternal, "", "reconcile ", w.name)
		if since != nil {
			claim.CoveredThrough = since
		}
		position, err := r.scan(traced, w, claim)
		span.End(err)
		switch {
		case err != nil:
			return 0, errors.Join(fmt.Errorf("reconcile window %s: %w", w.name, err),
				r.release(ctx, w, claim, released{pause: reconcileAgain, position: claim.Position}))
		case position != nil:
			return 1, r.release(ctx, w, claim, released{pause: confirmablePause, position: position})
		}
		return 1, r.release(ctx, w, claim, released{through: &claim.Now, pause: w.every})
	}
	return 0, nil
}

// lostSince is when a life that was lost began to do what is not read yet; nil: there is nothing of the kind, or the window
// is of something else.
func (r *Reconciler) lostSince(ctx context.Context, w scanWindow) (*time.Time, error) {
	if !w.lost {
		return nil, nil
	}
	since, err := r.pool.LostTime(ctx, w.name)
	switch {
	case errors.Is(err, postgres.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read which time was lost: %w", err)
	}
	return &since, nil
}

// released says how far a window was read, and when it is due again.
type released struct {
	through  *time.Time
	position *string
	pause    time.Duration
}

func (r *Reconciler) release(ctx context.Context, w scanWindow, claim db.ReconcileClaimRow, to released) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := r.pool.ReconcileRelease(ctx, db.ReconcileReleaseParams{
		Name: w.name, LeaseToken: claim.LeaseToken, Pause: to.pause, Through: to.through, Position: to.position,
	})
	if err != nil {
		return fmt.Errorf("give window %s back: %w", w.name, err) // Its lease runs out.
	}
	return nil
}

// from is where a window begins.
func (w scanWindow) from(claim db.ReconcileClaimRow) time.Time {
	if (w.continues || w.lost) && claim.CoveredThrough != nil {
		return claim.CoveredThrough.Add(-w.back)
	}
	return claim.Now.Add(-w.back)
}

// scan goes through a window. It returns where the next run continues, or nil if this one came to the end.
func (r *Reconciler) scan(ctx context.Context, w scanWindow, claim db.ReconcileClaimRow) (*string, error) {
	c := walker{
		pool: r.pool, gateway: r.gateway, service: r.service, skipMax: skipMax,
		abandonedBefore: claim.Now.Add(-payments.AbandonedAfter),
		onCompared:      r.metrics.seen,
		intent: isolated(r, r.repairIntent, func(i stripe.Intent) compare.Discrepancy {
			return compare.Discrepancy{
				Object: compare.PaymentIntent, ObjectID: i.ID, TenantID: i.TenantID, OrderID: i.OrderID,
				Currency: i.Currency,
			}
		}),
		refund: isolated(r, r.repairRefund, func(refund stripe.Refund) compare.Discrepancy {
			return compare.Discrepancy{
				Object: compare.Refund, ObjectID: refund.ID, TenantID: refund.TenantID, OrderID: refund.OrderID,
				Currency: refund.Currency,
			}
		}),
		onUnreadable: r.parkUnreadable,
		onPassedBy: func(ctx context.Context, object localRef, minor int64) error {
			r.metrics.passedBy.WithLabelValues(object.currency).Add(float64(minor))
			if !w.lost || minor == 0 {
				return nil
			}
			return r.tenantIsLost(ctx, object, minor)
		},
		afterPage: func(ctx context.Context) error {
			n, err := r.pool.ReconcileExtend(ctx, db.ReconcileExtendParams{
				Name: w.name, LeaseToken: claim.LeaseToken, Lease: reconcileLease,
			})
			if err == nil && n == 0 {
				err = errors.New("the lease of the window was lost")
			}
			return err
		},
	}
	if w.lost { // No process of the lost life is there to confirm what it has made.
		c.abandonedBefore, c.lost = claim.Now, true
	}
	if w.confirmable != "" { // One that is skipped must not keep the run from those behind it.
		defer r.logSkipped(&c)
		return scanConfirmable(ctx, &c, w, claim)
	}
	walk := c.walk
	if w.refunds {
		walk = c.walkRefunds
	}
	if err := walk(ctx, w.from(claim)); err != nil {
		return nil, err
	}
	if missed := errors.Join(c.skipped...); missed != nil { // All others were compared; the window is not done.
		return nil, missed
	}
	if w.refunds {
		return nil, nil
	}
	defer r.logSkipped(&c)
	return nil, r.recheck(ctx, &c)
}

// tenantIsLost records that money was taken for a tenant that the database does not have since it was restored, unless the
// tenant may be another cell's.
func (r *Reconciler) tenantIsLost(ctx context.Context, object localRef, minor int64) error {
	cell, err := r.pool.CellName(ctx)
	if err != nil {
		return fmt.Errorf("read the cell: %w", err)
	}
	if cell != "" { // Stripe has tenants of other cells.
		return nil
	}
	return r.park(ctx, compare.Discrepancy{
		Kind: db.DiscrepancyKindUnmatchedAtStripe, Object: compare.PaymentIntent, ObjectID: object.objectID,
		TenantID: object.TenantID, OrderID: object.OrderID, Currency: object.currency, DriftMinor: minor,
		Detail: "paid at Stripe in the time that was lost, and the tenant does not exist here: " +
			"`api tenant create NAME -id " + object.TenantID + "` brings it back",
	})
}

// logSkipped logs what a run has left out without being read again for it.
func (r *Reconciler) logSkipped(c *walker) {
	for _, why := range c.skipped {
		r.log.Warn("Stripe gave no response about an object; it is left for the next run", "error", why.Error())
	}
}

// repairIntent does what an intent's difference asks for. It does not trust the page that
// the intent was read from: before anything is written it is compared again under the
// order's lock, and before it is called lost it is read again.
func (r *Reconciler) repairIntent(ctx context.Context, i stripe.Intent, d compare.Difference) error {
	switch d.Result {
	case compare.Agrees:
		if err := r.repairs.MovedByOthers(ctx, i); err != nil {
			return fmt.Errorf("record what others have moved of %s: %w", i.ID, err)
		}
		if i.Status == stripe.IntentCanceled || i.Status == stripe.IntentSucceeded && !d.GivenBack {
			order := compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}
			if err := r.repairs.IntentEnded(ctx, order, i.ID); err != nil {
				return err
			}
		}
		return r.resolve(ctx, i.TenantID, i.ID, "", "Stripe and our rows agree")
	case compare.InProgress:
		return r.expedite(ctx, i.TenantID, d.Key)
	case compare.Adoptable:
		adopted, err := r.repairs.AdoptPayment(ctx, i)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", i.ID, err)
		}
		if adopted == "" {
			return nil // Another operation works on it by now. The next round will see.
		}
		r.done("adopted", "adopted a payment that Stripe has and we had not", "tenant_id", i.TenantID, "order_id",
			i.OrderID, "payment_id", adopted, "payment_intent", i.ID)
		return nil
	case compare.Abandoned:
		begun, err := r.repairs.CancelAbandoned(ctx, i)
		if err != nil {
			return fmt.Errorf("cancel %s: %w", i.ID, err)
		}
		if !begun {
			return nil
		}
		r.done("canceled_abandoned", "canceling an intent that no operation will confirm", "tenant_id", i.TenantID,
			"order_id", i.OrderID, "payment_intent", i.ID)
		return nil
	case compare.Unaccounted:
		if err := r.pool.UnaccountedIntentAdd(ctx, db.UnaccountedIntentAddParams{
			TenantID: i.TenantID, OrderID: i.OrderID, IntentID: i.ID,
		}); err != nil {
			return fmt.Errorf("record %s of a lost life: %w", i.ID, err)
		}
		r.done("unaccounted", "found an intent of a life that was lost; a payment of its order accounts for it first",
			"tenant_id", i.TenantID, "order_id", i.OrderID, "payment_intent", i.ID, "status", string(i.Status))
		return nil
	case compare.Unregistered:
		r.logUnregistered(i)
		// Nothing is known about its money, so nothing is claimed, and nothing that was claimed before stays.
		return r.resolve(ctx, i.TenantID, i.ID, "", "made by an operation that is unknown to this service")
	case compare.StatusChanged:
		if err := r.repairs.AuthorizationEnded(ctx, i); err != nil {
			return fmt.Errorf("record how the authorization of %s ended: %w", i.ID, err)
		}
		r.done("applied", "recorded how an authorization ended at Stripe", "tenant_id", i.TenantID, "order_id", i.OrderID,
			"payment_id", d.Discrepancy.PaymentID, "payment_intent", i.ID, "status", string(i.Status))
		return nil
	case compare.Differs:
		if err := r.expedite(ctx, i.TenantID, d.Key); err != nil { // if its key is parked
			return err
		}
		return r.park(ctx, d.Discrepancy)
	}
	panic("bug: a result of an intent without a repair")
}

func (r *Reconciler) repairRefund(ctx context.Context, refund stripe.Refund, d compare.Difference) error {
	switch d.Result {
	case compare.Agrees:
		return r.resolve(ctx, refund.TenantID, refund.ID, "", "Stripe and our rows agree")
	case compare.InProgress:
		return r.expedite(ctx, d.Discrepancy.TenantID, d.Key)
	case compare.Adoptable:
		_, err := r.adoptRefund(ctx, refund)
		return err
	case compare.StatusChanged:
		err := r.pool.InTx(ctx, func(q *db.Queries) error {
			row, err := r.service.ApplyRefund(ctx, q, d.Discrepancy.TenantID, d.Discrepancy.RefundID, refund)
			if err != nil {
				return err
			}
			return idempotency.Expedite(ctx, q, row.TenantID, row.IdempotencyKey)
		})
		if err != nil {
			return fmt.Errorf("apply %s: %w", refund.ID, err)
		}
		r.done("applied", "applied the new status of a refund", "tenant_id", d.Discrepancy.TenantID, "refund_id",
			d.Discrepancy.RefundID, "status", string(refund.Status))
		return r.resolve(ctx, d.Discrepancy.TenantID, refund.ID, "", "the refund is "+string(refund.Status)+" here too")
	case compare.Differs, compare.Abandoned, compare.Unregistered, compare.Unaccounted: // An intent alone is one of the last three.
		if d.Discrepancy.Kind == db.DiscrepancyKindUnmatchedAtStripe {
			// It does not fit into what is left, perhaps because another refund has failed that we have not seen yet.
			if adopted, err := r.adoptRefund(ctx, refund); err != nil || adopted {
				return err
			}
		}
		return r.park(ctx, d.Discrepancy)
	}
	panic("bug: a result of a refund without a repair")
}

// adoptRefund creates the rows for a refund that Stripe has and we had not, unless that is not possible now.
func (r *Reconciler) adoptRefund(ctx context.Context, refund stripe.Refund) (adopted bool, err error) {
	adopted, err = r.repairs.AdoptRefund(ctx, refund)
	if err != nil {
		return false, fmt.Errorf("adopt %s: %w", refund.ID, err)
	}
	if !adopted {
		return false, nil
	}
	r.done("adopted", "adopted a refund that Stripe has and we had not", "tenant_id", refund.TenantID, "order_id",
		refund.OrderID, "stripe_refund", refund.ID)
	return true, r.resolve(ctx, refund.TenantID, refund.ID, "", "the refund has a row here too")
}

// logUnregistered logs an operation that this service does not know once for each
// process, and not once for each of its intents in each round.
func (r *Reconciler) logUnregistered(i stripe.Intent) {
	if _, logged := r.unregistered.LoadOrStore(i.Operation, true); !logged {
		r.log.Info("Stripe has PaymentIntents of an operation that is not registered; they are not compared",
			"operation", i.Operation, "tenant_id", i.TenantID, "payment_intent", i.ID)
	}
}

// isolated keeps one object that cannot be repaired from holding up all others of its
// window. It becomes a discrepancy with the reason, which raises an alert, and is tried
// again in every round until it is repaired.
func isolated[T any](
	r *Reconciler, repair func(context.Context, T, compare.Difference) error, name func(T) compare.Discrepancy,
) func(context.Context, T, compare.Difference) error {
	return func(ctx context.Context, object T, d compare.Difference) error {
		ctx, span := r.startSpan(ctx, name(object), d)
		err := guarded(func() error { return repair(ctx, object, d) })
		span.End(err)
		if err == nil || !ofTheObject(ctx, err) {
			return err
		}
		f := d.Discrepancy
		if f.ObjectID == "" { // Nothing was wrong with the object; we failed to act on it.
			f = name(object)
			f.Kind = db.DiscrepancyKindStatusMismatch
		}
		f.Detail = strings.TrimPrefix(f.Detail+"; not repaired: "+postgres.ErrorText(err), "; ")
		return r.park(ctx, f)
	}
}

// startSpan begins a span for an object on which Stripe and our rows disagree, linked to the
// trace of its order that the outbox has stored: from a payment's trace one finds what
// repaired it, days later and in another process.
func (r *Reconciler) startSpan(
	ctx context.Context, object compare.Discrepancy, d compare.Difference,
) (context.Context, tracing.Span) {
	if d.Result == compare.Agrees || !tracing.Current(ctx).Recording() {
		return ctx, tracing.Span{}
	}
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "repair ", object.Object)
	span.Set("payonce.result", d.Result.String())
	span.Set("stripe.object_id", object.ObjectID)
	span.Set(tracing.Tenant, object.TenantID)
	span.Set(tracing.Resource, object.OrderID)
	// Its events may be deleted by now, or the database away: then the origin is empty, and there is no link.
	origin, _ := r.pool.OutboxOrigin(ctx, db.OutboxOriginParams{TenantID: object.TenantID, AggregateID: object.OrderID})
	span.Link(origin)
	return ctx, span
}

// parkUnreadable records a discrepancy for an object that Stripe refuses to show, or that cannot be compared.
func (r *Reconciler) parkUnreadable(ctx context.Context, object string, row localRef, why error) error {
	if !ofTheObject(ctx, why) {
		return why
	}
	return r.park(ctx, unreadable(object, row, why))
}

func unreadable(object string, row localRef, why error) compare.Discrepancy {
	detail := "Stripe does not show it: "
	if errors.Is(why, errBug) || postgres.IsTooSlow(why) {
		detail = "not compared: "
	}
	return compare.Discrepancy{
		Kind: db.DiscrepancyKindStatusMismatch, Object: object, ObjectID: row.objectID, TenantID: row.TenantID,
		OrderID: row.OrderID, Currency: row.currency, Detail: detail + postgres.ErrorText(why),
	}
}

// ofTheObject reports whether an error would recur with everything working: the
// database rejected the write, Stripe rejected the request, or there is a bug. Any
// other error may pass by itself and is never a discrepancy.
func ofTheObject(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, postgres.ErrInDoubt) {
		return false
	}
	for _, definite := range []error{stripe.ErrNotShown, stripe.ErrNoSuchObject, payments.ErrRefundExceedsPayment,
		errBug} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return postgres.IsRejected(err) || postgres.IsTooSlow(err) // with everything working, of a search for this object
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

// expedite has the operation of a key resumed. Without a key none waits: a checkout or a cancel works on the object.
func (r *Reconciler) expedite(ctx context.Context, tenantID, key string) error {
	expedited, err := idempotency.TryExpedite(ctx, r.pool.Queries, tenantID, key)
	if expedited {
		r.metrics.results.WithLabelValues("expedited").Inc()
	}
	return err
}

// park records a discrepancy. It is logged once, not every half minute.
func (r *Reconciler) park(ctx context.Context, f compare.Discrepancy) error {
	news, err := r.pool.DiscrepancyRecord(ctx, db.DiscrepancyRecordParams{
		TenantID: f.TenantID, Object: f.Object, ObjectID: f.ObjectID, Kind: f.Kind,
		OrderID: postgres.Nullable(f.OrderID), PaymentID: postgres.Nullable(f.PaymentID),
		RefundID: postgres.Nullable(f.RefundID), Currency: f.Currency, DriftMinor: f.DriftMinor, Detail: f.Detail,
	})
	if err != nil {
		return fmt.Errorf("record the discrepancy about %s: %w", f.ObjectID, err)
	}
	if news {
		r.metrics.results.WithLabelValues("discrepancy_found").Inc()
		r.log.Error("Stripe and our rows disagree; an operator must look", "tenant_id", f.TenantID, "object_id",
			f.ObjectID, "kind", string(f.Kind), "order_id", f.OrderID,
			"payment_id", f.PaymentID, "refund_id", f.RefundID, "drift_minor", f.DriftMinor, "currency", f.Currency,
			"detail", f.Detail)
	}
	return r.resolve(ctx, f.TenantID, f.ObjectID, string(f.Kind), "found to be of another kind: "+string(f.Kind))
}

// resolve closes the discrepancies of an object, except those of one kind.
func (r *Reconciler) resolve(ctx context.Context, tenantID, objectID, except, how string) error {
	n, err := r.pool.DiscrepanciesResolve(ctx, db.DiscrepanciesResolveParams{
		TenantID: tenantID, ObjectID: objectID, ExceptKind: except, Resolution: how,
	})
	if err != nil {
		return fmt.Errorf("resolve the discrepancies of %s: %w", objectID, err)
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

// recheck compares the open discrepancies again. Their window may have passed long ago, and a
// person may have fixed them at Stripe.
func (r *Reconciler) recheck(ctx context.Context, c *walker) error {
	open, err := r.pool.DiscrepanciesOpen(ctx, recheckMax)
	if err != nil {
		return fmt.Errorf("read the open discrepancies: %w", err)
	}
	if err := c.recheck(ctx, open); err != nil {
		return err
	}
	for _, f := range open {
		if err := r.pool.DiscrepanciesTouch(ctx, db.DiscrepanciesTouchParams{
			TenantID: f.TenantID, ObjectID: f.ObjectID,
		}); err != nil {
			return fmt.Errorf("record that %s was checked: %w", f.ObjectID, err)
		}
	}
	return nil
}
