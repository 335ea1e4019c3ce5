package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/internal/sealed"
)

// keyMissingPause is how long a claim waits whose request this process cannot open, because it lacks a key that another
// one may have.
const keyMissingPause = time.Minute

// sealRequest is the request as the row stores it.
func (s *Store) sealRequest(r Request) []byte {
	return s.pool.Box().Seal(sealed.Request(r.TenantID, r.Key), r.Body)
}

// OpenRequest is what is in the stored request of a key, for a query that has read it without claiming the key.
func (s *Store) OpenRequest(tenantID, key string, stored []byte) ([]byte, error) {
	return s.pool.Box().Open(sealed.Request(tenantID, key), stored)
}

// sealAnswer is the answer as the row stores it.
func (s *Store) sealAnswer(tenantID, key string, a Answer) (Encoded, error) {
	e, err := encode(a)
	e.Body = s.pool.Box().Seal(sealed.Answer(tenantID, key), e.Body)
	return e, err
}

func (s *Store) openAnswer(
	tenantID, key string, version, status int16, headers, stored []byte,
) (Answer, error) {
	body, err := s.pool.Box().Open(sealed.Answer(tenantID, key), stored)
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer(int(version), int(status), headers, body)
}

// unopened gives back a claim that was taken over, and whose request cannot be opened. If a key is missing, another
// process may have it. If the request was changed, no process can do what was asked, and an operator must look at it.
func (c *Claim) unopened(ctx context.Context, why error) {
	reason := fmt.Sprintf("the request cannot be opened: %v", why)
	if errors.Is(why, sealed.ErrChanged) {
		_ = c.Park(ctx, reason)
		return
	}
	_ = c.Yield(ctx, keyMissingPause, reason)
}
