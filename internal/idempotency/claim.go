package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// Recovery points that every operation has. The others each operation names itself.
const (
	started  = "started"
	Finished = "finished"
)

// yieldWithin is how long giving a claim back may take. If the database is slower, the lease expires instead.
const yieldWithin = 2 * time.Second

// FingerprintVersion is stored with each key. When fingerprints change, the old version stays supported while keys have
// it.
const FingerprintVersion = 1

// Claim is the right to work on one key, and the handle for that. It is valid until the lease expires, which only the
// database decides. Two goroutines must not use it at the same time.
type Claim struct {
	store *Store

	TenantID         string
	Key              string
	Operation        string
	Request          []byte // the decoded request, encoded again
	RequestID        string // of the request that runs it; if the completer does, of the first one
	ResourceID       string
	Token            int64 // the fencing token
	Attempts         int   // this one included
	LeaseExpirations int   // how many holders crashed or were paused
	Age              time.Duration

	// Carry is what Begin has read, so that Run need not read it again. Nil if the claim was taken over: then all state
	// is read from the database.
	Carry any

	point    string
	answer   Answer
	tookOver bool
	since    time.Time
	origin   string // traceparent of the request that came first
}

// RecoveryPoint is the last durable recovery point of the operation.
func (c *Claim) RecoveryPoint() string { return c.point }

// Resumed reports whether the key had an earlier run: then a call may have been sent whose outcome was not recorded.
func (c *Claim) Resumed() bool { return c.Attempts > 1 }

// Lost is ErrLeaseLost, counted. An operation returns it when its own fenced write, outside of a phase, changed no row.
func (c *Claim) Lost() error { return c.fenced(ErrLeaseLost) }

// Answer is the stored answer of a finished claim.
func (c *Claim) Answer() Answer { return c.answer }

// Yield gives the claim back. The completer resumes it after the pause, or a retry of the client earlier. The reason is
// shown to an operator who looks at a stuck key.
func (c *Claim) Yield(ctx context.Context, pause time.Duration, reason string) error {
	return c.yield(ctx, pause, reason, false)
}

// Park gives the claim back and removes it from the completer's queue, because retries did not help. A parked key is
// visible and raises an alert. An operator, a webhook or a retry of the client resumes it.
func (c *Claim) Park(ctx context.Context, reason string) error {
	return c.yield(ctx, 0, reason, true)
}

func (c *Claim) yield(ctx context.Context, pause time.Duration, reason string, park bool) error {
	// Often the work stopped because ctx ended, and exactly then the claim must be given back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), yieldWithin)
	defer cancel()
	reason = postgres.Text(reason) // it may quote what a client sent
	n, err := c.store.pool.KeyYield(ctx, db.KeyYieldParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, Pause: pause, LastError: &reason, Park: park,
	})
	if err := c.fenced(rows(n, postgres.ClassifyWriteError(err))); err != nil {
		return fmt.Errorf("give the claim back: %w", err) // The lease expires instead: slower, but not wrong.
	}
	tracing.Current(ctx).Event("claim given back")
	c.Log().Info("claim given back", "pause", pause, "reason", reason, "parked", park)
	return nil
}

// YieldFor gives the claim back for d, so that the completer resumes it then. The only error is ErrLeaseLost: then the
// new holder knows the present state. If the database cannot be reached the claim is not given back, and the lease
// runs out instead; that is slower and not wrong, so the client still gets its interim answer.
func (c *Claim) YieldFor(ctx context.Context, d time.Duration, why error) error {
	return c.onlyLeaseLost(c.Yield(ctx, d, why.Error()))
}

// ParkBecause parks the claim. Its error is that of YieldFor.
func (c *Claim) ParkBecause(ctx context.Context, why error) error {
	return c.onlyLeaseLost(c.Park(ctx, why.Error()))
}

// YieldOrPark gives the claim back until its next try, or parks it once its key is older than ParkAfter. Its error is
// that of YieldFor.
func (c *Claim) YieldOrPark(ctx context.Context, why error) error {
	return c.YieldUntil(ctx, ParkAfter, NextTry(c), why)
}

