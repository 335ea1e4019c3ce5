package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// TestStaleClaim tries every way in which a claim can be moved, with one that was
// taken over, and with one that is finished.
func TestStaleClaim(t *testing.T) {
	t.Parallel()
	answer := func(*db.Queries) (idempotency.Answer, error) {
		return idempotency.Answer{
			Status: 201, ContentType: "application/json", Body: []byte(`{"by":"whoever asks"}`),
		}, nil
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
			require.Equal(
				t, 1,
				r.count(`lease_token = 3 AND leased_until > clock_timestamp() AND next_attempt_at >= leased_until
				AND recovery_point = 'thing_recorded' AND finished_at IS NULL AND parked_at IS NULL AND last_error IS NULL`),
				"only its holder moves a claim",
			)
			require.NoError(t, heir.Yield(t.Context(), 0, "for whoever comes"))
			require.ErrorIs(t, write(t.Context(), stale), idempotency.ErrLeaseLost, "nor when it is nobody's")
			_, err = r.store.TakeOver(t.Context(), request("k"), seen)
			require.ErrorIs(t, err, idempotency.ErrTaken, "what was seen is not so any more")

			heir, err = r.store.TakeOver(t.Context(), request("k"), r.state("k"))
			require.NoError(t, err)
			require.NoError(t, heir.Finish(t.Context(), answer))
			require.ErrorIs(t, write(t.Context(), heir), idempotency.ErrLeaseLost, "nor when it is finished")
			require.Equal(
				t, 1,
				r.count("finished_at IS NOT NULL AND parked_at IS NULL AND last_error IS NULL AND lease_token = 4"),
			)
		})
	}
}

// TestInDoubt loses an answer, and has the claim find out what became of it: from the
// row, and from nothing in the row that may be another's.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	t.Run("AboutAClaimThatIsAnothers", func(t *testing.T) {
		t.Parallel()
		r := newLossy(t)
		first, err := r.store.Begin(
			t.Context(),
			request("k"),
			"thing_k", "thing_recorded",
			func(*db.Queries) error { return nil },
		)
		require.NoError(t, err)
		lost := r.proxy.After("-- name: KeyClaim")
		_, err = r.far.BeginStatement(
			t.Context(),
			request("k"),
			"thing_2", "thing_recorded",
			func(n idempotency.New) error {
				_, err := r.away.KeyClaim(t.Context(), db.KeyClaimParams{
					TenantID: n.Request.TenantID, Key: n.Request.Key, Operation: n.Request.Operation,
					Fingerprint: n.Request.Fingerprint, FingerprintVersion: 1,
					Request: n.Request.Body, RequestID: n.Request.RequestID, ResourceID: n.ResourceID,
					RecoveryPoint: n.Point, ClaimToken: n.ClaimToken, Lease: n.Lease,
				})
				return err
			},
		)
		require.True(t, lost.HasFired())
		require.ErrorIs(t, err, idempotency.ErrTaken, "a claim is whose token it carries")
		require.NoError(t, first.Phase(t.Context(), "thing_made", func(*db.Queries) error { return nil }))
	})

	t.Run("AboutAPointThatAnotherHasReached", func(t *testing.T) {
		t.Parallel()
		r := newLossy(t)
		r.unfinished("k")
		stale, err := r.far.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		r.exec("UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms'")
		heir, err := r.store.TakeOver(t.Context(), request("k"), r.state("k"))
		require.NoError(t, err)
		require.NoError(t, heir.Phase(t.Context(), "thing_made", func(*db.Queries) error { return nil }))
		lost := r.proxy.After("-- name: KeyAdvance")
		err = stale.Statement(t.Context(), "thing_made", func() error {
			return changed(r.away.KeyAdvance(
				t.Context(),
				db.KeyAdvanceParams{
					TenantID: stale.TenantID, Key: stale.Key, LeaseToken: stale.Token, RecoveryPoint: "thing_made",
				},
			))
		})
		require.True(t, lost.HasFired())
		require.ErrorIs(t, err, idempotency.ErrLeaseLost, "it was another who reached it")
		require.NotErrorIs(t, err, postgres.ErrInDoubt, "nothing of it is unknown")
		require.Equal(t, 1, r.counted("payonce_fenced_writes_total", thing))
	})

	// The COMMIT was lost, the second run is refused by a server that is shutting down, and the first may still land.
	t.Run("StaysInDoubtWhenTheSecondRunIsCutOff", func(t *testing.T) {
		t.Parallel()
		r := newLossy(t)
		lost := r.proxy.BeforeCommit("-- name: KeyClaim")
		tried := 0
		_, err := r.far.Begin(t.Context(), request("k"), "thing_k", "thing_recorded", func(*db.Queries) error {
			if tried++; tried == 2 {
				return &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection"}
			}
			return nil
		})
		require.True(t, lost.HasFired())
		require.Equal(t, 2, tried)
		require.ErrorIs(t, err, postgres.ErrInDoubt)
	})

	// Such as a phase that announces a call to Stripe, which is not sent unannounced.
	t.Run("AboutAPhaseThatEndsWhereItBegan", func(t *testing.T) {
		t.Parallel()
		r := newLossy(t)
		claim, err := r.far.Begin(
			t.Context(),
			request("k"),
			"thing_k", "thing_recorded",
			func(*db.Queries) error { return nil },
		)
		require.NoError(t, err)
		lost := r.proxy.BeforeCommit("-- name: KeyAdvance")
		tried := 0
		err = claim.Phase(t.Context(), "thing_recorded", func(q *db.Queries) error {
			tried++
			return q.TenantCreate(
				t.Context(),
				db.TenantCreateParams{ID: "ten_announced", Name: "announced", FingerprintSecret: make([]byte, 32)},
			)
		})
		require.NoError(t, err)
		require.True(t, lost.HasFired())
		require.Equal(t, 2, tried, "the row shows where it began, and not that it has ended")
		written, err := r.pool.TenantServedHere(t.Context(), "ten_announced")
		require.NoError(t, err)
		require.True(t, written)
	})
}

