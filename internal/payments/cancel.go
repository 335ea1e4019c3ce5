package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// cancels are the operations that cancel an order or a payment.
type cancels struct{ *Service }

// CancelRequest is the request of both cancels: the id from their path.
type CancelRequest struct {
	ID string `json:"id"`
}

// cancelBegun is the recovery point of both cancels: the intent may be canceled at
// Stripe already. If need be it is canceled again, under the same key.
const cancelBegun = "cancel_begun"

// beginOrder closes the order to new payments. After that, runOrder finds
// out whether the money of an earlier one has moved.
func (s cancels) beginOrder(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	id := idempotency.Decode[CancelRequest](r.Body).ID
	if !ids.Is(ids.Order, id) {
		return nil, idempotency.Answer{}, ErrNotFound
	}
	target, err := s.statements.OrderToPay.Do(ctx, orderKey{r.TenantID, id})
	if err != nil {
		return nil, idempotency.Answer{}, notFound(err, "read order %s", id)
	}
	switch {
	case target.Order.Status == db.OrderStatusCanceled:
		answer, err := s.keys.BeginFinished(ctx, r, id, func(q *db.Queries) (idempotency.Answer, error) {
			// Read again, behind the lock: its customer may have been erased since.
			order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: r.TenantID, ID: id})
			if err != nil {
				return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", id, err)
			}
			return s.answers.Object(http.StatusOK, "", orderOf(order)), nil
		})
		return nil, answer, err
	case closedOrder(target.Order.Status) != nil:
		return s.refuse(ctx, r, id, ErrOrderNotCancelable)
	case target.LiveStatus == string(db.PaymentStatusProcessing):
		return nil, idempotency.Answer{}, ErrPaymentInProgress
	}
	lock := func(q *db.Queries) error {
		if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: r.TenantID, ID: id}); err != nil {
			return notFound(err, "lock order %s", id)
		}
		return nil
	}
	claim, err := s.keys.BeginBehind(ctx, r, id, cancelBegun, lock, func(q *db.Queries) error {
		live, err := q.PaymentLive(ctx, db.PaymentLiveParams{TenantID: r.TenantID, OrderID: id})
		if err != nil && !errors.Is(err, postgres.ErrNoRows) {
			return fmt.Errorf("read the live payment of order %s: %w", id, err)
		}
		switch {
		case live.Status == db.PaymentStatusProcessing:
			return ErrPaymentInProgress
		case live.CapturingKey != nil:
			return ErrCaptureInProgress
		}
		n, err := q.OrderCancelBegin(ctx, db.OrderCancelBeginParams{
			TenantID: r.TenantID, ID: id, CancelingKey: &r.Key,
		})
		if err == nil && n == 0 {
			return idempotency.ErrTaken // Paid or canceled since it was read: start over.
		}
		return err
	})
	return claim, idempotency.Answer{}, err
}

// runOrder cancels the order's PaymentIntent first, and then the order.
func (s cancels) runOrder(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	target, err := s.statements.OrderToPay.Do(ctx, orderKey{c.TenantID, c.ResourceID})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read order %s: %w", c.ResourceID, err)
	}
	if closesNoMore(target.Order.Status) {
		return s.finishOrder(ctx, c, target, stripe.Intent{})
	}
	ref := compare.OrderRef{TenantID: c.TenantID, OrderID: c.ResourceID}
	earlier, why, err := s.closeEarlier(ctx, c, ref, target.IntentNumber)
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case earlier != nil && (earlier.Status != stripe.IntentSucceeded || target.LiveStatus == ""):
		return s.orderStays(ctx, c, target, *earlier, why)
	}
	// One that was paid beside a payment that waits does not pay the order: the money of a canceled order goes back.
	if target.IntentClosed || target.IntentID == "" {
		return s.finishOrder(ctx, c, target, stripe.Intent{})
	}
	intent, out, err := s.CancelIntent(ctx, c, db.Payment{
		TenantID: c.TenantID, OrderID: c.ResourceID, IntentNumber: target.IntentNumber, IntentID: &target.IntentID,
	})
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case intent.Status == stripe.IntentCanceled:
		return s.finishOrder(ctx, c, target, intent)
	}
	return s.orderStays(ctx, c, target, intent, fmt.Errorf("cancel the intent: %w", out.Why()))
}

