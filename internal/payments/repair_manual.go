package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// What an operator asks for is done in the same way as everything else: the completer resumes, the
// reconciler's comparison adopts, and a refund is a row with a key of its own before anything is
// sent. Nothing here sets a status. Each function that changes something joins the caller's
// transaction, which also records who asked and why; Stripe is asked before that.

// IntentView is a PaymentIntent as Stripe shows it, compared with our rows of its order.
type IntentView struct {
	Intent stripe.Intent
	// Ours: its metadata names a tenant of this installation.
	Ours bool
	// Adoptable: money that is provably ours and has no row.
	Adoptable bool
	// Agrees: Stripe and our rows of its order show no difference.
	Agrees bool
	// Unregistered: made by an operation that this service does not know.
	Unregistered bool
	// Left is how much an operator may refund although it belongs to no payment here;
	// if 0, WhyNot says why.
	Left   int64
	WhyNot string
	// Refunds are the earlier refunds of that kind.
	Refunds []db.OrphanRefundsRow
	// Detail is the result of the comparison, for an operator.
	Detail string

	adopt adoption
}

// RefundByOperator is a refund that an operator asked for, not the tenant.
const RefundByOperator = "operator_refund"

// byOperator are the operations that only an operator begins.
func (s Repairs) byOperator() map[string]idempotency.Operation {
	return map[string]idempotency.Operation{
		RefundByOperator:     {Run: s.runRefund},
		RefundOrphanedIntent: {Run: s.runOrphanRefund},
	}
}

// NotTerminalError says why a payment or refund cannot be marked as failed: its money may still move.
type NotTerminalError struct{ Why string }

func (e *NotTerminalError) Error() string { return e.Why }

// CompareIntent reads an intent from Stripe and compares it with our rows.
// stripe.ErrNoSuchObject: the account has none with that id.
func (s Repairs) CompareIntent(ctx context.Context, intentID string) (IntentView, error) {
	intent, err := s.gateway.GetIntent(ctx, stripe.NoTenant, intentID)
	if err == nil {
		intent, err = LocateIntent(ctx, s.pool.Queries, intent)
	}
	if err == nil {
		intent, err = s.WithLost(ctx, intent)
	}
	if err != nil {
		return IntentView{}, err
	}
	view := IntentView{Intent: intent, Detail: "its metadata names no tenant of ours"}
	if view.Ours, err = s.pool.TenantServedHere(ctx, intent.TenantID); !view.Ours {
		return view, err
	}
	r := compare.OrderRef{TenantID: intent.TenantID, OrderID: intent.OrderID}
	found, err := s.OrderRows(ctx, s.pool.Queries, []compare.OrderRef{r})
	if err != nil {
		return view, err
	}
	d := compare.Intent(intent, found[r])
	switch d.Result {
	case compare.Agrees:
		view.Detail, view.Agrees = "Stripe and our rows agree", true
	case compare.InProgress:
		view.Detail = "paid at Stripe; an operation here works on it and will find out"
	case compare.Adoptable:
		view.Adoptable = true
		view.Detail = "paid at Stripe; the order is here, has exactly this amount, and no payment of it succeeded"
		view.adopt, err = s.adoptionOf(ctx, intent)
	case compare.Unregistered:
		view.Unregistered = true
		view.Detail = "made by the operation " + intent.Operation + ", which this service does not know"
	case compare.StatusChanged, compare.Abandoned, compare.Unaccounted, compare.Differs:
		view.Detail = d.Discrepancy.Detail
	}
	if err != nil {
		return view, err
	}
	var no *compare.NotRefundableError
	if view.Left, err = compare.RefundableAmount(intent, found[r]); errors.As(err, &no) {
		view.WhyNot = no.Why
	}
	view.Refunds, err = s.pool.OrphanRefunds(ctx, db.OrphanRefundsParams{
		TenantID: intent.TenantID, Keys: orphanRefundKeys(intent.ID),
	})
	return view, err
}

// Adopt creates the rows of a payment whose money has moved, as the reconciler does,
// after judging it again with the order locked. It returns the payment's id; empty: it
// is not, or no longer, to be adopted. It joins q's transaction.
func (s Repairs) Adopt(ctx context.Context, q *db.Queries, view IntentView) (string, error) {
	if !view.Adoptable {
		return "", nil
	}
	return s.adoptFinally(ctx, q, view.adopt, view.Intent)
}

// RefundFor records a refund that an operator asked for (amount nil: all that is left)
// and has the completer make it. Its key is derived from the action, so an action has
// one refund. It joins q's transaction.
func (s Repairs) RefundFor(
	ctx context.Context, q *db.Queries, tenantID, id, action string, amount *int64,
) (Refund, error) {
	p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: id})
	if err != nil {
		return Refund{}, notFound(err, "lock payment %s", id)
	}
	minor, err := refundable(ctx, q, p, amount)
	if err == nil && s.o.Disputes != nil {
		err = s.o.Disputes.AllowsRefund(ctx, q, p)
	}
	if err != nil {
		return Refund{}, err
	}
	key := RefundByOperator + " " + action
	row := newRefund(p, db.RefundOriginApi, key, tenantID+":"+key+":refund", minor)
	if err := s.recordRefund(ctx, q, row); err != nil {
		return Refund{}, err
	}
	return refundOf(row), s.keys.Enqueue(ctx, q, idempotency.Request{
		TenantID: tenantID, Key: key, Operation: RefundByOperator,
	}, row.ID, refundRecorded)
}

