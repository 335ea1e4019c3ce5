package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// adoptedKeyPrefix begins the keys of what was adopted. A caller's key has no space in it.
const adoptedKeyPrefix = "adopted "

// AdoptPayment creates the rows for money that is provably ours: the intent names the
// tenant and an order of that tenant that has exactly this amount and is not paid. It
// returns the payment's id; empty: it is not to be adopted any more. The disputes of the intent are recorded with it.
func (s Repairs) AdoptPayment(ctx context.Context, i stripe.Intent) (string, error) {
	adopted, err := s.adopt(ctx, i)
	if err != nil || adopted == "" || !i.Disputed || s.o.Disputes == nil {
		return adopted, err
	}
	return adopted, s.o.Disputes.ReadOf(ctx, compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}, i.ID)
}

func (s Repairs) adopt(ctx context.Context, i stripe.Intent) (string, error) {
	if elsewhere, err := s.usedElsewhere(ctx, i); err != nil || elsewhere {
		return "", err
	}
	a, err := s.adoptionOf(ctx, i)
	if err != nil {
		return "", err
	}
	var adopted string
	err = s.pool.InTx(ctx, func(q *db.Queries) (err error) {
		adopted, err = s.adoptFinally(ctx, q, a, i)
		return err
	})
	return adopted, err
}

// usedElsewhere reports whether a payment of another order uses the intent. Anybody with access to the Stripe account
// can edit metadata, and one charge must not pay two orders.
func (s Repairs) usedElsewhere(ctx context.Context, i stripe.Intent) (bool, error) {
	p, err := paymentElsewhere(ctx, s.pool.Queries, i)
	if p == nil {
		return false, err
	}
	s.o.Log.Error("the metadata of an intent names another order than its payment's; it does not pay that order",
		"payment_intent", i.ID, "tenant_id", p.TenantID, "payment_id", p.ID, "names_tenant", i.TenantID,
		"names_order", i.OrderID)
	return true, nil
}

// adoption is what is read before an intent is adopted.
type adoption struct {
	id      string          // of the payment; empty: the intent is not to be adopted
	refunds []stripe.Refund // of the intent
}

func (s Repairs) adoptionOf(ctx context.Context, i stripe.Intent) (adoption, error) {
	if i.RefundedMinor == 0 {
		return adoption{id: ids.At(ids.Payment, i.CreatedAt)}, nil
	}
	refunds, err := s.gateway.RefundsOf(ctx, stripe.NoTenant, i.ID)
	if err != nil {
		return adoption{}, err
	}
	return adoptionWith(i, refunds), nil
}

// adoptionWith has the id that the payment once had, if a refund at Stripe still names it, otherwise a new one, of the
// time at which the intent was created. No payment is much older than its intent, but for one whose intent is not its
// order's first, and none is younger than its refund; anybody can write a refund's metadata.
func adoptionWith(i stripe.Intent, refunds []stripe.Refund) adoption {
	a := adoption{id: ids.At(ids.Payment, i.CreatedAt), refunds: refunds}
	for _, r := range refunds {
		if r.TenantID == i.TenantID && r.OrderID == i.OrderID && ids.Is(ids.Payment, r.PaymentID) &&
			r.PaymentID >= oldestOf(i) && r.PaymentID < ids.Payment+ids.Floor(r.CreatedAt.Add(clocksApart)) {
			a.id = r.PaymentID
			break
		}
	}
	return a
}

