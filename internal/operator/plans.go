package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/notifier" // part: webhooks
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// Values of target.Of for "unpark": the table that holds the parked event.
const (
	ofOutbox     = "outbox"
	ofDeliveries = "deliveries"
	ofInbox      = "inbox:" // followed by the consumer
)

// refusal says why an action is not possible. It is a result, not a failure: it is
// shown to the operator and recorded in the audit trail.
type refusal string

func (r refusal) Error() string { return string(r) }

// plan is an action whose preconditions hold: what it will do, in words, and the
// effect, which joins the transaction of the audit trail's row.
type plan struct {
	Effect string
	Limits string               // what the action does not do
	Refund *db.Payment          // of a refund: the payment
	Orphan *payments.IntentView // of a refund at Stripe: the charge that matches no payment
	item   *workItem
	effect func(ctx context.Context, q *db.Queries) (result string, err error)
}

// plan checks the preconditions of an action at Stripe and in this database. It runs
// twice, for the form and again when the form is submitted, because the operator may
// leave the form open for an hour.
func (s *Server) plan(ctx context.Context, t target, action string, amount *int64) (plan, error) {
	ctx, cancel := context.WithTimeout(ctx, stripeWithin)
	defer cancel()
	if t.Tenant != "" {
		served, err := s.o.Pool.TenantServedHere(ctx, t.Tenant)
		if err != nil {
			return plan{}, err
		}
		if !served {
			return plan{}, refusal("the tenant was moved to another cell: act there")
		}
	}
	switch t.Kind {
	case db.OperatorActionKindTryNow:
		if t.Of == ofOwed {
			return s.planRetryOwed(ctx, t)
		}
		return s.planRetryNow(ctx, t)
	case db.OperatorActionKindSettleOutside:
		return s.planSettleOutside(ctx, t)
	case db.OperatorActionKindMarkFailed:
		if strings.HasPrefix(t.ID, "rfd_") {
			return s.planRefundFailed(ctx, t)
		}
		return s.planPaymentFailed(ctx, t)
	case db.OperatorActionKindRefund:
		if strings.HasPrefix(t.ID, "pi_") {
			return s.planOrphanRefund(ctx, t, amount)
		}
		return s.planRefund(ctx, t, action, amount)
	case db.OperatorActionKindAdopt:
		return s.planAdopt(ctx, t)
	case db.OperatorActionKindUnpark:
		return s.planUnpark(t)
	}
	return plan{}, payments.ErrNotFound
}

const errInProgress = refusal("a process is working on it right now, or it has just finished")

// planRetryNow has no precondition at Stripe, because the request's own operation reads
// the state there before it sends anything.
func (s *Server) planRetryNow(ctx context.Context, t target) (plan, error) {
	item, err := s.unfinished(ctx, t)
	if err != nil {
		return plan{}, err
	}
	return plan{
		item:   &item,
		Effect: "A completer claims the request within a second, parked or not, and reads the state at Stripe first.",
		Limits: "A call that may have taken effect at Stripe is not sent again.",
		effect: retryNow(t.Tenant, item.Key, "it is due now and no longer parked; a completer will claim it"),
	}, nil
}

// retryNow makes a key due and leaves the rest to its operation.
func retryNow(tenant, key, result string) func(context.Context, *db.Queries) (string, error) {
	return func(ctx context.Context, q *db.Queries) (string, error) {
		due, err := idempotency.RetryNow(ctx, q, tenant, key)
		if err == nil && !due {
			err = errInProgress
		}
		return result, err
	}
}

// unfinished returns the unfinished request whose key has the hash in the form. The key
// itself is in no form.
func (s *Server) unfinished(ctx context.Context, t target) (workItem, error) {
	now, err := s.o.Pool.OutboxNow(ctx)
	if err != nil {
		return workItem{}, err
	}
	rows, err := s.o.Pool.OperatorWork(ctx, db.OperatorWorkParams{
		ScanMax: scanMax, LimitRows: workMax, TenantID: t.Tenant, ResourceID: t.ID, Keys: []string{},
	})
	if err != nil {
		return workItem{}, err
	}
	for _, item := range workItems(rows, now) {
		if item.KeyHash() == t.Of {
			return item, nil
		}
	}
	return workItem{}, refusal("it has finished: there is nothing to retry")
}

