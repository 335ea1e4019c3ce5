package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
)

var errStripeUnreachable = errors.New("cannot reach Stripe")

func TestNextTry(t *testing.T) {
	t.Parallel()
	about := func(t *testing.T, want time.Duration, c *idempotency.Claim) {
		t.Helper()
		for range 100 {
			require.InDelta(t, want, idempotency.NextTry(c), float64(want)/10+1)
		}
	}

	t.Run("GrowsWithAttemptsWhileTheKeyIsYoung", func(t *testing.T) {
		t.Parallel()
		about(t, 500*time.Millisecond, &idempotency.Claim{Attempts: 1})
		about(t, time.Second, &idempotency.Claim{Attempts: 2})
		about(t, idempotency.FastRetry, &idempotency.Claim{Attempts: 1000, Age: idempotency.SlowRetryAfter})
	})

	t.Run("IsSlowOnceTheKeyIsOld", func(t *testing.T) {
		t.Parallel()
		about(t, idempotency.SlowRetry, &idempotency.Claim{Attempts: 1, Age: idempotency.SlowRetryAfter + 1})
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for try := 1; try <= 5; try++ {
		limit := 200 * time.Millisecond << try
		var longest time.Duration
		for range 1000 {
			d := idempotency.Backoff(try)
			require.True(t, d >= 0 && d < limit, "%v is not within %v", d, limit)
			longest = max(longest, d)
		}
		require.Greater(t, longest, limit/2, "the limit doubles with each try")
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	require.True(t, idempotency.Pause(t.Context(), time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, idempotency.Pause(ctx, time.Hour), "ends with its context")
}

func TestYieldOrPark(t *testing.T) {
	t.Parallel()

	t.Run("YieldsWhileTheKeyIsYoung", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.unfinished("k")
		claim, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		claim.Age = idempotency.SlowRetryAfter
		require.NoError(t, claim.YieldOrPark(t.Context(), errStripeUnreachable))
		require.Equal(
			t, 1,
			r.count("parked_at IS NULL AND last_error = 'cannot reach Stripe' AND next_attempt_at > clock_timestamp()"),
		)
	})

	t.Run("ParksOnceTheKeyIsTooOld", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.unfinished("k")
		claim, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		claim.Age = idempotency.ParkAfter + 1
		require.NoError(t, claim.YieldOrPark(t.Context(), errStripeUnreachable))
		require.Equal(t, 1, r.count("parked_at IS NOT NULL AND last_error = 'cannot reach Stripe'"))
	})

	t.Run("ReportsOnlyALostLease", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.unfinished("k")
		stale, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		r.exec("UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms'")
		holder, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		require.ErrorIs(t, stale.YieldFor(t.Context(), time.Second, errStripeUnreachable), idempotency.ErrLeaseLost)
		require.ErrorIs(t, stale.ParkBecause(t.Context(), errStripeUnreachable), idempotency.ErrLeaseLost)

		r.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
		require.NoError(
			t,
			holder.YieldFor(t.Context(), time.Second, errStripeUnreachable),
			"its lease runs out instead",
		)
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	type order struct{ ID string }
	require.Equal(t, order{ID: "ord_1"}, idempotency.Decode[order]([]byte(`{"ID":"ord_1"}`)))
	require.PanicsWithValue(t,
		"bug: a stored request cannot be decoded as idempotency_test.order: unexpected end of JSON input",
		func() { idempotency.Decode[order]([]byte(`{"ID":`)) })
	require.JSONEq(t, `{"ID":"ord_1"}`, string(idempotency.Encode(order{ID: "ord_1"})))
	require.PanicsWithValue(t,
		"bug: a request cannot be encoded as func(): json: unsupported type: func()",
		func() { idempotency.Encode(func() {}) })
}