// SettleOwed records that an operator has settled in another way what is owed of a payment, and returns how much that
// is. It joins q's transaction, which also records who and why. A *NotOwedError says why not.
func (s Repairs) SettleOwed(ctx context.Context, q *db.Queries, tenantID, paymentID string) (int64, error) {
	p, owed, err := s.lockOwed(ctx, q, tenantID, paymentID)
	if err != nil {
		return 0, err
	}
	n, err := q.RefundOwedSettle(ctx, db.RefundOwedSettleParams{TenantID: tenantID, PaymentID: paymentID})
	if err == nil && n == 0 {
		err = &NotOwedError{"a refund of the payment is under way: it may still return the money"}
	}
	if err != nil {
		return 0, fmt.Errorf("settle what is owed of payment %s: %w", paymentID, err)
	}
	return compare.PaidMinor(p) - p.AmountRefundedMinor - owed.SettledMinor, nil
}

// RefundFailed returns the refund if it has failed or was canceled at Stripe; its own operation
// then ends it, as it would have at its next poll. A refund that Stripe does not list has not
// failed: it may still appear, and the operation gives up by itself once it cannot any more.
func (s Repairs) RefundFailed(ctx context.Context, tenantID, id string) (db.Refund, error) {
	row, err := s.pool.RefundGet(ctx, db.RefundGetParams{TenantID: tenantID, ID: id})
	switch {
	case err != nil:
		return row, notFound(err, "read refund %s", id)
	case row.Status != db.RefundStatusPending:
		return row, &NotTerminalError{"the refund is " + string(row.Status) + " already"}
	}
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: row.PaymentID})
	if err != nil {
		return row, fmt.Errorf("read payment %s: %w", row.PaymentID, err)
	}
	seen, found, err := s.findRefund(ctx, &refunding{refund: row, intentID: postgres.Deref(p.IntentID)})
	switch {
	case err != nil:
		return row, &NotTerminalError{"Stripe did not say what became of it: " + postgres.ErrorText(err)}
	case !found:
		return row, &NotTerminalError{fmt.Sprintf("Stripe does not list it, which proves nothing yet: it may still appear. "+
			"It fails automatically %d hours after it was first sent", int(refundLostAfter.Hours()))}
	case seen.Status == db.RefundStatusSucceeded:
		return row, &NotTerminalError{"at Stripe " + seen.ID + " succeeded: the money was refunded, and this refund " +
			"will succeed; retry it now"}
	case seen.Status == db.RefundStatusPending:
		return row, &NotTerminalError{"Stripe has " + seen.ID + " and has not decided yet"}
	}
	return row, nil
}

// ConfirmFailed returns the payment if its money can never move any more. That is so when its intent is
// canceled at Stripe, and only then: an intent that waits for a card, a confirm or the customer may still
// be paid by a call that is in flight. Otherwise a *NotTerminalError says why not.
func (s Repairs) ConfirmFailed(ctx context.Context, tenantID, id string) (db.Payment, error) {
	if !ids.Is(ids.Payment, id) {
		return db.Payment{}, ErrNotFound
	}
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: id})
	switch {
	case err != nil:
		return p, notFound(err, "read payment %s", id)
	case p.Status != db.PaymentStatusProcessing && p.Status != db.PaymentStatusRequiresAction:
		return p, &NotTerminalError{"the payment is " + string(p.Status) + " already, and that is final"}
	case p.IntentID == nil:
		return p, &NotTerminalError{
			"it has no PaymentIntent here, so it cannot be looked up at Stripe; retry it now",
		}
	}
	intent, err := s.gateway.GetIntent(ctx, stripe.NoTenant, *p.IntentID)
	switch {
	case errors.Is(err, stripe.ErrNoSuchObject):
		return p, &NotTerminalError{
			"Stripe has no " + *p.IntentID + ": is STRIPE_SECRET_KEY of the right account and mode?",
		}
	case err != nil:
		return p, &NotTerminalError{"Stripe did not say what became of " + *p.IntentID + ": " + postgres.ErrorText(err)}
	case intent.Status == stripe.IntentSucceeded:
		return p, &NotTerminalError{"at Stripe " + intent.ID + " succeeded: the money was taken, and this payment " +
			"will succeed; retry it now"}
	case intent.Status != stripe.IntentCanceled:
		return p, &NotTerminalError{"at Stripe " + intent.ID + " is " + string(intent.Status) + ": its money may " +
			"still move. " +
			"Cancel the PaymentIntent in Stripe's dashboard first"}
	}
	return p, nil
}

// OrderOfCharge is the order of a charge of a registered operation, by the id of its
// row. ErrNotFound: no operation has such a charge.
func (s *Service) OrderOfCharge(ctx context.Context, tenantID, id string) (string, error) {
	for name, operation := range s.o.Registered {
		charge, err := operation.Charge(ctx, s.pool.Queries, tenantID, id)
		if err == nil {
			return charge.OrderID, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("read %s of %s: %w", id, name, err)
		}
	}
	return "", ErrNotFound
}
