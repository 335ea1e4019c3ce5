package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

func answering(a idempotency.Answer, err error) func(*db.Queries) (idempotency.Answer, error) {
	return func(*db.Queries) (idempotency.Answer, error) { return a, err }
}

// TestPhase: what a phase writes and its recovery point are one commit.
func TestPhase(t *testing.T) {
	t.Parallel()

	t.Run("EndsAtItsRecoveryPoint", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		c := w.claim("k")
		require.NoError(t, c.Phase(t.Context(), "thing_made", w.write("ten_made")))
		require.True(t, w.written("ten_made"))
		require.Equal(t, "thing_made", c.RecoveryPoint())
		require.Equal(t, 1, w.count("recovery_point = 'thing_made'"))
		require.Equal(t, []string{thing + " thing_recorded", thing + " thing_made"}, w.reached)
	})

	t.Run("EndsWhereItBeganIfItFails", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		c := w.claim("k")
		require.Equal(t, errRefused, c.Phase(t.Context(), "thing_made", func(*db.Queries) error { return errRefused }))
		require.Equal(t, "thing_recorded", c.RecoveryPoint())
		require.Equal(t, 1, w.count("recovery_point = 'thing_recorded'"))
		require.Zero(t, w.counted("payonce_fenced_writes_total", ""))
		require.NotContains(t, w.log.String(), "write rejected")
	})

	t.Run("DoesNotRunWithoutItsLease", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		stale := w.claim("k")
		w.expire()
		w.takeOver("k")
		require.ErrorIs(t, stale.Phase(t.Context(), "thing_made", func(*db.Queries) error {
			t.Error("it ran")
			return nil
		}), idempotency.ErrLeaseLost)
		require.ErrorIs(t, stale.Finish(t.Context(), func(*db.Queries) (idempotency.Answer, error) {
			t.Error("it ran")
			return created, nil
		}), idempotency.ErrLeaseLost)
		require.Equal(t, 2, w.counted("payonce_fenced_writes_total", thing))
		require.Contains(t, w.log.String(), "write rejected")
	})
}

// TestFinish: the answer of a claim is the one that its row has, and there is none before.
func TestFinish(t *testing.T) {
	t.Parallel()
	statement := func(w *watched, c *idempotency.Claim) func(*db.Queries, idempotency.Encoded) (int64, error) {
		return func(q *db.Queries, e idempotency.Encoded) (int64, error) {
			return q.KeyFinish(w.t.Context(), db.KeyFinishParams{TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token,
				AnswerVersion: e.Version, AnswerStatus: e.Status, AnswerHeaders: e.Headers, AnswerBody: e.Body})
		}
	}
	for name, finish := range map[string]func(*watched, *idempotency.Claim, idempotency.Answer, error) error{
		"Phase": func(w *watched, c *idempotency.Claim, a idempotency.Answer, err error) error {
			return c.Finish(w.t.Context(), answering(a, err))
		},
		"Statement": func(w *watched, c *idempotency.Claim, a idempotency.Answer, err error) error {
			return c.FinishStatement(w.t.Context(), a, func(e idempotency.Encoded) error {
				if err != nil {
					return err
				}
				return changed(statement(w, c)(w.pool.Queries, e))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			c := w.claim("k")
			require.Equal(t, serverRefuses, finish(w, c, created, serverRefuses))
			require.ErrorContains(t, finish(w, c, unstorable, nil), "line break")
			require.Zero(t, c.Answer())
			require.Equal(t, 1, w.count("finished_at IS NULL"))

			require.NoError(t, finish(w, c, created, nil))
			require.Equal(t, idempotency.Finished, c.RecoveryPoint())
			require.Equal(t, created, c.Answer())
			require.Equal(t, created, w.state("k").Answer)
		})
	}

	t.Run("HasLostItsLeaseIfItsStatementDoesNothing", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		require.ErrorIs(t, w.claim("k").FinishStatement(t.Context(), created,
			func(idempotency.Encoded) error { return postgres.ErrNoRows }), idempotency.ErrLeaseLost)
	})

	t.Run("SendsNoStatementWithoutAnAnswer", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		require.Error(t, w.claim("k").FinishStatement(t.Context(), unstorable,
			func(idempotency.Encoded) error {
				t.Error("it was sent")
				return nil
			}))
	})
}

// TestStatementOfAChangedRow: the server has responded, so the outcome is known and the statement is not repeated.
func TestStatementOfAChangedRow(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	sent := 0
	err := w.claim("k").Statement(t.Context(), "thing_made", func() error {
		if sent++; sent > 1 {
			return serverRefuses
		}
		return idempotency.ErrRowChanged
	})
	require.Equal(t, idempotency.ErrRowChanged, err)
	require.Equal(t, 1, sent)
	require.Zero(t, w.counted("payonce_commits_in_doubt_total", ""))
}

// TestPhaseInDoubt loses the response to a phase's COMMIT: the row says what became of it.
func TestPhaseInDoubt(t *testing.T) {
	t.Parallel()

	t.Run("AndItWasCommitted", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		c := l.claimBy(l.far, "k")
		lost := l.proxy.AfterCommit("-- name: KeyAdvance")
		require.NoError(t, c.Phase(t.Context(), "thing_made", l.write("ten_made")))
		require.True(t, lost.HasFired())
		require.Equal(t, "thing_made", c.RecoveryPoint())

		lost = l.proxy.AfterCommit("-- name: KeyFinish")
		require.NoError(t, c.Finish(t.Context(), answering(created, nil)))
		require.True(t, lost.HasFired())
		require.Equal(t, created, c.Answer())
		require.Equal(t, created, l.state("k").Answer)
		require.Equal(t, 2, l.counted("payonce_commits_in_doubt_total", ""))
	})

	t.Run("AndItWasNotCommitted", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		c := l.claimBy(l.far, "k")
		lost := l.proxy.BeforeCommit("-- name: KeyAdvance")
		require.NoError(t, c.Phase(t.Context(), "thing_made", l.write("ten_made")))
		require.True(t, lost.HasFired())
		require.True(t, l.written("ten_made"))
		require.Equal(t, 1, l.count("recovery_point = 'thing_made'"))
	})

	t.Run("AndItIsCommittedLate", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		c := l.claimBy(l.far, "k")
		l.proxy.BeforeCommit("-- name: KeyAdvance")
		l.beforeReadBack(func() { l.exec("UPDATE idempotency_keys SET recovery_point = 'thing_made'") })
		ran := 0
		require.NoError(t, c.Phase(t.Context(), "thing_made", func(*db.Queries) error { ran++; return nil }))
		require.Equal(t, 1, ran, "it never runs after its own commit")
		require.Equal(t, "thing_made", c.RecoveryPoint())
	})

	t.Run("AndTheStatementWasExecuted", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		c := l.claimBy(l.far, "k")
		lost := l.proxy.After("-- name: KeyAdvance")
		sent := 0
		require.NoError(t, c.Statement(t.Context(), "thing_made", func() error {
			sent++
			return changed(l.away.KeyAdvance(t.Context(), db.KeyAdvanceParams{
				TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: "thing_made",
			}))
		}))
		require.True(t, lost.HasFired())
		require.Equal(t, 1, sent)
	})

	t.Run("AndTheDatabaseStaysAway", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		c := l.claimBy(l.far, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := c.Statement(ctx, "thing_made", func() error {
			l.proxy.Away(true)
			return postgres.ErrInDoubt
		})
		require.ErrorIs(t, err, postgres.ErrInDoubt)
		require.ErrorContains(t, err, "cannot be read back")
		require.Equal(t, "thing_recorded", c.RecoveryPoint())
	})
}
