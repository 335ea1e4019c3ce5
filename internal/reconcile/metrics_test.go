package reconcile_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestMeasure: what stands open in the database is what the gauges show.
func TestMeasure(t *testing.T) {
	t.Parallel()

	t.Run("KeysInFlightOverdueAndInDoubt", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		b.Measure()
		for _, name := range []string{"payonce_keys_in_flight", "payonce_keys_overdue", "payonce_keys_oldest_seconds",
			"payonce_unknown_outcomes", "payonce_unknown_outcomes_oldest_seconds"} {
			require.Zero(t, b.API.Metric(name), name)
		}
		order := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, "pm_card_visa").Status)
		b.Measure()
		require.EqualValues(t, 1, b.API.Metric("payonce_unknown_outcomes"))
		require.Zero(t, b.API.Metric("payonce_keys_overdue"), "it waits for the completer, whose turn has not come")
		require.Zero(t, b.API.Metric("payonce_keys_in_flight"), "it was given back")

		b.Exec(`UPDATE idempotency_keys
			SET next_attempt_at = clock_timestamp() - interval '11 s', created_at = created_at - interval '1 minute'
			WHERE finished_at IS NULL`)
		b.Unguarded(`UPDATE stripe_call_rows SET first_sent_at = first_sent_at - interval '1 minute'`)
		b.Measure()
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_overdue"))
		require.GreaterOrEqual(t, b.API.Metric("payonce_keys_oldest_seconds"), 60.0)
		require.GreaterOrEqual(t, b.API.Metric("payonce_unknown_outcomes_oldest_seconds"), 60.0)

		b.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute' WHERE finished_at IS NULL`)
		b.Measure()
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_in_flight"))
		require.Zero(t, b.API.Metric("payonce_keys_overdue"), "somebody has it")

		require.Equal(t, 1, b.API.Complete())
		b.Measure()
		for _, name := range []string{"payonce_keys_in_flight", "payonce_keys_overdue", "payonce_keys_oldest_seconds",
			"payonce_unknown_outcomes", "payonce_unknown_outcomes_oldest_seconds"} {
			require.Zero(t, b.API.Metric(name), name)
		}
		b.RequireChargedOnce(order)
	})

	t.Run("TheOldestIsNotOneThatWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", b.API.Order(), "pm_card_threeDSecure2Required").Status)
		b.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '30 minutes' WHERE finished_at IS NULL`)
		b.Measure()
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_unfinished"))
		require.Zero(t, b.API.Metric("payonce_keys_oldest_seconds"))

		// From here on it waits for Stripe.
		b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
		b.API.Complete()
		b.Measure()
		require.GreaterOrEqual(t, b.API.Metric("payonce_keys_oldest_seconds"), 1800.0)
	})

	t.Run("NorOneThatWaitsForTheBank", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment := b.API.Pay("k", b.API.Order(), "pm_card_pendingRefund")
		refund := func(key string) world.Answer {
			return b.API.Post("/v1/payments/"+payment.ID()+"/refunds", key, `{"amount":100}`)
		}
		require.Equal(t, http.StatusAccepted, refund("taken").Status)
		b.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '30 minutes' WHERE finished_at IS NULL`)
		b.Measure()
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_unfinished"))
		require.Zero(t, b.API.Metric("payonce_keys_oldest_seconds"))

		b.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, refund("unknown").Status)
		b.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '20 minutes' WHERE key = 'unknown'`)
		b.Measure()
		require.InDelta(t, 1200, b.API.Metric("payonce_keys_oldest_seconds"), 60)
	})

	t.Run("WhatCannotBeMeasuredHidesNothingElse", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", b.API.Order(), "pm_card_threeDSecure2Required").Status)
		b.Exec("UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE finished_at IS NULL")
		for _, broken := range []string{"discrepancies", "refunds_owed"} {
			b.Exec("ALTER TABLE " + broken + " RENAME TO away")
			_, err := b.Reconciler.Measure(t.Context())
			require.ErrorContains(t, err, broken)
			b.Exec("ALTER TABLE away RENAME TO " + broken)
			require.EqualValues(t, 1, b.API.Metric("payonce_keys_parked"))
			b.Exec("UPDATE idempotency_keys SET parked_at = NULL WHERE finished_at IS NULL")
			b.Measure()
			require.Zero(t, b.API.Metric("payonce_keys_parked"))
			b.Exec("UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE finished_at IS NULL")
		}
	})
}

// TestMeasuresAuthorizations: what is held on cards, until when, and what a capture may have taken.
func TestMeasuresAuthorizations(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	b.Measure()
	require.True(t, math.IsInf(b.API.Metric("payonce_authorization_expires_seconds"), 1))
	authorize := func(key string) string {
		t.Helper()
		a := b.API.Authorize(key, b.API.Order(), "pm_card_visa")
		require.Equal(t, http.StatusCreated, a.Status, a)
		return a.ID()
	}
	first, second := authorize("first"), authorize("second")
	b.Exec("UPDATE payments SET capture_before = clock_timestamp() + interval '1 hour' WHERE id = $1", second)
	b.Measure()
	require.EqualValues(t, 2, b.API.Metric("payonce_authorizations_open"))
	require.EqualValues(t, 2000, b.API.Metric("payonce_authorizations_open_minor"))
	require.Zero(t, b.API.Metric("payonce_authorizations_expired"))
	require.Zero(t, b.API.Metric("payonce_captures_in_doubt"))
	require.InDelta(t, 3600, b.API.Metric("payonce_authorization_expires_seconds"), 120)

	b.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.Drop})
	b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
	require.Equal(t, http.StatusAccepted, b.API.Capture("c", second, 0).Status)
	b.Unguarded(`UPDATE stripe_call_rows SET first_sent_at = first_sent_at - interval '1 minute' WHERE operation = 'capture'`)
	b.Measure()
	require.EqualValues(t, 1, b.API.Metric("payonce_captures_in_doubt"))
	require.GreaterOrEqual(t, b.API.Metric("payonce_captures_in_doubt_oldest_seconds"), 60.0)
	require.EqualValues(t, 1, b.API.Metric("payonce_unknown_outcomes"))
	b.Sim.ClearFaults()
	b.API.Complete()

	b.Sim.Advance(8 * 24 * time.Hour)
	require.Equal(t, http.StatusPaymentRequired, b.API.Capture("late", first, 0).Status)
	b.Measure()
	require.Zero(t, b.API.Metric("payonce_captures_in_doubt"))
	require.Zero(t, b.API.Metric("payonce_authorizations_open"))
	require.EqualValues(t, 1, b.API.Metric("payonce_authorizations_expired"))
	require.True(t, math.IsInf(b.API.Metric("payonce_authorization_expires_seconds"), 1))
	b.Exec("UPDATE payments SET updated_at = updated_at - interval '25 hours'")
	b.Measure()
	require.Zero(t, b.API.Metric("payonce_authorizations_expired"), "a currency that was shown stays shown")
}
