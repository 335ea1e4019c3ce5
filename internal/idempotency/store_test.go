package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

// TestStaleClaim tries every way in which a claim can be moved, with one that was
// taken over, and with one that is finished.
func TestStaleClaim(t *testing.T) {
	t.Parallel()
	answer := func(*db.Queries) (idempotency.Answer, error) {
		return idempotency.Answer{Status: 201, ContentType: "application/json", Body: []byte(`{"by":"whoever asks"}`)}, nil
	}
	ways := map[string]func(context.Context, *idempotency.Claim) error{
		"Phase": func(ctx context.Context, c *idempotency.Claim) error {
			return c.Phase(ctx, "thing_late", func(*db.Queries) error { return nil })
		},
		"Finish": func(ctx context.Context, c *idempotency.Claim) error { return c.Finish(ctx, answer) },
		"Yield":  func(ctx context.Context, c *idempotency.Claim) error { return c.Yield(ctx, time.Hour, "late") },
		"Park":   func(ctx context.Context, c *idempotency.Claim) error { return c.Park(ctx, "late") },
	}
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReaping(t)
			r.unfinished("k")
			seen := r.state("k")
			stale, err := r.store.TakeOver(t.Context(), request("k"), seen)
			require.NoError(t, err)
			r.exec("UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms'")
			heir, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
			require.NoError(t, err)

			require.ErrorIs(t, write(t.Context(), stale), idempotency.ErrLeaseLost)
			require.Equal(t, 1, r.count(`lease_token = 3 AND leased_until > clock_timestamp() AND resume_at >= leased_until
				AND recovery_point = 'thing_recorded' AND finished_at IS NULL AND parked_at IS NULL AND last_error IS NULL`), "only its holder moves a claim")
			require.NoError(t, heir.Yield(t.Context(), 0, "for whoever comes"))
			require.ErrorIs(t, write(t.Context(), stale), idempotency.ErrLeaseLost, "nor when it is nobody's")
			_, err = r.store.TakeOver(t.Context(), request("k"), seen)
			require.ErrorIs(t, err, idempotency.ErrTaken, "what was seen is not so any more")

			heir, err = r.store.TakeOver(t.Context(), request("k"), r.state("k"))
			require.NoError(t, err)
			require.NoError(t, heir.Finish(t.Context(), answer))
			require.ErrorIs(t, write(t.Context(), heir), idempotency.ErrLeaseLost, "nor when it is finished")
			require.Equal(t, 1, r.count("finished_at IS NOT NULL AND parked_at IS NULL AND last_error IS NULL AND lease_token = 4"))
		})
	}
}

// TestKeyServesOneOperation: whatever the fingerprint says.
func TestKeyServesOneOperation(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	r.finished("k")
	other := request("k")
	other.Operation = "destroy_thing"
	found, err := r.store.Lookup(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, idempotency.Found{State: idempotency.Mismatch}, found, "and nothing of the first is revealed")
}
