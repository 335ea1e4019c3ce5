package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// localBatch is how many of our own rows are compared at once.
const localBatch = 200

// walker compares Stripe's lists with our tables. The audit, which only reports, and
// the reconciler, which acts, share it.
type walker struct {
	pool    *postgres.Pool
	gateway payments.Gateway
	service *payments.Service
	// abandonedBefore: only intents created before it count as abandoned; zero: none
	// does.
	abandonedBefore time.Time
	// lost: what is listed was made by a life of this database that was lost.
	lost bool
	// onCompared is called with the currency of every object that was compared.
	onCompared func(currency string)
	// onPassedBy is called for an object of a tenant that is not here, of another cell or of a life that was lost, with what it
	// took: the object is not compared. Nil: not called.
	onPassedBy func(ctx context.Context, object localRef, minor int64) error
	// afterPage is called after each page. An error ends the walk.
	afterPage func(context.Context) error
	// intent and refund are called for every object on which the two disagree, and for
	// every object that was read again, whatever the result.
	intent func(context.Context, stripe.Intent, compare.Difference) error
	refund func(context.Context, stripe.Refund, compare.Difference) error
	// onUnreadable is called for an object that could not be read or compared, with the
	// reason. What it returns ends the walk.
	onUnreadable func(ctx context.Context, object string, row localRef, why error) error
	// skipMax is how many objects of a run may be without a response before Stripe is taken to be away, and skipped the
	// errors of those before. The audit skips none.
	skipMax int
	skipped []error
}

// skip reports whether an object that cannot be read is left for the next run: Stripe did not respond about it, and did
// about most others. It may be an outage that begins, so it is no discrepancy.
func (c *walker) skip(ctx context.Context, why error) bool {
	if !errors.Is(why, stripe.ErrAway) || ctx.Err() != nil || len(c.skipped)+1 >= c.skipMax {
		return false
	}
	c.skipped = append(c.skipped, why)
	return true
}

// walk compares everything created since from, at Stripe or here. There is no upper
// bound, because the two clocks need not agree.
func (c *walker) walk(ctx context.Context, from time.Time) error {
	if err := walkObjects(ctx, c, c.intents(), from); err != nil {
		return fmt.Errorf("compare PaymentIntents: %w", err)
	}
	return c.walkRefunds(ctx, from)
}

// walkRefunds is walk for refunds alone. They are few, and their status changes late.
func (c *walker) walkRefunds(ctx context.Context, from time.Time) error {
	if err := walkObjects(ctx, c, c.refunds(), from); err != nil {
		return fmt.Errorf("compare refunds: %w", err)
	}
	return nil
}

// recheck compares earlier discrepancies once more, however old they are.
func (c *walker) recheck(ctx context.Context, open []db.Discrepancy) error {
	for _, f := range open {
		row := localRef{
			OrderRef: compare.OrderRef{TenantID: f.TenantID}, objectID: f.ObjectID, intentID: f.ObjectID,
			currency: f.Currency,
		}
		if f.OrderID != nil {
			row.OrderID = *f.OrderID
		}
		var err error
		if f.Object == compare.PaymentIntent {
			err = readAndVisit(ctx, c, c.intents(), row)
		} else if row.intentID, err = c.payingIntent(ctx, row.OrderRef); row.intentID != "" {
			err = readAndVisit(ctx, c, c.refunds(), row)
		}
		if err != nil {
			return fmt.Errorf("read %s again: %w", f.ObjectID, err)
		}
	}
	return nil
}

// payingIntent is the intent that paid an order; empty: none that we know of.
func (c *walker) payingIntent(ctx context.Context, r compare.OrderRef) (string, error) {
	found, err := c.service.OrderRows(ctx, c.pool.Queries, []compare.OrderRef{r})
	if err != nil {
		return "", err
	}
	if paid := found[r].Paid(); paid != nil {
		return *paid.IntentID, nil
	}
	return "", nil
}

func (c *walker) intents() objectKind[stripe.Intent] {
	return objectKind[stripe.Intent]{
		object: compare.PaymentIntent,
		list:   c.listIntents, key: func(i stripe.Intent) objectKey {
			return objectKey{localRef{
				OrderRef: compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}, objectID: i.ID, intentID: i.ID,
				currency: i.Currency,
			}, i.CreatedAt}
		},
		took:    func(i stripe.Intent) int64 { return i.ReceivedMinor },
		compare: c.compareIntentAndAge, visit: c.intent, settled: c.paid, read: c.readIntent,
		locate: c.locateIntent,
	}
}

