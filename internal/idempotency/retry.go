package idempotency

import (
	"context"
	"math/rand/v2"
	"time"
)

// When the completer takes a claim that was given back.
const (
	// SlowRetryAfter is the age of a key at which its retries become slow. Until then the client that sent it is
	// likely to be waiting.
	SlowRetryAfter = 90 * time.Second
	// FastRetry is the longest pause of a young key. Leases and polling intervals must leave room for it.
	FastRetry = 2 * time.Second
	// SlowRetry is the pause of an old key: the other party has been away for a while, so a retry most likely fails.
	SlowRetry = 30 * time.Second
	// ParkAfter is the age of a key at which it is parked: two days of retries have not resolved it, so an operator
	// must look at it. A webhook or a retry of the client still resumes it.
	ParkAfter = 48 * time.Hour

	fastRetryStep = 500 * time.Millisecond // A young key's pause grows by this with each attempt, up to FastRetry.
	backoffBase   = 200 * time.Millisecond
)

const (
	_ = uint(SlowRetry - FastRetry)      // does not compile if an old key were retried more often than a young one
	_ = uint(ParkAfter - SlowRetryAfter) // nor if a key were parked before its retries became slow
)

// NextTry is the pause before the completer resumes the claim: short while the client may be waiting, long once
// the key is older than SlowRetryAfter.
func NextTry(c *Claim) time.Duration {
	if c.Age > SlowRetryAfter {
		return Jittered(SlowRetry)
	}
	return Jittered(min(time.Duration(c.Attempts)*fastRetryStep, FastRetry))
}

// Jittered is d plus or minus a tenth, so that requests that failed together are not retried together.
func Jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// Backoff is the pause before a call is sent again within one run, after its try-th attempt (from 1): random, from zero
// to a limit that doubles with each try ("full jitter").
func Backoff(try int) time.Duration {
	return time.Duration(rand.Int64N(int64(backoffBase) << try))
}

// Pause waits for d. It is false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
