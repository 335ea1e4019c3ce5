package reconcile_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// A bank sends refunds back weeks after they succeeded. Without its webhook such a refund is found within a day: the
// refunds of three months are read every day, while all intents of a month are read once a week.
func TestRefundThatIsSentBackWeeksLaterIsFoundWithinADay(t *testing.T) {
	t.Parallel()
	const age = 30 * 24 * time.Hour
	b, today := world.LongAgo(t, age, world.LocalOptions{})
	paid := b.API.Pay("pay", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	refund := b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund", `{"amount":400}`)
	require.Equal(t, http.StatusCreated, refund.Status)
	b.Unguarded(`UPDATE refunds SET created_at = created_at - $1::interval`, age)
	today()

	// All were read a day ago. The payment's id is of today in this test, so the windows of new payments would find it.
	b.Exec(`INSERT INTO reconciliation_windows (name, next_at)
		VALUES ('recent', 'infinity'), ('days', 'infinity'), ('month', 'infinity'), ('refunds_young', 'infinity')`)
	require.NoError(t, b.Sim.FailRefund(refund.Get("stripe", "refund").(string), "lost_or_stolen_card"))
	for n := 1; n > 0; {
		var err error
		n, err = b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, "failed", b.API.Get("/v1/refunds/"+refund.ID()).Get("status"))
	b.RequireClean()
}
