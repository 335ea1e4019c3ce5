package checkout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestCheckout_FencesBetweenPhases tries what a holder writes about its steps between
// its phases with the token of a holder before it: nothing is written. With its own it
// is, so that the statement was one that could have.
func TestCheckout_FencesBetweenPhases(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	w, ctx := s.World, t.Context()
	g := shop.SagaOf(t, s.Checkout("k", shop.TwoTeas("pm_card_threeDSecure2Required")))
	tenant := w.Tenant.ID
	token := int64(w.Count(`SELECT lease_token FROM idempotency_keys WHERE key = 'k'`))
	confirm := w.Text(`SELECT stripe_key FROM stripe_calls WHERE operation = 'confirm'`)
	steps := func() string { return w.Text(`SELECT array_agg(s ORDER BY s.step) FROM checkout_steps s`) }
	requireFenced := func(name string, run func(token int64) (rows int64, err error)) {
		t.Helper()
		before := steps()
		n, err := run(token - 1)
		require.NoError(t, err, name)
		require.Zero(t, n, name)
		require.Equal(t, before, steps(), name)
		n, err = run(token)
		require.NoError(t, err, name)
		require.Equal(t, int64(1), n, name)
		require.NotEqual(t, before, steps(), name)
	}

	_, err := w.DB.StripeCallRecordAttempt(ctx, db.StripeCallRecordAttemptParams{
		TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm, Operation: "confirm",
		ResourceID: g.PaymentID, ParamsSha256: make([]byte, 32), ResendWithin: time.Hour,
	})
	require.NoError(t, err)
	_, err = w.DB.StripeCallRecordAttemptOutcome(ctx, db.StripeCallRecordAttemptOutcomeParams{
		TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm, Operation: "confirm", ResourceID: g.PaymentID,
		Outcome: db.StripeOutcomeUnknown,
	})
	require.NoError(t, err)
	requireFenced("a step begins again", func(token int64) (int64, error) {
		return w.DB.CheckoutStepsResume(ctx, db.CheckoutStepsResumeParams{
			TenantID: tenant, Key: "k", LeaseToken: token, CheckoutID: g.ID,
		})
	})
	requireFenced("a step waits for a call of unknown outcome", func(token int64) (int64, error) {
		return w.DB.CheckoutStepSuspend(ctx, db.CheckoutStepSuspendParams{
			TenantID: tenant, Key: "k", LeaseToken: token, CheckoutID: g.ID, StripeKeys: []string{confirm},
		})
	})
}

// TestStepWaitsForTheLockOfItsCheckout: the rules between the steps compare rows that two sessions change.
func TestStepWaitsForTheLockOfItsCheckout(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	g := shop.SagaOf(t, s.Checkout("k", shop.TwoTeas("pm_card_threeDSecure2Required")))
	s.World.WhileLocked(1, func() {
		s.World.Exec(`UPDATE checkout_steps SET status = 'unknown' WHERE checkout_id = $1 AND step = 'pay'`, g.ID)
	}, `SELECT FROM checkouts WHERE id = $1 FOR NO KEY UPDATE`, g.ID)
}
