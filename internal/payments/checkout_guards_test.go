package payments_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/testbed"
)

// People who edit the Go code will break the saga's rules. Then the database
// says which, by name.
func TestCheckout_TheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	w := testbed.New(t)
	const reserved = "done done pending pending pending pending pending"
	for i, c := range []struct {
		guard string // the sentence that is broken
		steps string // of the saga, in their order
		wrong string
	}{
		{"step_transition_is_legal", reserved, `UPDATE checkout_steps SET status = 'running' WHERE step = 'reserve_stock'`},
		{"step_transition_is_legal", reserved, `UPDATE checkout_steps SET status = 'pending', attempts = 0, updated_at = NULL WHERE step = 'reserve_stock'`},
		{"step_transition_is_legal", "done done failed skipped skipped pending pending", `UPDATE checkout_steps SET status = 'done' WHERE step = 'pay'`},
		{"step_transition_is_legal", "done done done skipped pending pending pending", `UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"step_transition_is_legal", "done done failed skipped skipped done pending", `UPDATE checkout_steps SET status = 'running' WHERE step = 'release_stock'`},
		{"steps_go_in_order", reserved, `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"unknown_is_never_compensated", "done done unknown pending pending pending pending", `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"unknown_is_never_compensated", "done done running pending pending pending pending", `UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"only_what_was_done_is_undone", "done done failed skipped pending pending pending", `UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'refund'`},
		{"only_what_was_done_is_undone", "done failed skipped skipped skipped pending pending", `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"undoing_goes_in_reverse", "done done failed skipped skipped pending pending", `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'cancel_order'`},
		{"undoing_goes_in_reverse", "done done done failed running pending pending", `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"compensated_was_undone", "done done failed skipped skipped pending pending", `UPDATE checkout_steps SET status = 'compensated' WHERE step = 'reserve_stock'`},
		{"nothing_goes_forward_after_an_undoing", "done compensated pending pending pending done pending", `UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'pay'`},
		{"nothing_goes_forward_after_an_undoing", "done done done pending running pending pending", `UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"what_has_begun_is_counted", reserved, `UPDATE checkout_steps SET status = 'running' WHERE step = 'pay'`},

		{"ended_saga_has_no_open_step", "done done done pending skipped skipped skipped", `UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'o', payment_id = 'p'`},
		{"ended_saga_has_no_open_step", "done compensated failed skipped skipped done pending", `UPDATE checkouts SET status = 'compensated', version = 1`},
		{"saga_ends_as_its_steps_did", "compensated compensated failed skipped skipped done done", `UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'o', payment_id = 'p'`},
		{"saga_ends_as_its_steps_did", "done done done done skipped skipped skipped", `UPDATE checkouts SET status = 'compensated', version = 1`},
		{"saga_ends_as_its_steps_did", "compensated compensated done failed failed done done", `UPDATE checkouts SET status = 'compensated', version = 1`},
		{"completed_has_not_failed", "done done done done skipped skipped skipped", `UPDATE checkouts SET status = 'completed', version = 1, order_id = 'o', payment_id = 'p'`},
		{"compensated_says_why", "compensated compensated failed skipped skipped done done", `UPDATE checkouts SET status = 'compensated', version = 1, failure_code = NULL`},
		{"ended_is_announced", "compensated compensated failed skipped skipped done done", `UPDATE checkouts SET status = 'compensated'`},
		{"checkout_keeps_its_order_and_payment", reserved, `UPDATE checkouts SET idempotency_key = 'other'`},
		{"one_checkout_per_key", reserved, `INSERT INTO checkouts (tenant_id, id, idempotency_key, created_at) SELECT tenant_id, 'again', idempotency_key, now() FROM checkouts`},

		{"stock_is_never_oversold", reserved, `UPDATE stock SET available = available - 9`},
		{"reserved_is_never_negative", reserved, `UPDATE stock SET reserved = reserved - 3`},
		{"payment_under_way_holds_the_stock", reserved, `UPDATE reservations SET expires_at = now()`},
		{"reservation_ends_once", reserved, `UPDATE reservations SET status = 'released'; UPDATE reservations SET status = 'consumed'`},
	} {
		t.Run(fmt.Sprint(i, "/", c.guard), func(t *testing.T) {
			tx, err := w.DB.Raw().Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
			for _, sql := range []string{
				`INSERT INTO checkouts (tenant_id, id, idempotency_key, failure_code, created_at) VALUES ('ten', 'chk', 'k', 'why', now())`,
				`INSERT INTO checkout_steps (tenant_id, checkout_id, step, status, attempts, updated_at)
					SELECT 'ten', 'chk', s.step, s.status, (s.status NOT IN ('pending', 'skipped'))::integer, CASE WHEN s.status NOT IN ('pending', 'skipped') THEN now() END
					FROM (SELECT unnest(enum_range(NULL::saga_step)) AS step, unnest(string_to_array('` + c.steps + `', ' ')::saga_step_status[]) AS status) s`,
				`INSERT INTO stock (tenant_id, sku, available, reserved) VALUES ('ten', 'tea', 8, 2)`,
				`INSERT INTO reservations (tenant_id, checkout_id, sku, quantity) VALUES ('ten', 'chk', 'tea', 2)`,
			} {
				_, err := tx.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			for _, sql := range strings.Split(c.wrong, ";") {
				_, err = tx.Exec(t.Context(), sql)
			}
			require.True(t, db.Violates(err, c.guard), "%v", err)
		})
	}

	ended := newShop(t, testbed.LocalOptions{})
	ended.checkout("k", twoTeas("pm_card_visa"))
	_, err := ended.w.DB.Raw().Exec(t.Context(), `UPDATE checkout_steps SET status = 'compensated' WHERE step = 'pay'`)
	require.True(t, db.Violates(err, "ended_saga_is_final"), "%v", err)
	_, err = ended.w.DB.Raw().Exec(t.Context(), `UPDATE checkouts SET status = 'compensated', failure_code = 'x'`)
	require.True(t, db.Violates(err, "checkout_ends_once"), "%v", err)
}
