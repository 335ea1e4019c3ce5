package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// New is a claim that does not exist yet: what the first phase inserts.
type New struct {
	Request    Request
	ResourceID string
	Point      string // the recovery point that the first phase ends at
	ClaimToken uuid.UUID
	Lease      time.Duration
}

// Begin claims a fresh key and runs fn, in one transaction that ends at the recovery point: either the key is claimed
// and fn's writes are made, or neither. ErrTaken: another request was faster, and nothing was written.
func (s *Store) Begin(
	ctx context.Context, r Request, resourceID, point string, fn func(q *db.Queries) error,
) (*Claim, error) {
	return s.BeginBehind(ctx, r, resourceID, point, func(*db.Queries) error { return nil }, fn)
}

// BeginBehind is Begin for an operation that must lock something else before its key, such as the order that a payment
// locks first, too. Two operations under one key that took the two locks in different orders would deadlock.
func (s *Store) BeginBehind(
	ctx context.Context, r Request, resourceID, point string, lock, fn func(q *db.Queries) error,
) (*Claim, error) {
	n := s.newClaim(r, resourceID, point)
	return s.begin(ctx, n, func() error {
		return s.pool.InTx(ctx, func(q *db.Queries) error {
			if err := lock(q); err != nil {
				return err
			}
			if err := s.insert(ctx, q, n, n.Point); err != nil {
				return err
			}
			return fn(q)
		})
	})
}

// BeginStatement is Begin for a first phase that is one SQL statement, including the claim: one round trip. fn returns
// postgres.ErrNoRows if the statement claimed nothing.
func (s *Store) BeginStatement(
	ctx context.Context, r Request, resourceID, point string, fn func(n New) error,
) (*Claim, error) {
	n := s.newClaim(r, resourceID, point)
	return s.begin(ctx, n, func() error {
		err := fn(n)
		if errors.Is(err, postgres.ErrNoRows) {
			return ErrTaken
		}
		return postgres.ClassifyWriteError(err)
	})
}

// BeginFinished claims a fresh key, runs fn and stores fn's answer in one transaction: an operation that calls no other
// system is finished in its first phase.
func (s *Store) BeginFinished(
	ctx context.Context, r Request, resourceID string,
	fn func(q *db.Queries) (Answer, error),
) (Answer, error) {
	n := s.newClaim(r, resourceID, Finished)
	var answer Answer
	c, err := s.begin(ctx, n, func() error {
		return s.pool.InTx(ctx, func(q *db.Queries) (err error) {
			if err = s.insert(ctx, q, n, started); err != nil {
				return err
			}
			if answer, err = fn(q); err != nil {
				return err
			}
			return s.finish(ctx, q, r.TenantID, r.Key, 1, answer)
		})
	})
	if err != nil {
		return Answer{}, err
	}
	if c.answer.Status != 0 { // the stored answer, if it had to be read back
		return c.answer, nil
	}
	return answer, nil
}

func (s *Store) newClaim(r Request, resourceID, point string) New {
	return New{Request: r, ResourceID: resourceID, Point: point, ClaimToken: uuid.New(), Lease: s.o.Lease}
}

func (s *Store) insert(ctx context.Context, q *db.Queries, n New, point string) error {
	_, err := q.KeyClaim(ctx, db.KeyClaimParams{
		TenantID: n.Request.TenantID, Key: n.Request.Key, Operation: n.Request.Operation,
		Fingerprint: n.Request.Fingerprint, FingerprintVersion: FingerprintVersion,
		Request:    s.sealRequest(n.Request),
		RequestID:  n.Request.RequestID,
		ResourceID: n.ResourceID, RecoveryPoint: point, ClaimToken: n.ClaimToken, Lease: n.Lease,
		Traceparent: tracing.Traceparent(ctx),
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return ErrTaken
	}
	return err
}

// begin runs a first phase until its outcome is known. In doubt, the row is read back: with our claim token it is ours,
// so the first caller need not wait until its own lease expires. Without a row the insert may still be executing,
// because a server whose client disconnected completes its statement; so the phase runs again under the same token, and
// recognises its own row if it conflicts with it.
func (s *Store) begin(ctx context.Context, n New, phase func() error) (c *Claim, err error) {
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "phase ", n.Point)
	defer func() {
		if c != nil {
			c.describe(span)
		}
		span.End(err)
	}()
	for inDoubt := false; ; inDoubt = true {
		err := phase()
		if errors.Is(err, postgres.ErrInDoubt) || inDoubt && errors.Is(err, ErrTaken) {
			c, readErr := s.recognise(ctx, n, err)
			if c != nil || readErr != nil {
				return c, readErr
			}
			if errors.Is(err, ErrTaken) { // The server responded: its conflict is not about the key, and would recur.
				return nil, err
			}
			continue
		}
		if err != nil && inDoubt && postgres.Unavailable(err) {
			// This run wrote nothing, but the one before may still be executed.
			return nil, fmt.Errorf("%w: %w", postgres.ErrInDoubt, err)
		}
		if err != nil {
			return nil, err
		}
		s.o.Metrics.claimed(n.Request.Operation)
		c := &Claim{
			store: s, TenantID: n.Request.TenantID, Key: n.Request.Key, Operation: n.Request.Operation,
			Request: n.Request.Body, RequestID: n.Request.RequestID,
			ResourceID: n.ResourceID, Token: 1, Attempts: 1, point: n.Point, since: time.Now(),
		}
		c.reached(n.Point)
		return c, nil
	}
}

// recognise reads back a claim that may have been made. Nil without an error: there is none.
func (s *Store) recognise(ctx context.Context, n New, doubt error) (*Claim, error) {
	s.o.Metrics.inDoubt.Inc()
	row, err := s.readKey(ctx, keyOf{n.Request.TenantID, n.Request.Key})
	switch {
	case errors.Is(err, postgres.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, doubt
	case row.ClaimToken != n.ClaimToken:
		return nil, ErrTaken
	}
	s.o.Metrics.claimed(n.Request.Operation)
	c, err := s.claimRead(ctx, row, n.Request)
	if err != nil {
		return nil, err
	}
	c.reached(row.RecoveryPoint)
	return c, nil
}
