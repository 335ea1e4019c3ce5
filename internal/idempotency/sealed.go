package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

// keyMissingPause is how long a claim waits whose request this process cannot open, because it lacks a key that another
// one may have.
const keyMissingPause = time.Minute

// sealRequest is the request as the row stores it.
func (s *Store) sealRequest(r Request) []byte {
	return s.pool.Box().Seal(sealed.Request(r.TenantID, r.Key), r.Body)
}

// OpenRequest is what is in the stored request of a key, for a query of q that has read it without claiming the key.
func (s *Store) OpenRequest(
	ctx context.Context, q *db.Queries, tenantID, key string, made time.Time, stored []byte,
) ([]byte, error) {
	return s.pool.OpenOfKey(ctx, q, sealed.Request(tenantID, key), made, stored)
}

// sealAnswer is the answer as the row stores it.
func (s *Store) sealAnswer(tenantID, key string, a Answer) (Encoded, error) {
	e, err := encode(a)
	e.Body = s.pool.Box().Seal(sealed.Answer(tenantID, key), e.Body)
	return e, err
}

func (s *Store) openAnswer(
	ctx context.Context, k keyOf, made time.Time, version, status int16, headers, stored []byte,
) (Answer, error) {
	body, err := s.pool.OpenOfKey(ctx, s.pool.Queries, sealed.Answer(k.tenantID, k.key), made, stored)
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer(int(version), int(status), headers, body)
}

// unopened gives back a claim that was taken over, and whose request cannot be opened. If a key is missing, another
// process may have it. If the request was changed, or is another one's, no process can do what was asked, and an operator
// must look at it.
func (c *Claim) unopened(ctx context.Context, why error) {
	reason := fmt.Sprintf("the request cannot be opened: %v", why)
	if errors.Is(why, sealed.ErrChanged) || errors.Is(why, sealed.ErrPlain) {
		_ = c.Park(ctx, reason)
		return
	}
	_ = c.Yield(ctx, keyMissingPause, reason)
}