// listIntents lists intents, each under the order whose payment has it.
func (c *walker) listIntents(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Intent], error) {
	page, err := c.gateway.ListIntents(ctx, w)
	if err != nil {
		return page, err
	}
	return page, inPlace(page.Objects, func(i stripe.Intent) (stripe.Intent, error) {
		return payments.OwnIntent(ctx, c.pool.Queries, i)
	})
}

// listRefunds lists refunds, each under the order whose payment it is of.
func (c *walker) listRefunds(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Refund], error) {
	page, err := c.gateway.ListRefunds(ctx, w)
	if err != nil {
		return page, err
	}
	return page, inPlace(page.Objects, func(r stripe.Refund) (stripe.Refund, error) {
		return payments.OwnRefund(ctx, c.pool.Queries, r)
	})
}

// inPlace puts f of each object in its place, until one fails.
func inPlace[T any](objects []T, f func(T) (T, error)) error {
	for n, object := range objects {
		var err error
		if objects[n], err = f(object); err != nil {
			return err
		}
	}
	return nil
}

func (c *walker) locateIntent(ctx context.Context, i stripe.Intent) (compare.OrderRef, error) {
	i, err := payments.LocateIntent(ctx, c.pool.Queries, i)
	return compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}, err
}

func (c *walker) locateRefund(ctx context.Context, r stripe.Refund) (compare.OrderRef, error) {
	i, err := c.gateway.GetIntent(ctx, stripe.NoTenant, r.IntentID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return compare.OrderRef{TenantID: r.TenantID, OrderID: r.OrderID}, nil
	}
	if err != nil {
		return compare.OrderRef{}, err
	}
	i.TenantID, i.OrderID = r.TenantID, r.OrderID
	return c.locateIntent(ctx, i)
}

// compareIntentAndAge also recognises an abandoned intent, which agrees with our rows
// but will never be confirmed.
func (c *walker) compareIntentAndAge(i stripe.Intent, v *compare.Order) compare.Difference {
	d := compare.Intent(i, v)
	if d.Result == compare.Agrees && i.Operation == "" && v.IsAbandoned(i, c.abandonedBefore) {
		d.Result = compare.Abandoned
	}
	if c.lost && d.Result != compare.Adoptable && d.Result != compare.Abandoned && v.Unaccounted(i) {
		d.Result = compare.Unaccounted
	}
	return d
}

func (c *walker) refunds() objectKind[stripe.Refund] {
	return objectKind[stripe.Refund]{
		object: compare.Refund,
		list:   c.listRefunds, key: func(r stripe.Refund) objectKey {
			return objectKey{localRef{
				OrderRef: compare.OrderRef{TenantID: r.TenantID, OrderID: r.OrderID}, objectID: r.ID,
				intentID: r.IntentID, currency: r.Currency,
			}, r.CreatedAt}
		},
		compare: compare.RefundOf, visit: c.refund, settled: c.refunded, read: c.readRefund,
		locate: c.locateRefund,
	}
}

// objectKind is one kind of object: how to list it at Stripe, read it and compare it.
type objectKind[T any] struct {
	object  string
	list    func(context.Context, stripe.Window) (stripe.Page[T], error)
	key     func(T) objectKey
	compare func(T, *compare.Order) compare.Difference
	visit   func(context.Context, T, compare.Difference) error
	settled func(ctx context.Context, since, until time.Time, after localRef) ([]localRef, error)
	read    func(context.Context, localRef) (T, error)
	took    func(T) int64 // in minor units; nil: an object of this kind takes nothing
	// locate finds the order whose payment has the object, if that of its metadata has none.
	locate func(context.Context, T) (compare.OrderRef, error)
}

// difference compares an object with the rows of its order.
func (s objectKind[T]) difference(object T, order *compare.Order) (d compare.Difference, err error) {
	err = guarded(func() error { d = s.compare(object, order); return nil })
	return d, err
}

