package payments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
)

// An automatic refund returns money that the service may not keep: its order was canceled before it was paid, or its
// checkout was compensated. If Stripe refuses it for good, or the bank returns it or a refund that another program
// made, also days later, the money is owed: a row of refunds_owed says so from the same commit on. It is tried again,
// each time as a refund of its own, and parked after the last pause, for an operator. It ends when the payment is
// refunded in full, by the service or by others, or when an operator has settled it in another way. A bank may return
// each refund that has succeeded, so an end does not reset the number of attempts; an operator's settlement does.

// owedPauses, in seconds, are before the attempts at what is owed.
var owedPauses = []int64{10, 60, 10 * 60, 60 * 60, 6 * 60 * 60}

const (
	owedBatch = 50
	// owedPostpone is the pause before what could not be tried is looked at again.
	owedPostpone = time.Minute
	// automaticRefundsMax is how many automatic refunds of a payment are recognized after they were lost with the
	// database: the attempts, and those that operators asked for.
	automaticRefundsMax = 32
)

// NotOwedError says why an automatic refund is not tried again, or not settled.
type NotOwedError struct{ Why string }

func (e *NotOwedError) Error() string { return e.Why }

// automaticKey is the key of the nth automatic refund of an order's payment.
func automaticKey(orderID string, n int) string {
	key := RefundOrder + " " + orderID
	if n > 1 {
		key += ":" + strconv.Itoa(n)
	}
	return key
}

func automaticRefundID(tenantID, orderID string, n int) string {
	return ids.Keyed(ids.Refund, tenantID, automaticKey(orderID, n))
}

// AutomaticStripeKeys are the keys under which the automatic refunds of an order are sent to Stripe, and were: until
// November 2026 the first had no number.
func AutomaticStripeKeys(tenantID, orderID string) []string {
	keys := []string{tenantID + ":" + orderID + ":refund"}
	for n := range automaticRefundsMax {
		keys = append(keys, automaticStripeKey(tenantID, orderID, n+1))
	}
	return keys
}

// automaticStripeKey ends in a number, unlike <tenant>:<key>:refund: a caller's key may be an order's id.
func automaticStripeKey(tenantID, orderID string, n int) string {
	return tenantID + ":" + orderID + ":refund:" + strconv.Itoa(n)
}

// RefundRest records that the service may not keep the money of a payment, and an automatic refund of what is left of
// it, if anything is. The completer carries it out. The caller holds the payment's row lock.
func (s *Service) RefundRest(ctx context.Context, q *db.Queries, p db.Payment) error {
	left, err := leftOf(ctx, q, p)
	if err != nil {
		return err
	}
	if left > 0 {
		_, err = s.enqueueAutomatic(ctx, q, p, left)
		return err
	}
	_, err = q.PaymentReserveRefund(ctx, db.PaymentReserveRefundParams{
		TenantID: p.TenantID, ID: p.ID, MustBeRefunded: true,
	})
	if err != nil {
		return fmt.Errorf("note that payment %s must be refunded: %w", p.ID, err)
	}
	return nil
}

func (s *Service) enqueueAutomatic(
	ctx context.Context, q *db.Queries, p db.Payment, amount int64,
) (row db.Refund, err error) {
	n, err := nextAutomatic(ctx, q, p)
	if err != nil {
		return row, err
	}
	key := automaticKey(p.OrderID, n)
	row = newRefund(p, db.RefundOriginAutomatic, key, automaticStripeKey(p.TenantID, p.OrderID, n), amount)
	if err := s.recordRefund(ctx, q, row); err != nil {
		return row, err
	}
	return row, s.keys.Enqueue(ctx, q, idempotency.Request{
		TenantID: p.TenantID, Key: key, Operation: RefundOrder,
	}, row.ID, refundRecorded)
}

// nextAutomatic is the number of the next automatic refund of a payment. A restored database may know a later one, from
// Stripe, and not those before it.
func nextAutomatic(ctx context.Context, q *db.Queries, p db.Payment) (int, error) {
	before, err := q.RefundsAutomaticCount(ctx, db.RefundsAutomaticCountParams{TenantID: p.TenantID, PaymentID: p.ID})
	if err != nil {
		return 0, fmt.Errorf("count the automatic refunds of payment %s: %w", p.ID, err)
	}
	for n := int(before) + 1; ; n++ {
		id := automaticRefundID(p.TenantID, p.OrderID, n)
		switch _, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: p.TenantID, ID: id}); {
		case errors.Is(err, postgres.ErrNoRows):
			return n, nil
		case err != nil:
			return 0, fmt.Errorf("look for refund %s: %w", id, err)
		}
	}
}

