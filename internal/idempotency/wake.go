package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

// Expedite makes an unfinished key due at once, because its resource was changed in the transaction of q. A key that is
// held is left alone: its holder finds the change when it writes.
func Expedite(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := TryExpedite(ctx, q, tenantID, key)
	return err
}

// ExpediteHolder is Expedite for a change that the holder cannot find, because it was made elsewhere (at Stripe): a
// holder that has read the old state there reads it again before it gives the claim back. q's transaction must hold no
// lock that a phase of the key's operation could wait for.
func ExpediteHolder(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := expedite(ctx, q, db.KeyExpediteParams{TenantID: tenantID, Key: key, EvenHeld: true})
	return err
}

// TryExpedite is Expedite, and reports whether there was an unfinished key without a holder. A parked key is resumed,
// too.
func TryExpedite(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	return expedite(ctx, q, db.KeyExpediteParams{TenantID: tenantID, Key: key})
}

func expedite(ctx context.Context, q *db.Queries, p db.KeyExpediteParams) (bool, error) {
	n, err := q.KeyExpedite(ctx, p)
	if err != nil {
		return false, fmt.Errorf("expedite a key: %w", err)
	}
	return n > 0, nil
}

// RetryNow is TryExpedite for an operator, who may know that the cause is fixed: it also resumes a key that was parked
// because too many of its holders crashed. Automatic callers must not do that: each retry could crash another process.
func RetryNow(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	n, err := q.KeyRetryNow(ctx, db.KeyRetryNowParams{TenantID: tenantID, Key: key})
	if err != nil {
		return false, fmt.Errorf("retry a key now: %w", err)
	}
	return n > 0, nil
}

// Enqueue adds work that no client requested, under a key of our own, as a claim that waits for the completer. The key
// contains a space, which no client's key can. Adding a key that exists does nothing.
func (s *Store) Enqueue(ctx context.Context, q *db.Queries, r Request, resourceID, point string) error {
	_, err := s.EnqueueNew(ctx, q, r, resourceID, point)
	return err
}

// EnqueueNew is Enqueue for a caller that counts what it begins: it reports whether the key was added.
func (s *Store) EnqueueNew(
	ctx context.Context, q *db.Queries, r Request, resourceID, point string,
) (added bool, err error) {
	sum := sha256.Sum256([]byte(r.Operation + " " + resourceID))
	n, err := q.KeyEnqueue(ctx, db.KeyEnqueueParams{
		TenantID: r.TenantID, Key: r.Key, Operation: r.Operation,
		Fingerprint: sum[:], FingerprintVersion: FingerprintVersion,
		Request: s.sealRequest(r), RequestID: r.RequestID, ResourceID: resourceID, RecoveryPoint: point,
		ClaimToken: uuid.New(), Traceparent: tracing.Traceparent(ctx),
	})
	if err != nil {
		return false, fmt.Errorf("enqueue %s: %w", r.Operation, err)
	}
	return n > 0, nil
}
