package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
)

// oursBatch is how many of our own rows are compared at once.
const oursBatch = 200

// comparer compares Stripe's lists with our tables. The audit, which only reports, and
// the reconciler, which acts, share it.
type comparer struct {
	pool    *db.Pool
	gateway Gateway
	// abandonedBefore: only intents created before it count as abandoned; zero: none
	// does.
	abandonedBefore time.Time
	// saw is told the currency of every object that was compared.
	saw func(currency string)
	// paged is called after each page. An error ends the walk.
	paged func(context.Context) error
	// intent and refund are called for every object on which the two disagree, and for
	// every object that was read again, whatever the result.
	intent func(context.Context, Intent, judgment) error
	refund func(context.Context, StripeRefund, judgment) error
	// unseen is called for an object that Stripe refuses to show. Nil: such an object
	// ends the walk, as an error does.
	unseen func(ctx context.Context, object string, row ourRow, why error) error
}

// walk compares everything created since from, at Stripe or here. There is no upper
// bound, because the two clocks need not agree.
func (c *comparer) walk(ctx context.Context, from time.Time) error {
	if err := walkSide(ctx, c, c.intents(), from); err != nil {
		return fmt.Errorf("compare PaymentIntents: %w", err)
	}
	if err := walkSide(ctx, c, c.refunds(), from); err != nil {
		return fmt.Errorf("compare refunds: %w", err)
	}
	return nil
}

// again judges earlier findings once more, however old they are.
func (c *comparer) again(ctx context.Context, open []db.Discrepancy) error {
	for _, f := range open {
		row := ourRow{ref: ref{tenantID: f.TenantID}, objectID: f.ObjectID, intentID: f.ObjectID, currency: f.Currency}
		if f.OrderID != nil {
			row.orderID = *f.OrderID
		}
		var err error
		if f.Object == aPaymentIntent {
			err = lookAndVisit(ctx, c, c.intents(), row)
		} else if row.intentID, err = c.intentPaying(ctx, row.ref); err == nil && row.intentID != "" {
			err = lookAndVisit(ctx, c, c.refunds(), row)
		}
		if err != nil {
			return fmt.Errorf("look at %s again: %w", f.ObjectID, err)
		}
	}
	return nil
}

// intentPaying is the intent that paid an order; empty: none that we know of.
func (c *comparer) intentPaying(ctx context.Context, r ref) (string, error) {
	found, err := views(ctx, c.pool.Queries, []ref{r})
	if err != nil || found[r].paid() == nil {
		return "", err
	}
	return *found[r].paid().IntentID, nil
}

func (c *comparer) intents() side[Intent] {
	return side[Intent]{
		object: aPaymentIntent,
		list:   c.gateway.ListIntents, key: func(i Intent) objectKey {
			return objectKey{ourRow{ref: ref{i.TenantID, i.OrderID}, objectID: i.ID, intentID: i.ID, currency: i.Currency}, i.CreatedAt}
		},
		judge: c.judgeIntentAndAge, visit: c.intent, settled: c.paid, look: c.lookAtIntent,
	}
}

// judgeIntentAndAge also recognises an abandoned intent, which agrees with our rows
// but will never be confirmed.
func (c *comparer) judgeIntentAndAge(i Intent, v *orderView) judgment {
	j := judgeIntent(i, v)
	if j.ruling == agrees && v.isAbandoned(i, c.abandonedBefore) {
		j.ruling = abandoned
	}
	return j
}

func (c *comparer) refunds() side[StripeRefund] {
	return side[StripeRefund]{
		object: aRefund,
		list:   c.gateway.ListRefunds, key: func(r StripeRefund) objectKey {
			return objectKey{ourRow{ref: ref{r.TenantID, r.OrderID}, objectID: r.ID, intentID: r.IntentID, currency: r.Currency}, r.CreatedAt}
		},
		judge: judgeRefund, visit: c.refund, settled: c.refunded, look: c.lookAtRefund,
	}
}

// side is one kind of object: how to list it at Stripe, read it here and judge it.
type side[T any] struct {
	object  string
	list    func(context.Context, Window) (Page[T], error)
	key     func(T) objectKey
	judge   func(T, *orderView) judgment
	visit   func(context.Context, T, judgment) error
	settled func(ctx context.Context, since, until time.Time, after ourRow) ([]ourRow, error)
	look    func(context.Context, ourRow) (T, error)
}

// ourRow identifies an object of Stripe's and its order. Its id is that of our row that
// says money moved.
type ourRow struct {
	ref
	id, objectID, intentID, currency string
	createdAt                        time.Time // of a refund, whose id does not say it
}

type objectKey struct {
	ourRow
	created time.Time
}

// walkSide goes from the newest page of Stripe's list to the oldest, and with each page
// compares our own rows of the same period: an object that is neither on the page nor
// on the one before is read by its id. So it finds what only Stripe has and what only
// we have, with memory for two pages.
func walkSide[T any](ctx context.Context, c *comparer, s side[T], from time.Time) error {
	window, until := Window{From: from}, endOfTime
	var before map[string]bool
	for more := true; more; {
		page, err := s.list(ctx, window)
		if err != nil {
			return err
		}
		if err := comparePage(ctx, c, s, page.Objects); err != nil {
			return err
		}
		seen, oldest := map[string]bool{}, from
		for _, object := range page.Objects {
			seen[s.key(object).objectID] = true
		}
		if more = page.More && len(page.Objects) > 0; more {
			last := s.key(page.Objects[len(page.Objects)-1])
			window.After, oldest = last.objectID, last.created
		}
		if err := compareOurs(ctx, c, s, oldest, until, func(id string) bool { return seen[id] || before[id] }); err != nil {
			return err
		}
		if err := c.paged(ctx); err != nil {
			return err
		}
		before, until = seen, oldest
	}
	return nil
}