// planPaymentFailed reads the state at Stripe every time: what a page showed a minute
// ago is no reason to write off money.
func (s *Server) planPaymentFailed(ctx context.Context, t target) (plan, error) {
	p, err := s.o.Payments.Repairs().ConfirmFailed(ctx, t.Tenant, t.ID)
	if err != nil {
		return plan{}, refusalIfOpen(err)
	}
	canceled := "at Stripe " + *p.IntentID + " is canceled"
	return plan{
		Effect: "Confirmed: " + canceled + ", so no money can move any more. The payment's own operation " +
			"checks this once more, ends the payment as failed and stores the response; the order can be paid again.",
		Limits: "No money is refunded, because none was charged.",
		// No status is set here: the operation reads the state at Stripe itself.
		effect: retryNow(t.Tenant, p.IdempotencyKey, canceled+"; the payment's own operation ends it now"),
	}, nil
}

// planRefundFailed is the same for a refund.
func (s *Server) planRefundFailed(ctx context.Context, t target) (plan, error) {
	row, err := s.o.Payments.Repairs().RefundFailed(ctx, t.Tenant, t.ID)
	if err != nil {
		return plan{}, refusalIfOpen(err)
	}
	return plan{
		Effect: "Confirmed: the refund failed at Stripe. The refund's own operation checks this once more " +
			"and ends it as failed; the amount can be refunded again.",
		Limits: "No money moves.",
		effect: retryNow(t.Tenant, row.IdempotencyKey, "it failed at Stripe; the refund's own operation ends it now"),
	}, nil
}

// refusalIfOpen is a refusal if the payment or refund may still succeed at Stripe.
func refusalIfOpen(err error) error {
	var open *payments.NotTerminalError
	if errors.As(err, &open) {
		return refusal(open.Why)
	}
	return err
}

// planRefund only shows what is refundable. The limit is enforced when the refund is
// recorded, with the payment locked, because another refund may come first.
func (s *Server) planRefund(ctx context.Context, t target, action string, amount *int64) (plan, error) {
	row, err := s.o.Pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: t.Tenant, ID: t.ID})
	if err != nil {
		return plan{}, err
	}
	refundable := paymentView{Payment: row}.Refundable()
	if refundable == 0 {
		return plan{}, refusal(payments.ErrPaymentNotRefundable.Error())
	}
	// part: disputes {
	if err := s.refuseIfDisputed(ctx, row); err != nil {
		return plan{}, err
	}
	// part: disputes }
	return plan{
		Effect: "A refund is recorded, and a completer makes it at Stripe. The tenant gets the same events as for " +
			"any other refund.",
		Limits: "At most " + money.Format(refundable, row.Currency) + " can be refunded, and this form makes one " +
			"refund only. A refund cannot be undone.",
		Refund: &row,
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			r, err := s.o.Payments.Repairs().RefundFor(ctx, q, t.Tenant, t.ID, action, amount)
			if errors.Is(err, payments.ErrPaymentNotRefundable) || errors.Is(err, payments.ErrRefundExceedsPayment) ||
				errors.Is(err, payments.ErrPaymentDisputed) {
				err = refusal(err.Error())
			}
			return fmt.Sprintf("refund %s of %s is recorded; a completer makes it at Stripe",
				r.ID, money.Format(r.Amount, r.Currency)), err
		},
	}, nil
}

// readIntent reads a PaymentIntent from Stripe. If that fails the action is refused:
// without the present state at Stripe nothing is done about a charge.
func (s *Server) readIntent(ctx context.Context, intent string) (payments.IntentView, error) {
	view, err := s.o.Payments.Repairs().CompareIntent(ctx, intent)
	switch {
	case errors.Is(err, stripe.ErrNoSuchObject):
		err = refusal("Stripe has no PaymentIntent " + intent)
	case err != nil:
		err = refusal("Stripe could not be reached: " + postgres.ErrorText(err))
	}
	return view, err
}

