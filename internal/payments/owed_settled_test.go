package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

// TestWhatWasSettledOutsideIsNotOwedAgain: money that an operator has settled in another way is not owed because a refund
// that somebody made besides has come back.
func TestWhatWasSettledOutsideIsNotOwedAgain(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	o.refuse(1)
	completeOnce(o.World, o.API)
	require.Equal(t, "0 due", o.owed())
	require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.payment)
		return err
	}))
	o.requireOwed(0, 0)
	besides := o.dashboard(1000)
	o.hear()
	o.requireOwed(0, 0)
	require.NoError(t, o.Sim.FailRefund(besides, "lost_or_stolen_card"))
	o.hear()
	require.Equal(t, "automatic failed 1000, provider failed 1000", o.rows())
	o.requireOwed(0, 0)
	o.again()
	require.Equal(t, "automatic failed 1000, provider failed 1000", o.rows())
	o.RequireClean()
}
