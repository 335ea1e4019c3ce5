package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

// Hurry has the completer look at an unfinished key at once, because its resource
// was changed in the transaction of q. A holder is left alone: it finds the change
// when it writes.
func Hurry(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := Hurried(ctx, q, tenantID, key)
	return err
}

// HurryHolder is Hurry for a change that the holder cannot find, because it was
// made elsewhere: a holder that looked just before looks once more. q's transaction
// must hold no lock that a phase of the key's operation could wait for.
func HurryHolder(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := hurry(ctx, q, db.KeyExpediteParams{TenantID: tenantID, Key: key, EvenHeld: true})
	return err
}

// Hurried is Hurry for a caller who wants to know whether there was an unfinished
// key that nobody holds. One that was parked is looked at again, too.
func Hurried(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	return hurry(ctx, q, db.KeyExpediteParams{TenantID: tenantID, Key: key})
}

func hurry(ctx context.Context, q *db.Queries, p db.KeyExpediteParams) (bool, error) {
	n, err := q.KeyExpedite(ctx, p)
	if err != nil {
		return false, fmt.Errorf("hurry a key along: %w", err)
	}
	return n > 0, nil
}

// TryNow is Hurried for a person, who may know that the cause is fixed: a key that was
// parked because its holders died is tried again, too. Only a person may ask for that.
func TryNow(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	n, err := q.KeyRetryNow(ctx, db.KeyRetryNowParams{TenantID: tenantID, Key: key})
	if err != nil {
		return false, fmt.Errorf("have a key tried now: %w", err)
	}
	return n > 0, nil
}

// Enqueue adds work that no caller asked for, under a key of our own, as a claim that
// waits for the completer. The key contains a space, which no caller's key can. Adding
// a key that exists does nothing.
func Enqueue(ctx context.Context, q *db.Queries, r Request, resourceID, point string) error {
	sum := sha256.Sum256([]byte(r.Operation + " " + resourceID))
	err := q.KeyEnqueue(ctx, db.KeyEnqueueParams{
		TenantID: r.TenantID, Key: r.Key, Operation: r.Operation, Fingerprint: sum[:], FingerprintVersion: FingerprintVersion,
		Request: r.Body, RequestID: r.RequestID, ResourceID: resourceID, RecoveryPoint: point, ClaimToken: uuid.New(), Traceparent: tracing.Traceparent(ctx),
	})
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", r.Operation, err)
	}
	return nil
}