// comparePage judges the objects of a page. Those that name no tenant of ours belong to
// another installation or another program, and are left alone.
func comparePage[T any](ctx context.Context, c *comparer, s side[T], objects []T) error {
	var tenants []string
	for _, object := range objects {
		tenants = append(tenants, s.key(object).tenantID)
	}
	known, err := c.pool.ReconcileTenants(ctx, tenants)
	if err != nil {
		return fmt.Errorf("read the tenants that Stripe names: %w", err)
	}
	ours := map[string]bool{}
	for _, id := range known {
		ours[id] = true
	}
	var refs []ref
	for _, object := range objects {
		if k := s.key(object); ours[k.tenantID] {
			refs = append(refs, k.ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	found, err := views(ctx, c.pool.Queries, refs)
	if err != nil {
		return err
	}
	for _, object := range objects {
		k := s.key(object)
		if !ours[k.tenantID] {
			continue
		}
		c.saw(k.currency)
		j := s.judge(object, found[k.ref])
		if j.ruling == disagrees { // The page was read before our rows were. Read the object again.
			err = lookAndVisit(ctx, c, s, k.ourRow)
		} else if j.ruling != agrees {
			err = s.visit(ctx, object, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAndVisit reads one object again and judges it.
func lookAndVisit[T any](ctx context.Context, c *comparer, s side[T], row ourRow) error {
	var object T
	err := guarded(func() (err error) { object, err = s.look(ctx, row); return err })
	if err != nil && c.unseen != nil {
		return c.unseen(ctx, s.object, row, err)
	}
	if err != nil {
		return err
	}
	found, err := views(ctx, c.pool.Queries, []ref{row.ref})
	if err != nil {
		return err
	}
	return s.visit(ctx, object, s.judge(object, found[row.ref]))
}

// compareOurs judges what our rows of a period say Stripe should have.
func compareOurs[T any](ctx context.Context, c *comparer, s side[T], since, until time.Time, seen func(objectID string) bool) error {
	var last ourRow
	for {
		rows, err := s.settled(ctx, since, until, last)
		if err != nil {
			return err
		}
		for _, row := range rows {
			c.saw(row.currency)
			if seen(row.objectID) {
				continue
			}
			if err := lookAndVisit(ctx, c, s, row); err != nil {
				return err
			}
		}
		if len(rows) < oursBatch {
			return nil
		}
		last = rows[len(rows)-1]
	}
}

// endOfTime is later than anything that was created.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// paid reads payments that succeeded, by when their ids were made.
func (c *comparer) paid(ctx context.Context, since, until time.Time, after ourRow) ([]ourRow, error) {
	rows, err := c.pool.ReconcilePaid(ctx, db.ReconcilePaidParams{
		FromID: paymentID + idFloor(since), ToID: paymentID + idFloor(until), AfterTenantID: after.tenantID, AfterID: after.id, LimitRows: oursBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("read the payments that succeeded: %w", err)
	}
	list := make([]ourRow, len(rows))
	for i, r := range rows {
		list[i] = ourRow{ref: ref{r.TenantID, r.OrderID}, id: r.ID, objectID: *r.IntentID, intentID: *r.IntentID, currency: r.Currency}
	}
	return list, nil
}

// refunded reads refunds that succeeded, by when they were created.
func (c *comparer) refunded(ctx context.Context, since, until time.Time, after ourRow) ([]ourRow, error) {
	rows, err := c.pool.ReconcileRefunded(ctx, db.ReconcileRefundedParams{
		FromAt: since, UntilAt: until, AfterTenantID: after.tenantID, AfterAt: after.createdAt, AfterID: after.id, LimitRows: oursBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("read the refunds that succeeded: %w", err)
	}
	list := make([]ourRow, len(rows))
	for i, r := range rows {
		list[i] = ourRow{ref{r.TenantID, r.OrderID}, r.ID, *r.StripeRefundID, *r.IntentID, r.Currency, r.CreatedAt}
	}
	return list, nil
}

// lookAtIntent reads the intent of a row; one without a status does not exist. The row
// says which order it belongs to, even if its metadata was changed.
func (c *comparer) lookAtIntent(ctx context.Context, row ourRow) (Intent, error) {
	i, err := c.gateway.GetIntent(ctx, row.objectID)
	if errors.Is(err, ErrNoSuchObject) {
		i, err = Intent{ID: row.objectID}, nil
	}
	i.TenantID, i.OrderID = row.tenantID, row.orderID
	return i, err
}

// lookAtRefund reads the refund of a row; one without a status does not exist.
func (c *comparer) lookAtRefund(ctx context.Context, row ourRow) (StripeRefund, error) {
	list, err := c.gateway.RefundsOf(ctx, row.intentID)
	for _, r := range list {
		if r.ID == row.objectID {
			if r.TenantID == "" {
				r.TenantID, r.OrderID = row.tenantID, row.orderID
			}
			return r, err
		}
	}
	return StripeRefund{ID: row.objectID, IntentID: row.intentID, TenantID: row.tenantID, OrderID: row.orderID}, err
}
