package idempotency

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// Phase runs fn in one transaction that ends at the recovery point to. The key's row is locked and the token checked
// before fn runs, so a holder that lost its lease writes nothing: ErrLeaseLost.
//
// When the response to COMMIT is lost, the row is read back, and fn runs again if the commit had no effect. So fn may
// run more than once, and must not change anything outside of q that makes a second run wrong. It never runs after its
// own commit: a server whose client disconnected may still be executing that COMMIT when the row is read back, but then
// the lock on the row waits for it and shows the result.
func (c *Claim) Phase(ctx context.Context, to string, fn func(q *db.Queries) error) error {
	return c.durably(ctx, to, func() error {
		return c.store.pool.InTx(ctx, func(q *db.Queries) error {
			point, err := c.lockFenced(ctx, q)
			if err != nil {
				return err
			}
			if point == to && to != c.point {
				return errAlreadyCommitted
			}
			if err := fn(q); err != nil {
				return err
			}
			n, err := q.KeyAdvance(
				ctx, db.KeyAdvanceParams{TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: to},
			)
			return rows(n, err)
		})
	})
}

// Finish is the last phase: fn's writes and its answer, in one commit. From then on every request with the key gets
// this answer.
func (c *Claim) Finish(ctx context.Context, fn func(q *db.Queries) (Answer, error)) error {
	var answer Answer
	err := c.durably(ctx, Finished, func() error {
		return c.store.pool.InTx(ctx, func(q *db.Queries) (err error) {
			if _, err = c.lockFenced(ctx, q); err != nil {
				return err
			}
			if answer, err = fn(q); err != nil {
				return err
			}
			return c.store.finish(ctx, q, c.TenantID, c.Key, c.Token, answer)
		})
	})
	if err == nil {
		c.answer = answer
	}
	return err
}

// Statement is a phase that is one SQL statement, including the fence: one round trip. postgres.ErrNoRows from fn, which
// runs it, means ErrLeaseLost, unless fn has determined that it means ErrRowChanged.
func (c *Claim) Statement(ctx context.Context, to string, fn func() error) error {
	return c.durably(ctx, to, func() error {
		err := fn()
		switch {
		case errors.Is(err, ErrRowChanged):
			return err // The server responded, so the outcome is known.
		case errors.Is(err, postgres.ErrNoRows):
			return ErrLeaseLost
		}
		return postgres.ClassifyWriteError(err)
	})
}

// FinishStatement is Finish as one SQL statement; fn gets the encoded answer.
func (c *Claim) FinishStatement(ctx context.Context, answer Answer, fn func(a Encoded) error) error {
	encoded, err := c.store.sealAnswer(c.TenantID, c.Key, answer)
	if err != nil {
		return err
	}
	err = c.Statement(ctx, Finished, func() error { return fn(encoded) })
	if err == nil {
		c.answer = answer
	}
	return err
}

// lockFenced locks the key's row, checks the token and returns the recovery point.
func (c *Claim) lockFenced(ctx context.Context, q *db.Queries) (point string, err error) {
	point, err = q.KeyLockFenced(ctx, db.KeyLockFencedParams{TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token})
	if errors.Is(err, postgres.ErrNoRows) {
		return "", ErrLeaseLost
	}
	return point, err
}

// errAlreadyCommitted means that an earlier attempt at the phase, whose outcome was unknown, has been committed.
var errAlreadyCommitted = errors.New("the phase has been committed already")

// durably runs a phase until its outcome is known: committed, rejected, or out of time. So a COMMIT whose response is
// lost counts neither as success nor as failure.
func (c *Claim) durably(ctx context.Context, to string, phase func() error) (err error) {
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "phase ", to)
	defer func() {
		c.describe(span)
		span.End(err)
	}()
	for {
		err := phase()
		if errors.Is(err, postgres.ErrInDoubt) {
			c.store.o.Metrics.inDoubt.Inc()
			span.Event("commit in doubt")
			done, readErr := c.readBack(ctx, to)
			switch {
			case errors.Is(readErr, ErrLeaseLost):
				return c.fenced(readErr)
			case readErr != nil:
				return fmt.Errorf("%w; and the outcome cannot be read back: %w", err, readErr)
			case !done:
				// Not committed so far. If it commits later, a phase finds its key advanced, and a statement has its
				// own guards.
				continue
			}
			err = nil
		}
		if err != nil && !errors.Is(err, errAlreadyCommitted) {
			return c.fenced(err)
		}
		c.reached(to)
		return nil
	}
}

// readBack reads whether the phase that ends at to has been committed under our token.
func (c *Claim) readBack(ctx context.Context, to string) (done bool, err error) {
	row, err := c.store.readKey(ctx, keyOf{c.TenantID, c.Key})
	switch {
	case err != nil:
		return false, err
	case row.LeaseToken != c.Token:
		return false, ErrLeaseLost
	}
	return row.RecoveryPoint == to && to != c.point, nil
}

func rows(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

func (s *Store) finish(ctx context.Context, q *db.Queries, tenantID, key string, token int64, a Answer) error {
	e, err := s.sealAnswer(tenantID, key, a)
	if err != nil {
		return err
	}
	n, err := q.KeyFinish(ctx, db.KeyFinishParams{
		TenantID: tenantID, Key: key, LeaseToken: token,
		AnswerVersion: e.Version, AnswerStatus: e.Status, AnswerHeaders: e.Headers, AnswerBody: e.Body,
	})
	return rows(n, err)
}

// Encoded is an answer as the row stores it: with its body sealed, if there is a key.
type Encoded struct {
	Version, Status int16
	Headers, Body   []byte
}

func encode(a Answer) (Encoded, error) {
	headers, err := a.encodeHeaders()
	if err != nil {
		return Encoded{}, err
	}
	body := a.Body
	if body == nil {
		body = []byte{}
	}
	return Encoded{
		Version: answerVersion,
		Status:  int16(a.Status), //nolint:gosec // an HTTP status fits
		Headers: headers, Body: body,
	}, nil
}