// orderStays continues when an intent of the order is not canceled: it was paid, or may still be.
func (s cancels) orderStays(
	ctx context.Context, c *idempotency.Claim, target db.OrderToPayRow, intent stripe.Intent, why error,
) (idempotency.Answer, error) {
	switch intent.Status {
	case stripe.IntentSucceeded:
		answer, err := s.orderPaidFirst(ctx, c, intent, target.LiveStatus)
		switch {
		case errors.Is(err, errCapturedOtherwise):
			return s.orderWaits(ctx, c, target.Order, err)
		case !errors.Is(err, errPaysNothing):
			return answer, err
		}
		ref := compare.OrderRef{TenantID: c.TenantID, OrderID: c.ResourceID}
		if err := s.intentSpent(ctx, ref, intent.ID); err != nil {
			return idempotency.Answer{}, err
		}
		return s.finishOrder(ctx, c, target, intent)
	case stripe.IntentProcessing:
		if err := c.YieldOrPark(ctx, errors.New("the PaymentIntent is processing")); err != nil {
			return idempotency.Answer{}, err
		}
		return idempotency.Answer{}, ErrPaymentInProgress // as if it had been refused at once, to be retried later
	}
	return s.orderWaits(ctx, c, target.Order, why)
}

func (s cancels) orderWaits(
	ctx context.Context, c *idempotency.Claim, order db.Order, why error,
) (idempotency.Answer, error) {
	pending := s.answers.Object(http.StatusAccepted, "/v1/orders/"+order.ID, orderOf(order))
	return pending, c.YieldOrPark(ctx, why)
}

// closesNoMore reports whether an order in this status cannot be canceled any more, or has been.
func closesNoMore(status db.OrderStatus) bool {
	return status != db.OrderStatusOpen && status != db.OrderStatusAuthorized
}

// errPaysNothing says that an intent was paid and cannot pay its order: others have given all of it back, or had
// changed its amount, or an operator has it refunded. The reconciler reports the money.
var errPaysNothing = errors.New("the PaymentIntent was paid and does not pay the order")

func (s cancels) finishOrder(
	ctx context.Context, c *idempotency.Claim, target db.OrderToPayRow, intent stripe.Intent,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: c.ResourceID})
		switch {
		case err != nil:
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", c.ResourceID, err)
		case order.Status == db.OrderStatusCanceled:
			return s.answers.Object(http.StatusOK, "", orderOf(order)), nil
		case closesNoMore(order.Status):
			return s.answers.Problem(ErrOrderNotCancelable, c.RequestID), nil
		}
		if err := s.cancelLivePayment(ctx, q, c.TenantID, c.ResourceID, intent); err != nil {
			return idempotency.Answer{}, err
		}
		if err := q.PaymentIntentClose(ctx, db.PaymentIntentCloseParams{
			TenantID: c.TenantID, OrderID: c.ResourceID, IntentNumber: target.IntentNumber,
		}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("close the intent of order %s: %w", c.ResourceID, err)
		}
		order, err = q.OrderCancel(ctx, db.OrderCancelParams{TenantID: c.TenantID, ID: c.ResourceID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("cancel order %s: %w", c.ResourceID, err)
		}
		return s.answers.Object(http.StatusOK, "", orderOf(order)),
			outbox.Append(ctx, q, OrderEvent("order.canceled", order))
	})
	return c.Answer(), err
}

// cancelLivePayment cancels the payment that was waiting for its customer, or was authorized, when the intent was
// canceled, and has the payment's own key finished.
func (s cancels) cancelLivePayment(
	ctx context.Context, q *db.Queries, tenantID, orderID string, intent stripe.Intent,
) error {
	live, err := lockLive(ctx, q, tenantID, orderID)
	if errors.Is(err, postgres.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock the live payment of order %s: %w", orderID, err)
	}
	_, err = s.cancelWaiting(ctx, q, live, intent)
	return err
}

