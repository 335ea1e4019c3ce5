package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

var (
	serverRefuses = &pgconn.PgError{Severity: "ERROR", Code: "23514", Message: "refused"}
	created       = idempotency.Answer{Status: 201, ContentType: "application/json", Location: "/v1/things/1",
		Body: []byte(`{"id":"thing"}`)}
	unstorable = idempotency.Answer{Status: 201, Location: "a\r\nSet-Cookie: b"}
)

func nothing(*db.Queries) error { return nil }

// TestBegin: a fresh key is claimed in the commit that writes what its first phase writes, or neither is.
func TestBegin(t *testing.T) {
	t.Parallel()

	t.Run("ClaimsTheKey", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		c := w.claim("k")
		require.True(t, w.written("ten_k"))
		require.Equal(t, "thing_recorded", c.RecoveryPoint())
		require.False(t, c.Resumed())
		require.Equal(t, idempotency.InFlight, w.state("k").State)
		require.Equal(t, 1, w.counted("payonce_claims_total", "fresh"))
		require.Equal(t, []string{thing + " thing_recorded"}, w.reached)
	})

	t.Run("ClaimsNothingWithoutItsLock", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		_, err := w.store.BeginBehind(t.Context(), request("k"), "thing_k", "thing_recorded",
			func(*db.Queries) error { return errRefused }, w.write("ten_k"))
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, idempotency.Fresh, w.state("k").State)
		require.False(t, w.written("ten_k"))
	})

	t.Run("ClaimsNothingIfItsWriteIsRefused", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		_, err := w.store.Begin(t.Context(), request("k"), "thing_k", "thing_recorded",
			func(*db.Queries) error { return errRefused })
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, idempotency.Fresh, w.state("k").State)
		require.Zero(t, w.counted("payonce_claims_total", ""))
	})

	t.Run("WritesNothingUnderAKeyThatIsTaken", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		w.claim("k")
		_, err := w.store.Begin(t.Context(), request("k"), "thing_2", "thing_recorded", w.write("ten_2"))
		require.ErrorIs(t, err, idempotency.ErrTaken)
		require.False(t, w.written("ten_2"))
		require.Zero(t, w.counted("payonce_commits_in_doubt_total", ""), "the server responded")
	})

	t.Run("IsNotInDoubtAboutTheFirstError", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		_, err := w.store.Begin(t.Context(), request("k"), "thing_k", "thing_recorded", func(*db.Queries) error {
			return &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection"}
		})
		require.True(t, postgres.Unavailable(err), "%v", err)
		require.NotErrorIs(t, err, postgres.ErrInDoubt, "no commit was sent")
	})
}

// TestBeginStatement: what the statement reports is the result.
func TestBeginStatement(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"Claimed": {nil, nil}, "Taken": {postgres.ErrNoRows, idempotency.ErrTaken},
		"Refused": {serverRefuses, serverRefuses}, "NotSent": {postgres.ErrNotSent, postgres.ErrNotSent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			claim, err := w.store.BeginStatement(t.Context(), request("k"), "thing_k", "thing_recorded",
				func(idempotency.New) error { return c.err })
			require.Equal(t, c.want, err)
			require.Equal(t, c.want == nil, claim != nil)
			require.Zero(t, w.counted("payonce_commits_in_doubt_total", ""))
		})
	}
}

// TestBeginFinished: the answer is stored in the commit that writes what it is about, or neither is.
func TestBeginFinished(t *testing.T) {
	t.Parallel()
	begin := func(w *watched, fn func(q *db.Queries) (idempotency.Answer, error)) (idempotency.Answer, error) {
		return w.store.BeginFinished(w.t.Context(), request("k"), "thing_k", fn)
	}

	t.Run("StoresTheAnswer", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		answer, err := begin(w, func(q *db.Queries) (idempotency.Answer, error) { return created, w.write("ten_k")(q) })
		require.NoError(t, err)
		require.Equal(t, created, answer)
		require.True(t, w.written("ten_k"))
		require.Equal(t, created, w.state("k").Answer)
	})

	t.Run("LeavesAKeyThatIsTakenToItsHolder", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		holder := w.claim("k")
		_, err := begin(w, func(*db.Queries) (idempotency.Answer, error) {
			t.Error("the key is another's")
			return created, nil
		})
		require.ErrorIs(t, err, idempotency.ErrTaken)
		require.NoError(t, holder.Phase(t.Context(), "thing_made", nothing))
	})

	t.Run("StoresNothingIfItsWriteIsRefused", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		answer, err := begin(w, func(*db.Queries) (idempotency.Answer, error) { return created, errRefused })
		require.ErrorIs(t, err, errRefused)
		require.Zero(t, answer)
		require.Equal(t, idempotency.Fresh, w.state("k").State)
	})

	t.Run("WritesNothingIfItsAnswerCannotBeStored", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		_, err := begin(w, func(q *db.Queries) (idempotency.Answer, error) { return unstorable, w.write("ten_k")(q) })
		require.ErrorContains(t, err, "line break")
		require.Equal(t, idempotency.Fresh, w.state("k").State)
		require.False(t, w.written("ten_k"))
	})
}