// adoptAs compares the intent again with its order locked, and creates the rows, also of its refunds, in q's
// transaction.
func (s Repairs) adoptAs(ctx context.Context, q *db.Queries, a adoption, i stripe.Intent) (string, error) {
	if served, err := q.TenantServedHere(ctx, i.TenantID); !served {
		return "", err
	}
	ref, id := compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}, a.id
	v, err := s.lockedOrder(ctx, q, ref)
	if err != nil || compare.Intent(i, v).Result != compare.Adoptable {
		return "", err
	}
	// part: operator {
	if refunding, err := orphanRefundInProgress(ctx, q, i); err != nil || refunding {
		return "", err
	}
	// part: operator }
	switch _, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: i.TenantID, ID: id}); {
	case err == nil:
		id = ids.At(ids.Payment, i.CreatedAt) // A refund names a payment that has its row, one that failed or another order's.
	case !errors.Is(err, postgres.ErrNoRows):
		return "", fmt.Errorf("look for payment %s: %w", id, err)
	}
	p := db.Payment{
		TenantID: i.TenantID, ID: id, Version: 1, Status: db.PaymentStatusProcessing, OrderID: i.OrderID,
		IdempotencyKey: adoptedKeyPrefix + i.ID, AmountMinor: i.AmountMinor, Currency: i.Currency,
		ManualCapture: i.ManualCapture,
		PaymentMethod: i.PaymentMethod, IntentNumber: v.NextNumber(i.ID), IntentID: &i.ID, CreatedAt: ids.Time(id),
	}
	if err := s.recordAdopted(ctx, q, p, i, *v.Row); err != nil {
		return "", err
	}
	if err := s.applyRefunds(ctx, q, ref, a.refunds); err != nil {
		return "", err
	}
	if v.Row.Status == db.OrderStatusOpen {
		return id, nil
	}
	// The order was canceled meanwhile. What others have not given back is given back.
	if p, err = q.PaymentLock(ctx, db.PaymentLockParams{TenantID: p.TenantID, ID: id}); err != nil {
		return "", fmt.Errorf("lock payment %s: %w", id, err)
	}
	return id, s.RefundRest(ctx, q, p)
}

// adoptFinally is adoptAs, and resolves what was found about the intent before. It joins q's transaction.
func (s Repairs) adoptFinally(ctx context.Context, q *db.Queries, a adoption, i stripe.Intent) (string, error) {
	adopted, err := s.adoptAs(ctx, q, a, i)
	if err != nil || adopted == "" {
		return "", err
	}
	_, err = q.DiscrepanciesResolve(ctx, db.DiscrepanciesResolveParams{
		TenantID: i.TenantID, ObjectID: i.ID, Resolution: "adopted as " + adopted,
	})
	if err != nil {
		return "", fmt.Errorf("resolve the discrepancies of %s: %w", i.ID, err)
	}
	return adopted, nil
}

// AdoptDisputed adopts a disputed intent that no payment has, as the reconciler would later, so that the dispute can be
// recorded. Not pending: no payment will have it, because Stripe and our rows of its order differ. That is a
// discrepancy, and what a lost dispute takes of the intent reduces it (WithLost).
func (s Repairs) AdoptDisputed(ctx context.Context, i stripe.Intent) (pending bool, err error) {
	ref := compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}
	found, err := s.OrderRows(ctx, s.pool.Queries, []compare.OrderRef{ref})
	if err != nil {
		return true, err
	}
	switch d := compare.Intent(i, found[ref]); d.Result {
	case compare.Adoptable:
		_, err = s.adopt(ctx, i)
		return true, err
	case compare.Differs:
		return d.Key != "", nil // The payment, cancel or checkout of a parked key may still need it.
	case compare.StatusChanged: // It was captured by others, and the dispute is the first that is heard of that.
		return true, s.AuthorizationEnded(ctx, i)
	case compare.Agrees, compare.InProgress, compare.Abandoned, compare.Unaccounted, compare.Unregistered:
	}
	return true, nil
}

// WithLost adds to an intent what lost disputes have taken of it. Only an intent without a payment needs that: the
// disputes of a payment have rows.
func (s *Service) WithLost(ctx context.Context, i stripe.Intent) (stripe.Intent, error) {
	if !i.Disputed || i.Status != stripe.IntentSucceeded || s.o.Disputes == nil {
		return i, nil
	}
	lost, err := s.o.Disputes.LostOf(ctx, i.ID)
	if err != nil {
		return i, fmt.Errorf("read the disputes of %s: %w", i.ID, err)
	}
	i.LostMinor = min(lost, i.ReceivedMinor-i.RefundedMinor)
	return i, nil
}

// IntentEnded records that an intent was canceled or paid at Stripe: no payment begins on it any more, and it
// need not be read again.
func (s Repairs) IntentEnded(ctx context.Context, order compare.OrderRef, intentID string) error {
	return intentEnded(ctx, s.pool.Queries, order, intentID)
}

