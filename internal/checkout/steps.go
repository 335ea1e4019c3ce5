package checkout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
)

const (
	reservationHold = 15 * time.Minute // Until the payment begins. Normally that is the next instant.
	standsWithin    = 2 * time.Second  // Short enough not to keep a client waiting, long enough for two reads.
)

func (s *Service) createOrderStep(ctx context.Context, c *idempotency.Claim, k *saga) error {
	order := payments.NewOrder(c.TenantID, payments.OrderRequest{
		Currency: k.request.Currency, Items: k.request.Items, CustomerReference: k.request.CustomerReference,
	})
	order.CheckoutID = &k.row.ID // So that only this checkout can pay it.
	err := c.Phase(ctx, orderCreated, func(q *db.Queries) error {
		if err := payments.InsertOrder(ctx, q, order); err != nil {
			return err
		}
		if err := q.CheckoutSetOrder(ctx, db.CheckoutSetOrderParams{
			TenantID: c.TenantID, ID: k.row.ID, OrderID: &order.ID,
		}); err != nil {
			return fmt.Errorf("note order %s: %w", order.ID, err)
		}
		return k.move(ctx, q, db.SagaStepCreateOrder, db.SagaStepStatusDone)
	})
	if err != nil {
		return err
	}
	k.row.OrderID = &order.ID
	return nil
}

// reserveStockStep reserves everything or nothing. A shortage rolls the reservation
// back and is recorded in another transaction.
func (s *Service) reserveStockStep(ctx context.Context, c *idempotency.Claim, k *saga) error {
	wanted := basketOf(k.request.Items)
	err := c.Phase(ctx, stockReserved, func(q *db.Queries) error {
		if err := wanted.reserve(ctx, q, c.TenantID, k.row.ID); err != nil {
			return err
		}
		return k.move(ctx, q, db.SagaStepReserveStock, db.SagaStepStatusDone)
	})
	var short *shortage
	if errors.As(err, &short) {
		return s.failStep(ctx, c, k, db.SagaStepReserveStock, k.dueUnreserved(), k.outOfStock(short.Error()))
	}
	return err
}

// Reasons why the payment may not begin.
var (
	errOrderClosed = errors.New("the order was canceled before it was paid")
	errCancelBegun = errors.New("the order is being canceled")
	errRanOut      = errors.New("the reservation ran out before the payment began")
	errCalledOff   = errors.New("the reservation ran out and was released")
)

// beginPayStep records the payment, its event and its first call. With manual capture nothing is reserved by then.
func (s *Service) beginPayStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	err := c.Phase(ctx, payments.PaymentRecorded, func(q *db.Queries) error {
		if err := k.calledOff(ctx, q); err != nil {
			return err
		}
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: *k.row.OrderID})
		switch {
		case err != nil:
			return fmt.Errorf("lock order %s: %w", *k.row.OrderID, err)
		case order.Status != db.OrderStatusOpen:
			return errOrderClosed
		case order.CancelingKey != nil:
			return errCancelBegun
		}
		if !k.request.ManualCapture {
			if err := k.pin(ctx, q); err != nil {
				return err
			}
		}
		k.run = k.newRun(s, order)
		if err := k.recordPayment(ctx, q); err != nil {
			return err
		}
		return k.move(ctx, q, k.pays(), db.SagaStepStatusRunning)
	})
	switch {
	case err == nil:
		k.row.PaymentID = &k.run.Payment.ID
	case errors.Is(err, errOrderClosed):
		err = s.refusePayment(ctx, c, k)
	case errors.Is(err, errCancelBegun):
		return s.wait(ctx, c, k, idempotency.NextTry(c), err)
	case errors.Is(err, errRanOut):
		return s.ranOut(ctx, c, k, db.SagaStepPay)
	case errors.Is(err, errCalledOff): // The reason is recorded already.
		err = c.Phase(ctx, cancelDue, func(*db.Queries) error { return nil })
	}
	return idempotency.Answer{}, err
}

// newRun is the run of the checkout's payment: a new intent, because the order has none.
func (k *saga) newRun(s *Service, order db.Order) *payments.Run {
	target := db.OrderToPayRow{Order: order, IntentClosed: true}
	asked := payments.PayRequest{PaymentMethod: k.request.PaymentMethod, ManualCapture: k.request.ManualCapture}
	return payments.NewRun(k.row.TenantID, k.row.IdempotencyKey, asked, target, payStep{s, k})
}

