package payments_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// TestMeasure: what stands open in the database is what the gauges show.
func TestMeasure(t *testing.T) {
	t.Parallel()

	t.Run("KeysInFlightOverdueAndInDoubt", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		b.measure()
		for _, name := range []string{"payonce_keys_in_flight", "payonce_keys_overdue", "payonce_keys_oldest_seconds", "payonce_unknown_outcomes", "payonce_unknown_outcomes_oldest_seconds"} {
			require.Zero(t, b.api.Metric(name), name)
		}
		order := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, b.api.Pay("k", order, "pm_card_visa").Status)
		b.measure()
		require.EqualValues(t, 1, b.api.Metric("payonce_unknown_outcomes"))
		require.Zero(t, b.api.Metric("payonce_keys_overdue"), "it waits for the completer, whose turn has not come")
		require.Zero(t, b.api.Metric("payonce_keys_in_flight"), "it was given back")

		b.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() - interval '11 s', created_at = created_at - interval '1 minute' WHERE finished_at IS NULL`)
		b.Exec(`ALTER TABLE stripe_calls DISABLE TRIGGER call_parameters_are_immutable;
			UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '1 minute';
			ALTER TABLE stripe_calls ENABLE TRIGGER call_parameters_are_immutable`)
		b.measure()
		require.EqualValues(t, 1, b.api.Metric("payonce_keys_overdue"))
		require.GreaterOrEqual(t, b.api.Metric("payonce_keys_oldest_seconds"), 60.0)
		require.GreaterOrEqual(t, b.api.Metric("payonce_unknown_outcomes_oldest_seconds"), 60.0)

		b.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute' WHERE finished_at IS NULL`)
		b.measure()
		require.EqualValues(t, 1, b.api.Metric("payonce_keys_in_flight"))
		require.Zero(t, b.api.Metric("payonce_keys_overdue"), "somebody has it")

		require.Equal(t, 1, b.api.Complete())
		b.measure()
		for _, name := range []string{"payonce_keys_in_flight", "payonce_keys_overdue", "payonce_keys_oldest_seconds", "payonce_unknown_outcomes", "payonce_unknown_outcomes_oldest_seconds"} {
			require.Zero(t, b.api.Metric(name), name)
		}
		b.RequireChargedOnce(order)
	})

	t.Run("TheOldestIsNotOneThatWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		require.Equal(t, http.StatusAccepted, b.api.Pay("k", b.api.Order(), "pm_card_threeDSecure2Required").Status)
		b.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '30 minutes' WHERE finished_at IS NULL`)
		b.measure()
		require.EqualValues(t, 1, b.api.Metric("payonce_keys_unfinished"))
		require.Zero(t, b.api.Metric("payonce_keys_oldest_seconds"))
	})

	t.Run("CheckoutsByHowTheyStand", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		state := func() string { // the only one
			t.Helper()
			b.measure()
			require.EqualValues(t, 1, b.api.Metric("payonce_checkouts_unfinished"))
			return b.onlySeries("payonce_checkouts_unfinished", 1)
		}
		require.Equal(t, http.StatusOK, b.api.Do("PUT", "/v1/stock/tea", `{"available":9}`).Status)
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		body := `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"pm_card_visa"}`
		require.Equal(t, http.StatusAccepted, b.api.Post("/v1/checkouts", "k", body).Status)
		require.Equal(t, "unknown", state())

		b.Exec(`UPDATE checkout_steps SET status = 'running' WHERE status = 'unknown'`)
		require.Equal(t, "forward", state())

		require.Equal(t, 1, b.api.Complete())
		b.measure()
		require.Zero(t, b.api.Metric("payonce_checkouts_unfinished"))
		require.EqualValues(t, 1, b.api.Metric("payonce_checkouts_ended_total"))
		require.Equal(t, "completed", b.onlySeries("payonce_checkouts_ended_total", 1))
	})
}

func (b *books) measure() {
	b.T.Helper()
	_, err := b.reconciler.Measure(context.Background())
	require.NoError(b.T, err)
}

// onlySeries is the value of the first label of the one series that has the value.
func (b *books) onlySeries(name string, value float64) (found string) {
	b.T.Helper()
	families, err := b.api.Metrics.Gather()
	require.NoError(b.T, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue()+m.GetCounter().GetValue() == value {
				require.Empty(b.T, found, "more than one series of %s", name)
				found = m.GetLabel()[0].GetValue()
			}
		}
	}
	require.NotEmpty(b.T, found, name)
	return found
}