// YieldUntil is YieldOrPark with another limit and another pause: for a wait that may take days with nothing wrong,
// such as a bank's. Only a wait for the customer, which ends by itself, may use YieldFor and have no limit.
func (c *Claim) YieldUntil(ctx context.Context, limit, pause time.Duration, why error) error {
	if c.Age > limit {
		return c.ParkBecause(ctx, why)
	}
	return c.YieldFor(ctx, pause, why)
}

func (c *Claim) onlyLeaseLost(err error) error {
	if err == nil || errors.Is(err, ErrLeaseLost) {
		return err
	}
	c.Log().Warn("the claim was not given back; its lease will run out", "error", err.Error())
	return nil
}

// Log has the attributes that an operator needs to find all about the key, but never the key itself.
func (c *Claim) Log() *slog.Logger {
	return c.store.o.Log.With("tenant_id", c.TenantID, "key_hash", HashForLog(c.Key), "operation", c.Operation,
		"resource_id", c.ResourceID, "recovery_point", c.point, "lease_token", c.Token, "request_id", c.RequestID)
}

// describe sets the attributes of Log on a span.
func (c *Claim) describe(span tracing.Span) {
	if !span.Recording() {
		return
	}
	span.Set(tracing.Operation, c.Operation)
	span.Set(tracing.Tenant, c.TenantID)
	span.Set(tracing.KeyHash, HashForLog(c.Key))
	span.Set(tracing.Resource, c.ResourceID)
	span.Set(tracing.Point, c.point)
	span.SetInt(tracing.LeaseToken, c.Token)
}

func (c *Claim) reached(point string) {
	c.store.o.Metrics.reached(c.Operation, point, time.Since(c.since))
	c.point, c.since = point, time.Now()
	c.store.o.Boundary(c.Operation, point)
}

func (c *Claim) fenced(err error) error {
	if errors.Is(err, ErrLeaseLost) {
		c.store.o.Metrics.fenced.WithLabelValues(c.Operation).Inc()
		c.Log().Warn("write rejected: the claim was taken over")
	}
	return err
}

// claimOf is a claim that was taken over. With an error it has no request, and can only be given back (unopened).
func (s *Store) claimOf(ctx context.Context, row db.KeyTakeOverRow) (*Claim, error) {
	request, err := s.OpenRequest(ctx, s.pool.Queries, row.TenantID, row.Key, row.CreatedAt, row.Request)
	c := &Claim{
		store: s, TenantID: row.TenantID, Key: row.Key, Operation: row.Operation, Request: request,
		RequestID: row.RequestID, ResourceID: row.ResourceID, Token: row.LeaseToken, Attempts: int(row.Attempts),
		LeaseExpirations: int(row.LeaseExpirations),
		Age:              time.Duration(row.AgeSeconds * float64(time.Second)), point: row.RecoveryPoint,
		since:    time.Now(),
		tookOver: strings.Contains(row.History[len(row.History)-1], " taken_over "),
	}
	if row.Traceparent != nil {
		c.origin = *row.Traceparent
	}
	return c, err
}

// claimRead is our own claim, which was read back.
func (s *Store) claimRead(ctx context.Context, row db.KeyReadRow, r Request) (c *Claim, err error) {
	c = &Claim{
		store: s, TenantID: row.TenantID, Key: row.Key, Operation: row.Operation, Request: r.Body,
		RequestID:  row.RequestID,
		ResourceID: row.ResourceID, Token: row.LeaseToken, Attempts: int(row.Attempts), point: row.RecoveryPoint,
		since: time.Now(),
	}
	if row.FinishedAt != nil {
		c.answer, err = s.openAnswer(ctx, keyOf{row.TenantID, row.Key}, row.CreatedAt,
			*row.AnswerVersion, *row.AnswerStatus, row.AnswerHeaders, row.AnswerBody)
	}
	return c, err
}

// HashForLog is how a key appears in logs and traces: enough to find all lines of one key, not enough to send it.
func HashForLog(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}
