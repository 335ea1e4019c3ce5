package checkout_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// People who edit the Go code will break the saga's rules. Then the database
// says which, by name. These are the rules between the steps; those that one row
// breaks are in catalogue_checkouts_test.go of package postgres.
func TestCheckout_TheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const reserved = "done done pending pending pending pending pending"
	for i, c := range []struct {
		guard string // the sentence that is broken
		steps string // of the saga, in their order
		wrong string
	}{
		{"step_transition_is_legal", reserved,
			`UPDATE checkout_steps SET status = 'running' WHERE step = 'reserve_stock'`},
		{"step_transition_is_legal", reserved,
			`UPDATE checkout_steps SET status = 'pending', attempts = 0, updated_at = NULL WHERE step = 'reserve_stock'`},
		{"step_transition_is_legal", "done done failed skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'done' WHERE step = 'pay'`},
		{"step_transition_is_legal", "done done done skipped pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"step_transition_is_legal", "done done failed skipped skipped done pending",
			`UPDATE checkout_steps SET status = 'running' WHERE step = 'release_stock'`},
		{"no_step_out_of_order", reserved,
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"no_compensation_before_outcome_is_known", "done done unknown pending pending pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"no_compensation_before_outcome_is_known", "done done running pending pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"no_compensation_of_step_not_done", "done done failed skipped pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'refund'`},
		{"no_compensation_of_step_not_done", "done failed skipped skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"no_compensation_out_of_order", "done done failed skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'cancel_order'`},
		{"no_compensation_out_of_order", "done done done failed running pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"compensated_once_compensation_is_done", "done done failed skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'compensated' WHERE step = 'reserve_stock'`},
		{"no_step_after_compensation", "done compensated pending pending pending done pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'pay'`},
		{"no_step_after_compensation", "done done done pending running pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'notify'`},

		{"ended_checkout_has_no_open_step", "done done done pending skipped skipped skipped",
			`UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'o', payment_id = 'p'`},
		{"ended_checkout_has_no_open_step", "done compensated failed skipped skipped done pending",
			`UPDATE checkouts SET status = 'compensated', version = 1`},
		{"status_agrees_with_steps", "compensated compensated failed skipped skipped done done",
			`UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'o', payment_id = 'p'`},
		{"status_agrees_with_steps", "done done done done skipped skipped skipped",
			`UPDATE checkouts SET status = 'compensated', version = 1`},
		{"status_agrees_with_steps", "compensated compensated done failed failed done done",
			`UPDATE checkouts SET status = 'compensated', version = 1`},

		// With manual capture, the order is another one: nine steps.
		{"no_step_out_of_order", "done running pending pending pending pending pending pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'reserve_stock'`},
		{"no_step_out_of_order", "done done pending pending pending pending pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'capture'`},
		{"no_step_out_of_order", "done done done unknown pending pending pending pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"no_compensation_before_outcome_is_known", "done unknown pending pending pending pending pending pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'cancel_order'`},
		{"no_compensation_before_outcome_is_known", "done done done unknown pending pending pending pending pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'release_stock'`},
		{"no_compensation_before_outcome_is_known", "done done done running pending skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'release_payment'`},
		{"no_compensation_of_step_not_done", "done done done failed skipped pending pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'refund'`},
		{"no_compensation_of_step_not_done", "done failed skipped skipped skipped skipped skipped pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'release_payment'`},
		{"no_compensation_out_of_order", "done done done failed skipped skipped pending pending pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'release_payment'`},
		{"no_compensation_out_of_order", "done done failed skipped skipped skipped skipped running pending",
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE step = 'cancel_order'`},
		{"compensated_once_compensation_is_done", "done done done done failed running pending pending pending",
			`UPDATE checkout_steps SET status = 'compensated' WHERE step = 'capture'`},
		{"no_step_after_compensation", "done done failed skipped skipped skipped skipped running pending",
			`UPDATE checkout_steps SET status = 'running', attempts = 1, updated_at = now() WHERE step = 'notify'`},
		{"status_agrees_with_steps", "compensated done failed skipped skipped skipped skipped done done",
			`UPDATE checkouts SET status = 'compensated', version = 1`},
		{"status_agrees_with_steps", "done done done done done skipped skipped done skipped",
			`UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'o', payment_id = 'p'`},
	} {
		t.Run(fmt.Sprint(i, "/", c.guard), func(t *testing.T) {
			tx, err := w.DB.Raw().Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
			kind := automatic
			if len(strings.Fields(c.steps)) > 7 {
				kind = manual
			}
			for _, sql := range []string{
				`INSERT INTO checkouts (tenant_id, id, idempotency_key, failure_code, created_at)
					VALUES ('ten', 'chk', 'k', 'why', now())`,
				`INSERT INTO checkout_steps (tenant_id, checkout_id, step, status, attempts, updated_at)
					SELECT 'ten', 'chk', s.step, s.status, (s.status NOT IN ('pending', 'skipped'))::integer, CASE
					WHEN s.status NOT IN ('pending', 'skipped') THEN now() END
					FROM (SELECT unnest('{` + kind + `}'::saga_step[]) AS step, unnest(string_to_array('` + c.steps +
					`', ' ')::saga_step_status[]) AS status) s`,
			} {
				_, err := tx.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			_, err = tx.Exec(t.Context(), c.wrong)
			require.True(t, postgres.Violates(err, c.guard), "%v", err)
		})
	}

	ended := shop.New(t, world.LocalOptions{})
	ended.Checkout("k", shop.TwoTeas("pm_card_visa"))
	_, err := ended.World.DB.Raw().Exec(t.Context(), `UPDATE checkout_steps SET status = 'compensated' WHERE step = 'pay'`)
	require.True(t, postgres.Violates(err, "checkout_is_processing"), "%v", err)
	_, err = ended.World.DB.Raw().Exec(t.Context(), `UPDATE checkouts SET status = 'compensated', failure_code = 'x'`)
	require.True(t, postgres.Violates(err, "checkout_ends_once"), "%v", err)
}

// The steps of both kinds of checkout, in their order.
const (
	automatic = "create_order,reserve_stock,pay,notify,refund,release_stock,cancel_order"
	manual    = "create_order,authorize,reserve_stock,capture,notify,refund,release_stock,release_payment,cancel_order"
)

// TestCompensatedOwesNothing: whatever the steps of a checkout say, it does not end
// as one that came to nothing while its payment has the customer's money, or may.
func TestCompensatedOwesNothing(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	compensates := func(payment string) error {
		tx, err := w.DB.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
		_, err = tx.Exec(t.Context(),
			`INSERT INTO checkouts (tenant_id, id, idempotency_key, failure_code, order_id, payment_id, created_at)
			SELECT tenant_id, 'chk', 'checkout', 'why', order_id, id, now() FROM payments WHERE id = $1`, payment)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(),
			`INSERT INTO checkout_steps (tenant_id, checkout_id, step, status, attempts, updated_at)
			SELECT $1, 'chk', s.step, s.status, 1, now()
			FROM (SELECT unnest('{`+automatic+`}'::saga_step[]) AS step,
				unnest('{compensated,compensated,compensated,failed,done,done,done}'::saga_step_status[]) AS status) s`,
			w.Tenant.ID)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `UPDATE checkouts SET status = 'compensated', version = 1`)
		return err
	}
	owes := func(payment string) {
		t.Helper()
		require.True(t, postgres.Violates(compensates(payment), "compensated_owes_nothing"))
	}

	paid := api.Pay("paid", api.Order(), "pm_card_visa").ID()
	owes(paid)
	require.Equal(t, http.StatusCreated, api.Post("/v1/payments/"+paid+"/refunds", "some", `{"amount":300}`).Status)
	owes(paid)
	require.Equal(t, http.StatusCreated, api.Post("/v1/payments/"+paid+"/refunds", "rest", `{}`).Status)
	require.NoError(t, compensates(paid), "all of it went back")

	declined := api.Pay("declined", api.Order(), "pm_card_visa_chargeDeclined")
	require.Equal(t, http.StatusPaymentRequired, declined.Status, declined)
	require.NoError(t, compensates(w.Text("SELECT id FROM payments WHERE status = 'failed'")), "it took none")

	held := api.Authorize("held", api.Order(), "pm_card_visa").ID()
	owes(held)
	require.Equal(t, http.StatusOK, api.CancelPayment("released", held).Status)
	require.NoError(t, compensates(held), "it was released")
	part := api.Authorize("part", api.Order(), "pm_card_visa").ID()
	require.Equal(t, http.StatusOK, api.Capture("captured", part, 300).Status)
	owes(part)
	require.Equal(t, http.StatusCreated, api.Post("/v1/payments/"+part+"/refunds", "all", `{}`).Status)
	require.NoError(t, compensates(part), "all that was captured went back")

	w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop, Times: -1})
	w.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
	unknown := api.Pay("unknown", api.Order(), "pm_card_visa")
	require.Equal(t, "processing", unknown.Get("status"), unknown)
	owes(unknown.ID())
}
