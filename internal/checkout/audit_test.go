package checkout_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// A judge who lets everything pass finds every test green. So each promise is
// broken by hand here, with the database's own guards switched off.
func TestCheckout_TheAuditSees(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	done, undone := shop.SagaOf(t, s.Checkout("done", shop.TwoTeas("pm_card_visa"))),
		shop.SagaOf(t, s.Checkout("declined", shop.TwoTeas("pm_card_visa_chargeDeclined")))
	require.Equal(t, shop.AllDone, done.Course())
	require.Equal(t, shop.AllUndone, undone.Course())
	s.RequireWhole()

	breaks := map[string][]string{
		shop.SagasEnd: {`UPDATE checkouts SET status = 'processing', version = 0 WHERE id = DONE`},
		shop.UndoneOnce: {
			`UPDATE checkout_steps SET status = 'done' WHERE checkout_id = UNDONE AND step = 'reserve_stock'`,
			`UPDATE checkout_steps SET status = 'running' WHERE checkout_id = UNDONE AND step = 'release_stock'`,
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE checkout_id = UNDONE
				AND step = 'refund'`,
		},
		shop.NeverUnknown: {`UPDATE stripe_calls SET outcome = 'unknown' WHERE stripe_key LIKE '%:declined:confirm'`},
		shop.MoneyAsItEnded: {
			`UPDATE payments SET status = 'failed', failure_code = 'x' WHERE id = (SELECT payment_id FROM checkouts
				WHERE id = DONE)`,
			`UPDATE payments SET status = 'succeeded', failure_code = NULL WHERE id = (SELECT payment_id FROM checkouts
				WHERE id = UNDONE)`,
		},
		shop.StockAddsUp: {`UPDATE stock SET reserved = reserved + 1`},
		shop.StockAsItEnded: {`UPDATE reservations SET status = 'consumed' WHERE checkout_id = UNDONE`,
			`UPDATE reservations SET status = 'released' WHERE checkout_id = DONE`},
		shop.OrderAsItEnded: {`UPDATE orders SET status = 'open' WHERE id = (SELECT order_id FROM checkouts WHERE id = UNDONE)`},
		shop.OneEventAtEnd: {`UPDATE outbox_events SET version = 2 WHERE aggregate_id = DONE`,
			`DELETE FROM outbox_events WHERE aggregate_id = UNDONE`},
		shop.StripeAsItEnded: {`UPDATE checkouts SET order_id = (SELECT order_id FROM checkouts WHERE id = DONE)
			WHERE id = UNDONE`},
	}
	require.Len(t, breaks, shop.Promises, "a promise that nobody breaks")
	for promise, ways := range breaks {
		for _, sql := range ways {
			require.Contains(t,
				brokenBy(s, strings.NewReplacer("UNDONE", "'"+undone.ID+"'", "DONE", "'"+done.ID+"'").Replace(sql)),
				promise+": ", sql)
		}
	}
}

// brokenBy is what the audit sees after a statement that no guard refused. It
// is rolled back.
func brokenBy(s shop.Shop, sql string) string {
	t := s.World.T
	t.Helper()
	tx, err := s.World.DB.Raw().Begin(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	for _, table := range []string{"checkouts", "checkout_steps", "payments", "orders", "reservations", "stripe_call_rows",
		"outbox_events"} {
		_, err = tx.Exec(context.Background(), "ALTER TABLE "+table+" DISABLE TRIGGER USER")
		require.NoError(t, err)
	}
	tag, err := tx.Exec(context.Background(), sql)
	require.NoError(t, err, sql)
	require.NotZero(t, tag.RowsAffected(), sql)
	return strings.Join(shop.Violations(t, tx, s.World.Sim), "\n")
}