// calledOff reports whether ExpireReservations called the checkout off while no process
// held the claim. Once this phase holds it, that cannot happen any more.
func (k *saga) calledOff(ctx context.Context, q *db.Queries) error {
	row, steps, err := read(ctx, q, k.row.TenantID, k.row.ID)
	if err != nil {
		return err // The client is shown what was last known of the checkout.
	}
	k.row, k.steps = row, steps
	if k.step(k.takes()).Status == db.SagaStepStatusFailed {
		return errCalledOff
	}
	return nil
}

// pin keeps the reservations from expiring while the payment takes its time.
func (k *saga) pin(ctx context.Context, q *db.Queries) error {
	pinned, err := q.ReservationsPin(ctx, db.ReservationsPinParams{TenantID: k.row.TenantID, CheckoutID: k.row.ID})
	if err != nil {
		return fmt.Errorf("keep the reservations of checkout %s: %w", k.row.ID, err)
	}
	if int(pinned) < len(basketOf(k.request.Items).skus) {
		return errRanOut
	}
	return nil
}

// notifyStep announces the checkout as completed, so it checks that this is true: the
// order is paid by this payment, and the stock is still reserved. Then the stock is
// consumed, the saga completed and checkout.completed appended to the outbox, in one
// commit. From there the event is delivered at least once, to the broker and to the
// tenant's webhook, for as long as that takes; a receiver that does not answer is no
// reason for a refund.
//
// With our own code the check cannot fail. With an operator at a SQL prompt it can, or
// with others who capture a part of an authorization at Stripe, and then the payment is
// refunded.
func (s *Service) notifyStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: *k.row.OrderID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", *k.row.OrderID, err)
		}
		if order.PaymentID == nil || *order.PaymentID != *k.row.PaymentID {
			return idempotency.Answer{}, errNotPaid
		}
		if order.CapturedMinor != nil && *order.CapturedMinor != order.AmountMinor {
			return idempotency.Answer{}, errPaidInPart
		}
		if err := basketOf(k.request.Items).end(ctx, q, c.TenantID, k.row.ID,
			db.ReservationStatusConsumed); err != nil {
			return idempotency.Answer{}, err
		}
		if err := k.move(ctx, q, db.SagaStepNotify, db.SagaStepStatusDone); err != nil {
			return idempotency.Answer{}, err
		}
		if err := q.CheckoutStepsSkip(ctx, db.CheckoutStepsSkipParams{
			TenantID: c.TenantID, CheckoutID: k.row.ID, Completed: true,
		}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("skip the compensations of checkout %s: %w", k.row.ID, err)
		}
		shown, err := k.end(ctx, q, db.CheckoutStatusCompleted)
		return s.answers.Object(http.StatusCreated, "/v1/checkouts/"+k.row.ID, shown), err
	})
	switch {
	case errors.Is(err, errNotPaid):
		return idempotency.Answer{}, s.failStep(ctx, c, k, db.SagaStepNotify, refundDue, stripe.Failure{
			Code: "order_canceled", Message: "The order was canceled while it was being paid. The money goes back.",
		})
	case errors.Is(err, errPaidInPart):
		return idempotency.Answer{}, s.failStep(ctx, c, k, db.SagaStepNotify, refundDue, stripe.Failure{
			Code: "amount_changed", Message: "Another amount was captured at Stripe. The money goes back.",
		})
	case errors.Is(err, errNotHeld):
		return idempotency.Answer{}, s.failStep(ctx, c, k, db.SagaStepNotify, refundDue, stripe.Failure{
			Code:    "reservation_lost",
			Message: "The stock was given away while the order was being paid. The money goes back.",
		})
	case err != nil:
		return idempotency.Answer{}, err
	}
	s.o.Metrics.ended(db.CheckoutStatusCompleted)
	c.Log().Info("checkout completed", "payment_id", *k.row.PaymentID)
	return c.Answer(), nil
}

var (
	errNotPaid    = errors.New("the order is not paid by the checkout's payment")
	errPaidInPart = errors.New("the order is paid with less than its amount")
)