// localRef identifies an object of Stripe's and its order. Its id is that of our row that
// says money moved.
type localRef struct {
	compare.OrderRef
	id, objectID, intentID, currency string
	createdAt                        time.Time // of a refund, whose id does not say it
}

type objectKey struct {
	localRef
	created time.Time
}

// walkObjects goes from the newest page of Stripe's list to the oldest, and with each page
// compares our own rows of the same period: an object that is neither on the page nor
// on the one before is read by its id. So it finds what only Stripe has and what only
// we have, with memory for two pages.
func walkObjects[T any](ctx context.Context, c *walker, s objectKind[T], from time.Time) error {
	window, until := stripe.Window{From: from}, endOfTime
	var before map[string]compare.OrderRef // what was listed, and under which order
	for more := true; more; {
		page, err := s.list(ctx, window)
		if err != nil {
			return err
		}
		if err := comparePage(ctx, c, s, page.Objects); err != nil {
			return err
		}
		seen, oldest := map[string]compare.OrderRef{}, from
		for _, object := range page.Objects {
			seen[s.key(object).objectID] = s.key(object).OrderRef
		}
		if more = page.More && len(page.Objects) > 0; more {
			last := s.key(page.Objects[len(page.Objects)-1])
			window.After, oldest = last.objectID, last.created
		}
		if err := compareLocal(ctx, c, s, oldest, until,
			func(r localRef) bool { return seen[r.objectID] == r.OrderRef || before[r.objectID] == r.OrderRef }); err != nil {
			return err
		}
		if err := c.afterPage(ctx); err != nil {
			return err
		}
		before, until = seen, oldest
	}
	return nil
}

// comparePage compares the objects of a page. Those that name no tenant of ours belong to
// another installation or another program, and are left alone.
func comparePage[T any](ctx context.Context, c *walker, s objectKind[T], objects []T) error {
	var tenants []string
	for _, object := range objects {
		tenants = append(tenants, s.key(object).TenantID)
	}
	known, err := c.pool.ReconcileTenants(ctx, tenants)
	if err != nil {
		return fmt.Errorf("read the tenants that Stripe names: %w", err)
	}
	ours := map[string]bool{}
	for _, id := range known {
		ours[id] = true
	}
	if err := passBy(ctx, c, s, objects, ours); err != nil {
		return err
	}
	objects = slices.DeleteFunc(slices.Clone(objects), func(object T) bool { return !ours[s.key(object).TenantID] })
	if len(objects) == 0 {
		return nil
	}
	var refs []compare.OrderRef
	for _, object := range objects {
		refs = append(refs, s.key(object).OrderRef)
	}
	found, err := c.service.OrderRows(ctx, c.pool.Queries, refs)
	if err != nil {
		return err
	}
	for _, object := range objects {
		k := s.key(object)
		c.onCompared(k.currency)
		d, err := s.difference(object, found[k.OrderRef])
		if d.NoPayment {
			var located compare.OrderRef
			if located, err = s.locate(ctx, object); err == nil && located != k.OrderRef {
				k.OrderRef, d.Result = located, compare.Differs
			}
		}
		switch {
		case err != nil: // one object that cannot be compared stops no other
			err = c.onUnreadable(ctx, s.object, k.localRef, err)
		case d.Result == compare.Differs: // The page was read before our rows were. Read the object again.
			err = readAndVisit(ctx, c, s, k.localRef)
		case d.Result != compare.Agrees:
			err = s.visit(ctx, object, d)
		}
		if err != nil && !c.skip(ctx, err) {
			return err
		}
	}
	return nil
}

func passBy[T any](ctx context.Context, c *walker, s objectKind[T], objects []T, ours map[string]bool) error {
	if c.onPassedBy == nil || s.took == nil {
		return nil
	}
	for _, object := range objects {
		k := s.key(object)
		if k.TenantID == "" || ours[k.TenantID] {
			continue
		}
		if err := c.onPassedBy(ctx, k.localRef, s.took(object)); err != nil {
			return err
		}
	}
	return nil
}