// lockLive locks the payment that occupies an order, whose own lock the caller holds. postgres.ErrNoRows: there is none;
// the one that was read has ended before it could be locked.
func lockLive(ctx context.Context, q *db.Queries, tenantID, orderID string) (db.Payment, error) {
	live, err := q.PaymentLive(ctx, db.PaymentLiveParams{TenantID: tenantID, OrderID: orderID})
	if err == nil {
		live, err = q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: live.ID})
	}
	if err == nil && live.EndedID != nil {
		err = postgres.ErrNoRows
	}
	return live, err
}

func (s cancels) cancelWaiting(
	ctx context.Context, q *db.Queries, p db.Payment, intent stripe.Intent,
) (db.Payment, error) {
	settle := db.PaymentSettleParams{
		TenantID: p.TenantID, ID: p.ID, SeenVersion: p.Version, Status: db.PaymentStatusCanceled, IntentClosed: true,
	}
	if p.Status == db.PaymentStatusAuthorized {
		settle.FailureCode, settle.FailureMessage = expiry(intent)
	}
	p, err := q.PaymentSettle(ctx, settle)
	if err != nil {
		return p, fmt.Errorf("cancel payment %s: %w", p.ID, err)
	}
	if err := outbox.Append(ctx, q, PaymentEvent("payment.canceled", p)); err != nil {
		return p, err
	}
	return p, idempotency.Expedite(ctx, q, p.TenantID, p.IdempotencyKey)
}

// orderPaidFirst answers when the money has moved: the customer paid first. The payment's own operation records
// that; where it has ended, the money is adopted here, so that the order is paid as the answer says. errPaysNothing: it
// cannot be, and nothing was written.
func (s cancels) orderPaidFirst(
	ctx context.Context, c *idempotency.Claim, intent stripe.Intent, liveStatus string,
) (idempotency.Answer, error) {
	if liveStatus == "" && intent.RefundedMinor == intent.ReceivedMinor {
		return idempotency.Answer{}, errPaysNothing
	}
	intent.TenantID, intent.OrderID, intent.Operation = c.TenantID, c.ResourceID, "" // whatever its metadata says by now
	found, err := s.Repairs().adoptionOf(ctx, intent)
	if err != nil {
		return idempotency.Answer{}, err
	}
	err = c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: c.ResourceID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", c.ResourceID, err)
		}
		if err := q.OrderCancelAbort(ctx, db.OrderCancelAbortParams{
			TenantID: c.TenantID, ID: c.ResourceID, CancelingKey: &c.Key,
		}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("keep order %s open: %w", c.ResourceID, err)
		}
		live, err := lockLive(ctx, q, c.TenantID, c.ResourceID)
		switch {
		case errors.Is(err, postgres.ErrNoRows):
			var adopted string
			if adopted, err = s.Repairs().adoptFinally(ctx, q, found, intent); err == nil && adopted == "" {
				return idempotency.Answer{}, errPaysNothing
			}
		case err != nil: // It is returned below.
		case live.Status == db.PaymentStatusAuthorized: // Others have captured it.
			_, err = endAuthorization(ctx, q, live, order, intent)
		case !pays(live, intent):
			return idempotency.Answer{}, errPaysNothing
		default:
			err = idempotency.Expedite(ctx, q, c.TenantID, live.IdempotencyKey)
		}
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("record that order %s is paid: %w", c.ResourceID, err)
		}
		return s.answers.Problem(ErrOrderNotCancelable, c.RequestID), nil
	})
	return c.Answer(), err
}

func (s cancels) beginPayment(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	id := idempotency.Decode[CancelRequest](r.Body).ID
	p, err := s.paymentOf(ctx, r.TenantID, id)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	switch p.Status {
	case db.PaymentStatusRequiresAction:
		claim, err := s.keys.Begin(ctx, r, id, cancelBegun, func(*db.Queries) error { return nil })
		return claim, idempotency.Answer{}, err
	case db.PaymentStatusAuthorized:
		claim, err := s.beginHolding(ctx, r, p, cancelBegun, nil, func(_ *db.Queries, p db.Payment) error {
			if p.Status != db.PaymentStatusAuthorized {
				return ErrPaymentNotCancelable
			}
			return nil
		})
		if errors.Is(err, ErrPaymentNotCancelable) {
			break
		}
		return claim, idempotency.Answer{}, err
	case db.PaymentStatusProcessing, db.PaymentStatusSucceeded, db.PaymentStatusFailed, db.PaymentStatusCanceled:
	}
	return s.refuse(ctx, r, id, ErrPaymentNotCancelable)
}