// planOrphanRefund refunds a charge that matches no payment. The amount comes from
// Stripe; whether the charge still matches nothing is checked with the order locked.
func (s *Server) planOrphanRefund(ctx context.Context, t target, amount *int64) (plan, error) {
	view, err := s.readIntent(ctx, t.ID)
	if err != nil {
		return plan{}, err
	}
	left := money.Format(view.Left, view.Intent.Currency)
	switch {
	// Several applications may share one Stripe account.
	case !view.Ours, view.Intent.TenantID != t.Tenant:
		return plan{}, refusal("its metadata names no tenant of this database: it belongs to another application")
	case view.Left == 0:
		return plan{}, refusal(view.WhyNot)
	// A second partial refund could not be told from the first by its key.
	case amount != nil && *amount != view.Left:
		return plan{}, refusal("only the whole amount can be refunded, " + left)
	}
	return plan{
		Orphan: &view,
		Effect: "The whole remaining amount, " + left + ", is refunded to the card. A completer makes the refund at " +
			"Stripe under a key derived from the PaymentIntent, and follows it until it is final.",
		Limits: "No order, payment or event of the tenant changes, because this charge belongs to none. " +
			"It cannot be refunded twice. A refund cannot be undone.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			id, minor, err := s.o.Payments.Repairs().RefundOrphan(ctx, q, view)
			var no *compare.NotRefundableError
			if errors.As(err, &no) {
				err = refusal(no.Why)
			}
			return fmt.Sprintf("refund %s of %s is recorded; a completer makes it at Stripe",
				id, money.Format(minor, view.Intent.Currency)), err
		},
	}, nil
}

// planAdopt requires that the charge matches an order exactly. An operator who knows
// better fulfils the order by hand; a guess recorded here would look like a fact.
func (s *Server) planAdopt(ctx context.Context, t target) (plan, error) {
	view, err := s.readIntent(ctx, t.ID)
	switch {
	case err != nil:
		return plan{}, err
	case !view.Adoptable:
		return plan{}, refusal("it cannot be matched to an order: " + view.Detail)
	}
	return plan{
		Effect: fmt.Sprintf("Stripe charged %s for %s. The missing payment is recorded, the order becomes paid, and "+
			"the tenant gets the events of both.",
			money.Format(view.Intent.ReceivedMinor, view.Intent.Currency), view.Intent.OrderID),
		Limits: "No money moves.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			id, err := s.o.Payments.Repairs().Adopt(ctx, q, view)
			if err == nil && id == "" {
				err = refusal("it can no longer be adopted: reload the page")
			}
			return "adopted as " + id, err
		},
	}, nil
}

// unparked is the effect of an "unpark" action. False: the event was not parked.
type unparked func(ctx context.Context, q *db.Queries) (ok bool, result string, err error)

// planUnpark has no precondition to read. Whether the event is parked is decided by the
// statement that unparks it.
func (s *Server) planUnpark(t target) (plan, error) {
	consumer, isInbox := strings.CutPrefix(t.Of, ofInbox)
	var p plan
	var unpark unparked
	switch {
	case t.Of == ofOutbox:
		p.Effect = "The event is published again, and the later events of the same object follow in order. " +
			"If the broker rejects it again, it is parked again."
		p.Limits = "Consumers apply an event once, by its id."
		unpark = func(ctx context.Context, q *db.Queries) (bool, string, error) {
			ok, err := outbox.Unpark(ctx, q, t.Tenant, t.ID)
			return ok, "the events of " + t.ID + " will be published", err
		}
	// part: webhooks {
	case t.Of == ofDeliveries:
		p.Effect = "The failed deliveries to this tenant are sent again, oldest first, up to a thousand. Those to an endpoint " +
			"that is disabled stay failed until it is enabled."
		p.Limits = "Each delivery carries the event's id, by which the tenant can recognize duplicates."
		unpark = func(ctx context.Context, q *db.Queries) (bool, string, error) {
			n, err := notifier.Requeue(ctx, q, t.Tenant)
			return n > 0, plural(n, "delivery", "deliveries") + " will be sent again", err
		}
	// part: webhooks }
	case isInbox:
		p.Effect = "The event is applied again within two seconds. If it fails again, it is parked again."
		p.Limits = "It is not applied twice: its row and its effect are one commit."
		unpark = func(ctx context.Context, q *db.Queries) (bool, string, error) {
			ok, err := inbox.Unpark(ctx, q, consumer, t.ID)
			return ok, "it will be applied again", err
		}
	default:
		return p, payments.ErrNotFound
	}
	p.effect = func(ctx context.Context, q *db.Queries) (string, error) {
		ok, result, err := unpark(ctx, q)
		if err == nil && !ok {
			err = refusal("it is not parked, or no longer")
		}
		return result, err
	}
	return p, nil
}