// readAndVisit reads one object again and compares it. What a tenant that has moved away has at Stripe is its new cell's.
func readAndVisit[T any](ctx context.Context, c *walker, s objectKind[T], row localRef) error {
	if served, err := c.pool.TenantServedHere(ctx, row.TenantID); !served {
		return err
	}
	var object T
	err := guarded(func() (err error) { object, err = s.read(ctx, row); return err })
	if c.skip(ctx, err) {
		return nil
	}
	if err != nil {
		return c.onUnreadable(ctx, s.object, row, err)
	}
	found, err := c.service.OrderRows(ctx, c.pool.Queries, []compare.OrderRef{row.OrderRef})
	if err != nil {
		return err
	}
	d, err := s.difference(object, found[row.OrderRef])
	if err != nil {
		return c.onUnreadable(ctx, s.object, row, err)
	}
	if err = s.visit(ctx, object, d); c.skip(ctx, err) {
		return nil
	}
	return err
}

// compareLocal compares what our rows of a period say Stripe should have.
func compareLocal[T any](
	ctx context.Context, c *walker, s objectKind[T], since, until time.Time, seen func(localRef) bool,
) error {
	var last localRef
	for {
		rows, err := s.settled(ctx, since, until, last)
		if err != nil {
			return err
		}
		for _, row := range rows {
			c.onCompared(row.currency)
			if seen(row) { // Listed under another order, because its metadata was edited, it is read as what our row says.
				continue
			}
			if err := readAndVisit(ctx, c, s, row); err != nil {
				return err
			}
		}
		if len(rows) < localBatch {
			return nil
		}
		last = rows[len(rows)-1]
	}
}

// endOfTime is later than anything that was created.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// paid reads payments that succeeded, by when their ids were made.
func (c *walker) paid(ctx context.Context, since, until time.Time, after localRef) ([]localRef, error) {
	rows, err := c.pool.ReconcilePaid(ctx, db.ReconcilePaidParams{
		FromID: ids.Payment + ids.Floor(since), ToID: ids.Payment + ids.Floor(until), AfterTenantID: after.TenantID,
		AfterID: after.id, LimitRows: localBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("read the payments that succeeded: %w", err)
	}
	list := make([]localRef, len(rows))
	for i, r := range rows {
		list[i] = localRef{
			OrderRef: compare.OrderRef{TenantID: r.TenantID, OrderID: r.OrderID}, id: r.ID, objectID: *r.IntentID,
			intentID: *r.IntentID, currency: r.Currency,
		}
	}
	return list, nil
}

// refunded reads refunds that succeeded, by when they were created.
func (c *walker) refunded(ctx context.Context, since, until time.Time, after localRef) ([]localRef, error) {
	rows, err := c.pool.ReconcileRefunded(ctx, db.ReconcileRefundedParams{
		FromAt: since, UntilAt: until, AfterTenantID: after.TenantID, AfterAt: after.createdAt, AfterID: after.id,
		LimitRows: localBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("read the refunds that succeeded: %w", err)
	}
	list := make([]localRef, len(rows))
	for i, r := range rows {
		list[i] = localRef{
			OrderRef: compare.OrderRef{TenantID: r.TenantID, OrderID: r.OrderID}, id: r.ID,
			objectID: *r.StripeRefundID, intentID: *r.IntentID, currency: r.Currency, createdAt: r.CreatedAt,
		}
	}
	return list, nil
}

// readIntent reads the intent of a row; one without a status does not exist. The row
// says which order it belongs to, even if its metadata was changed.
func (c *walker) readIntent(ctx context.Context, row localRef) (stripe.Intent, error) {
	i, err := c.gateway.GetIntent(ctx, stripe.NoTenant, row.objectID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		i, err = stripe.Intent{ID: row.objectID}, nil
	}
	if err == nil {
		i, err = c.service.WithLost(ctx, i)
	}
	i.TenantID, i.OrderID = row.TenantID, row.OrderID
	return i, err
}

// readRefund reads the refund of a row; one without a status does not exist.
func (c *walker) readRefund(ctx context.Context, row localRef) (stripe.Refund, error) {
	list, err := c.gateway.RefundsOf(ctx, stripe.NoTenant, row.intentID)
	for _, r := range list {
		if r.ID == row.objectID {
			r.TenantID, r.OrderID = row.TenantID, row.OrderID // Its own metadata says anything.
			return r, err
		}
	}
	return stripe.Refund{ID: row.objectID, IntentID: row.intentID, TenantID: row.TenantID, OrderID: row.OrderID}, err
}