// TestClaimGoesBack although the time for the work is up: that is what it goes back for.
func TestClaimGoesBack(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	claim, err := r.store.Begin(
		t.Context(),
		request("k"),
		"thing_k", "thing_recorded",
		func(*db.Queries) error { return nil },
	)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, claim.Yield(ctx, 0, "the time was up"))
	require.Equal(t, idempotency.Waiting, r.state("k").State, "nobody need wait for the lease")
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

// TestLookup: every state of a key, and after an error none.
func TestLookup(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	require.Equal(t, idempotency.Found{State: idempotency.Fresh}, r.state("k"))
	r.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
	found, err := r.store.Lookup(t.Context(), request("k"))
	require.ErrorContains(t, err, "look up the key")
	require.Zero(t, found)
}

// TestTakeOver: a claim that was taken over is one that had a run before.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.claim("k")
	w.expire()
	c := w.takeOver("k")
	require.True(t, c.Resumed())
	require.Equal(t, 1, w.counted("payonce_claims_total", "taken_over"))
	require.NoError(t, c.Yield(t.Context(), 0, "for the next"))
	require.NoError(t, w.takeOver("k").Yield(t.Context(), 0, "for the next"))
	require.Equal(t, 1, w.counted("payonce_claims_total", "resumed"))

	found := w.state("k")
	w.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
	_, err := w.store.TakeOver(t.Context(), request("k"), found)
	require.ErrorContains(t, err, "take over the key")
	require.NotErrorIs(t, err, idempotency.ErrTaken)
}

// TestEnqueue: work of the service itself is added once, and is due at once when it is expedited.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	ctx, q := t.Context(), r.pool.Queries
	answers := func(want bool) func(bool, error) {
		return func(got bool, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	answers(true)(r.store.EnqueueNew(ctx, q, request("k"), "thing_k", "thing_recorded"))
	answers(false)(r.store.EnqueueNew(ctx, q, request("k"), "thing_k", "thing_recorded"))
	require.NoError(t, r.store.Enqueue(ctx, q, request("k"), "thing_k", "thing_recorded"))
	require.Equal(t, 1, r.count("attempts = 0 AND leased_until = '-infinity'"))
	answers(true)(idempotency.TryExpedite(ctx, q, "ten_a", "k"))
	answers(false)(idempotency.TryExpedite(ctx, q, "ten_a", "another"))
	answers(true)(idempotency.RetryNow(ctx, q, "ten_a", "k"))
	answers(false)(idempotency.RetryNow(ctx, q, "ten_a", "another"))
	require.NoError(t, idempotency.ExpediteHolder(ctx, q, "ten_a", "k"))

	r.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
	for want, do := range map[string]func() error{
		"enqueue create_thing": func() error {
			return r.store.Enqueue(ctx, q, request("k"), "thing_k", "thing_recorded")
		},
		"expedite a key": func() error { return idempotency.Expedite(ctx, q, "ten_a", "k") },
		"retry a key now": func() error {
			_, err := idempotency.RetryNow(ctx, q, "ten_a", "k")
			return err
		},
	} {
		require.ErrorContains(t, do(), want)
	}
}
