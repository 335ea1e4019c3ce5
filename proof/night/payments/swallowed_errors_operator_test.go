package payments_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// unlessDone is err, but for those by which an operator's action says that it was done before.
func unlessDone(err error) error {
	var (
		owed       *payments.NotOwedError
		terminal   *payments.NotTerminalError
		refundable *compare.NotRefundableError
	)
	if errors.As(err, &owed) || errors.As(err, &refundable) || errors.Is(err, payments.ErrPaymentNotRefundable) {
		return nil
	}
	if errors.As(err, &terminal) && (terminal.Why == "the refund is failed already" ||
		terminal.Why == "the payment is canceled already, and that is final") {
		return nil
	}
	return err
}

// byOperator does f in a transaction, as the operator's page does.
func byOperator(f func(a *world.Attempt, r payments.Repairs, q *db.Queries) error) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		a.InTx(func(q *db.Queries) error { return unlessDone(f(a, a.API.Payments.Repairs(), q)) })
	}
}

// onIntent is byOperator, with the attempt's intent compared before.
func onIntent(
	f func(ctx context.Context, r payments.Repairs, q *db.Queries, v payments.IntentView) error,
) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		ctx, repairs := context.Background(), a.API.Payments.Repairs()
		view, err := repairs.CompareIntent(ctx, a.Intent)
		if err != nil {
			a.Failed(err)
			return
		}
		a.InTx(func(q *db.Queries) error { return unlessDone(f(ctx, repairs, q, view)) })
	}
}

func TestNoErrorIsSwallowed_ByAnOperator(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	settled := func(a *world.Attempt) {
		require.Equal(a, 1, a.Count(`SELECT count(*) FROM refunds_owed WHERE payment_id = $1 AND ended_how = 'settled_outside'`,
			a.Payment))
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Adoption", Elsewhere: true, Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			a.Intent = a.OrphanIntent(a.Order).ID
			atStripe(a, 400)
		}, Run: onIntent(func(ctx context.Context, r payments.Repairs, q *db.Queries, v payments.IntentView) error {
			_, err := r.Adopt(ctx, q, v)
			return err
		}), Check: all(ended("partially_refunded", "succeeded", 1), refundsOf("provider succeeded 400"))},
		{Name: "Refund", Prepare: paidOrder, Run: then(byOperator(
			func(a *world.Attempt, r payments.Repairs, q *db.Queries) error {
				_, err := r.RefundFor(ctx, q, a.Tenant.ID, a.Payment, a.Key, nil)
				return err
			}), completes), Check: refundsOf("api succeeded 1000")},
		{Name: "OwedIsSettled", Elsewhere: true, Prepare: owedOrder, Run: byOperator(
			func(a *world.Attempt, r payments.Repairs, q *db.Queries) error {
				_, err := r.SettleOwed(ctx, q, a.Tenant.ID, a.Payment)
				return err
			}), Check: settled},
		{Name: "OwedIsTriedAgain", Elsewhere: true, Prepare: owedOrder, Run: then(byOperator(
			func(a *world.Attempt, r payments.Repairs, q *db.Queries) error {
				_, err := r.RetryOwedNow(ctx, q, a.Tenant.ID, a.Payment)
				return err
			}), completes), Check: refundsOf("automatic succeeded 1000, automatic failed 1000")},
		{Name: "RefundHasFailed", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.Payment = a.API.Pay("pays-"+a.Order, a.Order, "pm_card_pendingRefund").ID()
			require.Equal(a, "pending", refund(a.API, a.Key, a.Payment).Get("status"))
			require.NoError(a, a.Sim.FailRefund(a.Text(`SELECT stripe_refund_id FROM refunds WHERE order_id = $1`, a.Order),
				"lost_or_stolen_card"))
		}, Run: func(a *world.Attempt) {
			_, err := a.API.Payments.Repairs().RefundFailed(ctx, a.Tenant.ID,
				a.Text(`SELECT id FROM refunds WHERE order_id = $1`, a.Order))
			a.Failed(unlessDone(err))
		}, Check: refundsOf("api failed 300")},
		{Name: "PaymentHasFailed", Prepare: func(a *world.Attempt) {
			waitingOrder(a)
			_, err := a.Stripe.PaymentIntents.Cancel(a.Intent, nil)
			require.NoError(a, err)
		}, Run: func(a *world.Attempt) {
			_, err := a.API.Payments.Repairs().ConfirmFailed(ctx, a.Tenant.ID, a.Payment)
			a.Failed(unlessDone(err))
		}, Check: ended("open", "canceled", 0)},
	})
}

// chargedTwice is a paid order with a second charge at Stripe that no payment has.
func chargedTwice(card string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		paidOrder(a)
		a.Intent = a.OrphanIntent(a.Order, func(p *stripego.PaymentIntentParams) { p.PaymentMethod = &card }).ID
	}
}

var refundsOrphan = onIntent(func(ctx context.Context, r payments.Repairs, q *db.Queries, v payments.IntentView) error {
	_, _, err := r.RefundOrphan(ctx, q, v)
	return err
})

// refundedAtStripe is the Check of the refunds of the attempt's intent at Stripe, by their statuses.
func refundedAtStripe(want ...string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		list, err := a.API.Gateway.RefundsOf(context.Background(), "", a.Intent)
		require.NoError(a, err)
		var statuses []string
		for _, r := range list {
			statuses = append(statuses, string(r.Status))
		}
		require.ElementsMatch(a, want, statuses)
	}
}

func TestNoErrorIsSwallowed_OrphanRefund(t *testing.T) {
	t.Parallel()
	fails := func(a *world.Attempt) {
		for _, e := range a.Sim.Effects() {
			if e.Kind == stripesim.EffectRefund && e.IntentID == a.Intent {
				_ = a.Sim.FailRefund(e.RefundID, "lost_or_stolen_card") // or it has failed
			}
		}
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Success", Elsewhere: true, Prepare: chargedTwice(visa), Run: then(refundsOrphan, completes),
			Check: refundedAtStripe("succeeded")},
		{Name: "WhoseResponseWasLost", Elsewhere: true, Prepare: func(a *world.Attempt) {
			chargedTwice(visa)(a)
			once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
			refundsOrphan(a)
			a.Complete()
		}, Run: completes, Check: refundedAtStripe("succeeded")},
		{Name: "ThatIsPending", Elsewhere: true, Prepare: func(a *world.Attempt) {
			chargedTwice("pm_card_pendingRefund")(a)
			refundsOrphan(a)
		}, Run: then(completes, fails, completes), Check: refundedAtStripe("failed")},
		{Name: "ThatIsRefused", Elsewhere: true, Prepare: func(a *world.Attempt) {
			chargedTwice(visa)(a)
			refundsOrphan(a)
			once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest})
		}, Run: completes, Check: refundedAtStripe()},
		{Name: "Webhook", Elsewhere: true, Webhooks: true, Prepare: func(a *world.Attempt) {
			chargedTwice(visa)(a)
			quiet(a)
			once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
			refundsOrphan(a)
			a.Complete()
		}, Run: then(deliver, completes), Check: refundedAtStripe("succeeded")},
	})
}