func intentEnded(ctx context.Context, q *db.Queries, order compare.OrderRef, intentID string) error {
	_, err := q.PaymentIntentEnded(ctx, db.PaymentIntentEndedParams{
		TenantID: order.TenantID, OrderID: order.OrderID, IntentID: &intentID,
	})
	if err != nil {
		return fmt.Errorf("close the intent %s: %w", intentID, err)
	}
	return nil
}

// recordAdopted also appends the events of the payment from its beginning, so that
// consumers see nothing unusual.
func (s Repairs) recordAdopted(
	ctx context.Context, q *db.Queries, p db.Payment, i stripe.Intent, order db.Order,
) error {
	if _, err := insertPayment(ctx, q, p); err != nil {
		return err
	}
	events := []outbox.Event{PaymentEvent("payment.created", p)}
	settle := db.PaymentSettleParams{
		TenantID: p.TenantID, ID: p.ID, SeenVersion: p.Version, Status: db.PaymentStatusSucceeded,
		ChargeID: postgres.Nullable(i.ChargeID),
	}
	switch {
	case i.Status == stripe.IntentRequiresCapture:
		settle.Status, settle.CaptureBefore = db.PaymentStatusAuthorized, new(captureBeforeOf(i))
	case i.ManualCapture:
		settle.CapturedMinor = &i.ReceivedMinor
	}
	p, err := q.PaymentSettle(ctx, settle)
	if err != nil {
		return fmt.Errorf("settle payment %s: %w", p.ID, err)
	}
	if p.Status == db.PaymentStatusAuthorized {
		if err := outbox.Append(ctx, q, events...); err != nil {
			return err
		}
		return Advanced(ctx, q, p, order)
	}
	events = append(events, PaymentEvent("payment.succeeded", p))
	if err := intentEnded(ctx, q, compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}, i.ID); err != nil {
		return err
	}
	if order.Status == db.OrderStatusOpen {
		if order, err = q.OrderPay(ctx, db.OrderPayParams{
			TenantID: order.TenantID, ID: order.ID, PaymentID: &p.ID, CapturedMinor: p.CapturedMinor,
		}); err != nil {
			return fmt.Errorf("pay order %s: %w", order.ID, err)
		}
		return outbox.Append(ctx, q, append(events, OrderEvent("order.paid", order))...)
	}
	return outbox.Append(ctx, q, events...)
}

// MovedByOthers records the refunds and disputes of an intent that an order was paid with, if it shows some that our
// rows have not. Their webhooks and lists name the order of the intent's metadata, which may have been edited.
func (s Repairs) MovedByOthers(ctx context.Context, i stripe.Intent) error {
	ref := compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}
	p, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: ref.TenantID, OrderID: ref.OrderID, IntentID: &i.ID,
	})
	if errors.Is(err, postgres.ErrNoRows) || err == nil && p.Status != db.PaymentStatusSucceeded {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the payment of %s: %w", i.ID, err)
	}
	if i.RefundedMinor != p.AmountRefundedMinor {
		list, err := s.gateway.RefundsOf(ctx, stripe.NoTenant, i.ID)
		if err != nil {
			return err
		}
		err = s.pool.InTx(ctx, func(q *db.Queries) error { return s.applyRefunds(ctx, q, ref, list) })
		if err != nil {
			return err
		}
	}
	if !i.Disputed || s.o.Disputes == nil {
		return nil
	}
	return s.o.Disputes.ReadOf(ctx, ref, i.ID)
}

// AdoptRefund creates the rows for a refund that Stripe has and we had not, and reports whether there is one now. All
// refunds of the intent are read again and applied with it: one of ours may have failed and left room for this one.
func (s Repairs) AdoptRefund(ctx context.Context, r stripe.Refund) (adopted bool, err error) {
	list, err := s.gateway.RefundsOf(ctx, stripe.NoTenant, r.IntentID)
	if err != nil {
		return false, err
	}
	ref := compare.OrderRef{TenantID: r.TenantID, OrderID: r.OrderID}
	err = s.pool.InTx(ctx, func(q *db.Queries) error {
		if err := s.applyRefunds(ctx, q, ref, list); err != nil {
			return err
		}
		adopted, err = q.RefundExistsForStripe(ctx, db.RefundExistsForStripeParams{
			TenantID: r.TenantID, StripeRefundID: &r.ID,
		})
		return err
	})
	return adopted, err
}