// runPayment cancels the intent, and with it the payment. One that was authorized after its cancel had begun is held
// first, so that no capture of it begins.
func (s cancels) runPayment(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: c.ResourceID})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", c.ResourceID, err)
	}
	switch held := p.CapturingKey != nil && *p.CapturingKey == c.Key; {
	case p.Status == db.PaymentStatusAuthorized && !held:
		err := c.Phase(ctx, cancelBegun, func(q *db.Queries) error { return HoldAuthorization(ctx, q, p, c.Key, nil) })
		if err != nil {
			return idempotency.Answer{}, behindCapture(ctx, c, err)
		}
	case p.Status != db.PaymentStatusRequiresAction && p.Status != db.PaymentStatusAuthorized:
		return s.finishPayment(ctx, c, p.OrderID, stripe.Intent{})
	}
	intent, out, err := s.CancelIntent(ctx, c, p)
	if err != nil {
		return idempotency.Answer{}, err
	}
	if intent.Status != stripe.IntentCanceled && intent.Status != stripe.IntentSucceeded {
		// Unknown, or Stripe allows no cancel in this state, such as processing. Either end is still possible.
		return s.paymentWaits(ctx, c, p, fmt.Errorf("cancel the intent: %w", out.Why()))
	}
	answer, err := s.finishPayment(ctx, c, p.OrderID, intent)
	if errors.Is(err, errCapturedOtherwise) {
		return s.paymentWaits(ctx, c, p, err)
	}
	return answer, err
}

func (s cancels) paymentWaits(
	ctx context.Context, c *idempotency.Claim, p db.Payment, why error,
) (idempotency.Answer, error) {
	pending := s.answers.Object(http.StatusAccepted, "/v1/payments/"+p.ID, s.shown(p))
	return pending, c.YieldOrPark(ctx, why)
}

// behindCapture gives the claim back if another capture or cancel works on the authorization, which answers as if this
// cancel had been refused at once, to be retried later. It returns err.
func behindCapture(ctx context.Context, c *idempotency.Claim, err error) error {
	if errors.Is(err, ErrCaptureInProgress) {
		if yielded := c.YieldOrPark(ctx, err); yielded != nil {
			return yielded
		}
	}
	return err
}

// finishPayment stores the answer. If the intent could not be canceled, the
// payment's own operation is about to find out why.
func (s cancels) finishPayment(
	ctx context.Context, c *idempotency.Claim, orderID string, intent stripe.Intent,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		p, order, err := LockAuthorized(ctx, q, c.TenantID, orderID, c.ResourceID)
		if err != nil {
			return idempotency.Answer{}, err
		}
		switch {
		case p.CapturingMinor != nil: // It was authorized meanwhile. The capture that began records how that ends.
			return idempotency.Answer{}, ErrCaptureInProgress
		case p.Status == db.PaymentStatusAuthorized:
			p, err = endAuthorization(ctx, q, p, order, intent)
		case intent.Status == stripe.IntentCanceled && p.Status == db.PaymentStatusRequiresAction:
			p, err = s.cancelWaiting(ctx, q, p, intent)
		default:
			err = idempotency.Expedite(ctx, q, p.TenantID, p.IdempotencyKey)
		}
		if err != nil {
			return idempotency.Answer{}, err
		}
		if p.Status == db.PaymentStatusCanceled {
			return s.answers.Object(http.StatusOK, "", PaymentOf(p)), nil
		}
		return s.answers.Problem(ErrPaymentNotCancelable, c.RequestID), nil
	})
	return c.Answer(), behindCapture(ctx, c, err)
}