// TestBeginInDoubt loses the response to a first COMMIT: the key is the caller's if the row has its claim token.
func TestBeginInDoubt(t *testing.T) {
	t.Parallel()

	t.Run("AndItWasCommitted", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		lost := l.proxy.AfterCommit("-- name: KeyClaim")
		unread := l.proxy.Before("-- name: KeyRead") // and is read again
		c := l.claimBy(l.far, "k")
		require.True(t, lost.HasFired())
		require.True(t, unread.HasFired())
		require.EqualValues(t, 1, c.Token)
		require.Equal(t, "thing_recorded", c.RecoveryPoint())
		require.Equal(t, 1, l.counted("payonce_claims_total", "fresh"))
		require.Equal(t, 1, l.counted("payonce_commits_in_doubt_total", ""))
		require.NoError(t, c.Phase(t.Context(), "thing_made", nothing))
	})

	t.Run("AndItWasNotCommitted", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		lost := l.proxy.BeforeCommit("-- name: KeyClaim")
		c := l.claimBy(l.far, "k")
		require.True(t, lost.HasFired())
		require.True(t, l.written("ten_k"))
		require.NoError(t, c.Phase(t.Context(), "thing_made", nothing))
	})

	t.Run("AndTheSecondRunIsRefused", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		l.proxy.BeforeCommit("-- name: KeyClaim")
		tried := 0
		_, err := l.far.Begin(t.Context(), request("k"), "thing_k", "thing_recorded", func(*db.Queries) error {
			if tried++; tried == 2 {
				return errRefused
			}
			return nil
		})
		require.Equal(t, errRefused, err)
		require.Equal(t, 2, tried)
	})

	t.Run("AndTheSecondRunIsNotSent", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		tried := 0
		_, err := w.store.BeginStatement(t.Context(), request("k"), "thing_k", "thing_recorded",
			func(idempotency.New) error {
				if tried++; tried == 1 {
					return postgres.ErrInDoubt
				}
				return postgres.ErrNotSent
			})
		require.ErrorIs(t, err, postgres.ErrInDoubt, "the first may still be executed")
		require.Equal(t, 2, tried)
	})

	t.Run("AndAnotherConflictWouldRecur", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t)
		tried := 0
		_, err := w.store.BeginStatement(t.Context(), request("k"), "thing_k", "thing_recorded",
			func(idempotency.New) error {
				switch tried++; tried {
				case 1:
					return postgres.ErrInDoubt
				case 2:
					return postgres.ErrNoRows
				}
				return serverRefuses
			})
		require.ErrorIs(t, err, idempotency.ErrTaken)
		require.Equal(t, 2, tried)
	})

	t.Run("AndTheDatabaseStaysAway", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.far.BeginStatement(ctx, request("k"), "thing_k", "thing_recorded",
			func(idempotency.New) error {
				l.proxy.Away(true)
				return postgres.ErrInDoubt
			})
		require.Equal(t, postgres.ErrInDoubt, err)
	})

	t.Run("AndItIsCommittedLate", func(t *testing.T) {
		t.Parallel()
		l := newLossy(t)
		l.proxy.BeforeCommit("-- name: KeyClaim")
		stored := idempotency.Answer{Status: 201, ContentType: "application/json", Body: []byte(`{"id":"the first"}`)}
		ran := 0
		answer, err := l.far.BeginFinished(t.Context(), request("k"), "thing_k",
			func(q *db.Queries) (idempotency.Answer, error) {
				ran++
				rows, err := q.KeyRead(t.Context(), db.KeyReadParams{TenantIds: []string{"ten_a"}, Keys: []string{"k"}})
				if err != nil {
					return idempotency.Answer{}, err
				}
				l.beforeReadBack(func() { l.commitLate(rows[0].ClaimToken, stored) })
				return created, nil
			})
		require.NoError(t, err)
		require.Equal(t, 1, ran)
		require.Equal(t, stored, answer, "the one that every retry will get")
	})
}

// commitLate stores an answer under a claim token, as the holder's first commit would.
func (l *lossy) commitLate(token uuid.UUID, a idempotency.Answer) {
	r, ctx := request("k"), l.t.Context()
	_, err := l.pool.KeyClaim(ctx, db.KeyClaimParams{
		TenantID: r.TenantID, Key: r.Key, Operation: r.Operation, Fingerprint: r.Fingerprint, FingerprintVersion: 1,
		Request: r.Body, RequestID: r.RequestID, ResourceID: "thing_k", RecoveryPoint: "started", ClaimToken: token,
		Lease: time.Minute,
	})
	if err == nil {
		_, err = l.pool.KeyFinish(ctx, db.KeyFinishParams{
			TenantID: r.TenantID, Key: r.Key, LeaseToken: 1, AnswerVersion: 1, AnswerStatus: int16(a.Status),
			AnswerHeaders: []byte("Content-Type: " + a.ContentType + "\r\n"), AnswerBody: a.Body,
		})
	}
	if err != nil {
		l.t.Error(err)
	}
}
