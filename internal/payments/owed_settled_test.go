package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
)

// TestWhatWasSettledOutsideIsNotOwedAgain: money that an operator has settled in another way is not owed because a
// refund that somebody made besides has come back.
func TestWhatWasSettledOutsideIsNotOwedAgain(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	o.refuse(1)
	completeOnce(o.World, o.API)
	require.Equal(t, "0 due", o.Owed())
	require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.Payment)
		return err
	}))
	o.requireOwed(0, 0)
	besides := o.Dashboard(1000)
	o.DeliverWebhooks()
	o.requireOwed(0, 0)
	require.NoError(t, o.Sim.FailRefund(besides, "lost_or_stolen_card"))
	o.DeliverWebhooks()
	require.Equal(t, "automatic failed 1000, provider failed 1000", o.Rows())
	o.requireOwed(0, 0)
	o.again()
	require.Equal(t, "automatic failed 1000, provider failed 1000", o.Rows())
	o.RequireClean()
}

// TestWhatWasSettledOutsideIsNotRefunded: nor by the tenant or an operator, who know nothing of it.
func TestWhatWasSettledOutsideIsNotRefunded(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	o.refuse(1)
	completeOnce(o.World, o.API)
	part := o.Dashboard(400)
	o.DeliverWebhooks()
	require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.Payment)
		return err
	}))
	require.NoError(t, o.Sim.FailRefund(part, "lost_or_stolen_card")) // Of that, the operator has settled nothing.
	o.DeliverWebhooks()
	o.requireOwed(1, 400)

	path := "/v1/payments/" + o.Payment + "/refunds"
	require.Equal(t, "refund-exceeds-payment", o.API.Post(path, "all", `{"amount": 1000}`).Code())
	byOperator := func(action string, amount *int64) error {
		return o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := o.API.Payments.Repairs().RefundFor(t.Context(), q, o.Tenant.ID, o.Payment, action, amount)
			return err
		})
	}
	more := int64(401)
	require.ErrorIs(t, byOperator("a1", &more), payments.ErrRefundExceedsPayment)
	_, err := o.DB.Raw().Exec(t.Context(), `DO $$ BEGIN
		UPDATE payments SET amount_refunding_minor = 401;
		INSERT INTO refunds (tenant_id, id, origin, payment_id, order_id, idempotency_key, stripe_key, amount_minor, currency,
			created_at)
		SELECT tenant_id, 'rfd_2', 'api', id, order_id, 'x', 'x', 401, currency, created_at FROM payments;
		END $$`)
	require.ErrorContains(t, err, "settled in another way")
	all := o.API.Post(path, "left", `{}`)
	require.Equal(t, http.StatusCreated, all.Status, all)
	require.EqualValues(t, 400, all.Get("amount"))
	require.Equal(t, "payment-not-refundable", o.API.Post(path, "more", `{}`).Code())
	require.ErrorIs(t, byOperator("a2", nil), payments.ErrPaymentNotRefundable)
	o.requireOwed(0, 0)
	o.DeliverWebhooks()
	o.RequireClean()
}

// TestSettledAndRefundedByOthersIsNotOwed: others refund at Stripe what an operator has settled, so more is back than
// was paid. Then an automatic refund comes back, and still nothing is owed.
func TestSettledAndRefundedByOthersIsNotOwed(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	o.refuse(1)
	completeOnce(o.World, o.API)
	part := o.Dashboard(400)
	o.DeliverWebhooks()
	require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.Payment)
		return err
	}))
	require.NoError(t, o.Sim.FailRefund(part, "lost_or_stolen_card"))
	o.DeliverWebhooks()
	o.again()
	besides := o.Dashboard(600)
	o.DeliverWebhooks()
	require.NoError(t, o.Sim.FailRefund(
		o.Text(`SELECT stripe_refund_id FROM refunds WHERE origin = 'automatic' AND status = 'succeeded'`),
		"lost_or_stolen_card"))
	o.DeliverWebhooks()
	o.requireOwed(0, 0)
	o.again()
	require.Equal(t, 600, o.Count(`SELECT amount_refunded_minor FROM payments`))

	_, err := o.DB.Raw().Exec(t.Context(), `UPDATE refunds_owed SET settled_minor = 400`)
	require.ErrorContains(t, err, "stays settled")
	require.NoError(t, o.Sim.FailRefund(besides, "lost_or_stolen_card"))
	o.DeliverWebhooks()
	o.requireOwed(1, 400)
	o.again()
	require.Equal(t, 400, o.Count(`SELECT amount_refunded_minor FROM payments`), "600 were settled")
	o.requireOwed(0, 0)
	o.DeliverWebhooks()
	o.RequireClean()
}