// recordOwed records what the end of a refund means for what is owed of its payment.
func (s *Service) recordOwed(ctx context.Context, q *db.Queries, row db.Refund) error {
	why := string(row.Status)
	if row.FailureCode != nil {
		why = *row.FailureCode
	}
	var err error
	switch {
	case row.Status == db.RefundStatusSucceeded:
		err = q.RefundOwedEnd(ctx, db.RefundOwedEndParams{TenantID: row.TenantID, PaymentID: row.PaymentID})
	case row.Origin == db.RefundOriginAutomatic:
		s.o.Log.Error("an automatic refund has failed; the money is owed", "tenant_id", row.TenantID, "refund_id",
			row.ID, "payment_id", row.PaymentID, "failure", why)
		err = q.RefundOwe(ctx, db.RefundOweParams{
			TenantID: row.TenantID, PaymentID: row.PaymentID, OrderID: row.OrderID, Currency: row.Currency,
			LastRefundID: row.ID, LastError: why, PauseSeconds: owedPauses,
		})
	default:
		err = q.RefundOweAgain(ctx, db.RefundOweAgainParams{
			TenantID: row.TenantID, PaymentID: row.PaymentID, LastRefundID: row.ID, LastError: why,
			PauseSeconds: owedPauses,
		})
	}
	if err != nil {
		return fmt.Errorf("record what is owed of payment %s: %w", row.PaymentID, err)
	}
	return nil
}

// RetryOwed has refunds that are owed and due tried again, and returns how many. One that cannot be tried waits, and
// holds up none of the others.
func (s Repairs) RetryOwed(ctx context.Context) (int, error) {
	due, err := s.pool.RefundsOwedDue(ctx, owedBatch)
	if err != nil {
		return 0, fmt.Errorf("read the refunds that are owed: %w", err)
	}
	tried := 0
	for _, o := range due {
		err := s.pool.InTx(ctx, func(q *db.Queries) error {
			_, err := s.retryOwed(ctx, q, o.TenantID, o.PaymentID, nil)
			return err
		})
		if err == nil {
			tried++
			continue
		}
		if ctx.Err() != nil {
			return tried, ctx.Err()
		}
		s.o.Log.Warn("a refund that is owed was not tried again", "tenant_id", o.TenantID, "payment_id", o.PaymentID,
			"error", err.Error())
		if err := s.pool.RefundOwedPostpone(ctx, db.RefundOwedPostponeParams{
			TenantID: o.TenantID, PaymentID: o.PaymentID, Pause: owedPostpone,
		}); err != nil {
			return tried, fmt.Errorf("postpone the refund of payment %s: %w", o.PaymentID, err)
		}
	}
	return tried, nil
}

// RetryOwedNow records the next automatic refund of a payment of which money is owed, in q's transaction, because an
// operator asks for it. The completer carries it out. A *NotOwedError says why not, ErrPaymentDisputed that the bank
// decides about the money: if the dispute is lost, the customer has it.
func (s Repairs) RetryOwedNow(ctx context.Context, q *db.Queries, tenantID, paymentID string) (db.Refund, error) {
	return s.retryOwed(ctx, q, tenantID, paymentID, s.o.Disputes)
}

// retryOwed asks disputes, if there are any, whether the payment may be refunded. By itself it is tried whatever they
// say: Stripe refuses it too, and the row is parked when the attempts are used up.
func (s Repairs) retryOwed(
	ctx context.Context, q *db.Queries, tenantID, paymentID string, disputes Disputes,
) (db.Refund, error) {
	p, owed, err := s.lockOwed(ctx, q, tenantID, paymentID)
	if err == nil && disputes != nil {
		err = disputes.AllowsRefund(ctx, q, p)
	}
	if err != nil {
		return db.Refund{}, err
	}
	amount := compare.PaidMinor(p) - p.AmountRefundingMinor - owed.SettledMinor
	if amount <= 0 {
		return db.Refund{}, &NotOwedError{"a refund of the payment is under way already"}
	}
	row, err := s.enqueueAutomatic(ctx, q, p, amount)
	if err != nil {
		return row, err
	}
	if err := q.RefundOwedAttempt(ctx, db.RefundOwedAttemptParams{
		TenantID: tenantID, PaymentID: paymentID, LastRefundID: row.ID,
	}); err != nil {
		return row, fmt.Errorf("record the attempt for payment %s: %w", paymentID, err)
	}
	return row, nil
}

// lockOwed reads what is owed of a payment, and locks its order and the payment, as all do that change it.
func (s *Service) lockOwed(
	ctx context.Context, q *db.Queries, tenantID, paymentID string,
) (p db.Payment, owed db.RefundsOwed, err error) {
	if p, err = q.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: paymentID}); err != nil {
		return p, owed, notFound(err, "read payment %s", paymentID)
	}
	if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: tenantID, ID: p.OrderID}); err != nil {
		return p, owed, fmt.Errorf("lock order %s: %w", p.OrderID, err)
	}
	if p, err = q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: paymentID}); err != nil {
		return p, owed, fmt.Errorf("lock payment %s: %w", paymentID, err)
	}
	owed, err = q.RefundOwedGet(ctx, db.RefundOwedGetParams{TenantID: tenantID, PaymentID: paymentID})
	switch {
	case errors.Is(err, postgres.ErrNoRows):
		err = &NotOwedError{"no refund of the payment is owed"}
	case err != nil:
		err = fmt.Errorf("read what is owed of payment %s: %w", paymentID, err)
	case owed.EndedAt != nil:
		err = &NotOwedError{"no refund of the payment is owed any more"}
	}
	return p, owed, err
}
