package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// applyRefunds brings our rows of an order's refunds to what Stripe's list of them says. Each is compared on its own
// merit, so one that nobody can explain holds up none of the others: it is left to the reconciler, which reports it. It
// joins q's transaction and locks the order.
func (s *Service) applyRefunds(ctx context.Context, q *db.Queries, ref compare.OrderRef, list []stripe.Refund) error {
	order, err := s.lockedOrder(ctx, q, ref)
	if err != nil {
		return err
	}
	for _, r := range knownFirst(list, order) {
		own := compare.IsOwnRefund(r, order)
		r.TenantID, r.OrderID = ref.TenantID, ref.OrderID // Its intent says so. Its own metadata says anything.
		d := compare.RefundOf(r, order)
		switch d.Result {
		case compare.StatusChanged:
			var row db.Refund
			row, err = s.ApplyRefund(ctx, q, ref.TenantID, d.Discrepancy.RefundID, r)
			if errors.Is(err, errRefundTotals) {
				continue // Nothing was written, and the reconciler reports it.
			}
			if err == nil {
				err = idempotency.Expedite(ctx, q, ref.TenantID, row.IdempotencyKey)
			}
		case compare.Adoptable:
			err = s.adoptRefund(ctx, q, r, *order.Paid(), own)
		case compare.InProgress:
			err = idempotency.Expedite(ctx, q, ref.TenantID, d.Key)
		case compare.Agrees, compare.Abandoned, compare.Unaccounted, compare.Differs, compare.Unregistered:
			continue
		}
		if err != nil {
			return fmt.Errorf("apply refund %s: %w", r.ID, err)
		}
		if order, err = s.lockedOrder(ctx, q, ref); err != nil { // Its sums have changed.
			return err
		}
	}
	return nil
}

// knownFirst sorts refunds by whether they have a row, because one of ours that failed leaves room for another, and
// then by age.
func knownFirst(list []stripe.Refund, order *compare.Order) []stripe.Refund {
	unknown := func(r stripe.Refund) int {
		if slices.ContainsFunc(order.Refunds, func(row compare.RefundRow) bool { return r.Is(row.Refund) }) {
			return 0
		}
		return 1
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b stripe.Refund) int {
		return cmp.Or(unknown(a)-unknown(b), a.CreatedAt.Compare(b.CreatedAt))
	})
	return list
}

// adoptRefund creates the rows for a refund that Stripe has and that fits into what is left of its payment. It is one
// that somebody made at Stripe or, own, one of ours that was lost with the database.
func (s *Service) adoptRefund(
	ctx context.Context, q *db.Queries, r stripe.Refund, paid compare.Payment, own bool,
) error {
	p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: r.TenantID, ID: paid.ID})
	if err != nil {
		return fmt.Errorf("lock payment %s: %w", paid.ID, err)
	}
	if r.AmountMinor > compare.PaidMinor(p)-p.AmountRefundingMinor {
		return nil // Another refund began meanwhile. It is compared again when that has ended.
	}
	key := adoptedKeyPrefix + r.ID
	row := newRefund(p, db.RefundOriginProvider, key, r.TenantID+":"+key+":refund", r.AmountMinor)
	row.CreatedAt, row.StripeRefundID, row.Reason = r.CreatedAt, &r.ID, postgres.Nullable(r.Reason)
	if own {
		other, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: r.TenantID, ID: r.RefundID})
		switch {
		case errors.Is(err, postgres.ErrNoRows):
			row.ID, row.Origin = r.RefundID, originOf(r)
		case err != nil:
			return fmt.Errorf("look for refund %s: %w", r.RefundID, err)
		case other.PaymentID == p.ID:
			return nil // Its key was sent again while this waited for the payment. The next round sees.
		} // Otherwise it names the refund of another payment, so it is not that one.
	}
	if err := s.recordRefund(ctx, q, row); err != nil {
		return err
	}
	s.o.Log.Warn("adopted a refund that Stripe has and we had not", "tenant_id", row.TenantID, "refund_id", row.ID,
		"stripe_refund", r.ID, "origin", string(row.Origin))
	if r.Status == db.RefundStatusPending { // The completer polls it until it is final.
		return s.keys.Enqueue(ctx, q, idempotency.Request{
			TenantID: r.TenantID, Key: key, Operation: RefundOrder,
		}, row.ID, refundRecorded)
	}
	_, err = s.ApplyRefund(ctx, q, r.TenantID, row.ID, r)
	return err
}

// originOf tells who had asked for a refund that was lost with the database: the ids of automatic refunds are derived
// from their order.
func originOf(r stripe.Refund) db.RefundOrigin {
	for n := range automaticRefundsMax {
		if automaticRefundID(r.TenantID, r.OrderID, n+1) == r.RefundID {
			return db.RefundOriginAutomatic
		}
	}
	return db.RefundOriginApi
}
