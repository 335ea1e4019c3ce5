package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

// Recovery points that every operation has. The others each operation names itself.
const (
	started  = "started"
	Finished = "finished"
)

// yieldWithin is what giving a claim back may take. A database that is slower
// than that will see the lease run out.
const yieldWithin = 2 * time.Second

// FingerprintVersion is stored with each key. When the way of taking
// fingerprints changes, the old way stays for as long as its keys do.
const FingerprintVersion = 1

// Claim is the right to work on one key, and the handle to work through. It is
// good until the lease ends; the database knows when, this process does not
// need to. One goroutine at a time.
type Claim struct {
	store *Store

	TenantID   string
	Key        string
	Operation  string
	Request    []byte // the decoded request, encoded again
	RequestID  string // of the request that works on it; the first one's where none does
	ResourceID string
	Token      int64 // the fencing token
	Attempts   int   // this one included
	Deaths     int   // how many holders died or stood still
	Age        time.Duration

	// Carry is what Begin read and Run need not read again. Nil when the claim
	// was taken over: then the database is all there is.
	Carry any

	point    string
	answer   Answer
	tookOver bool
	since    time.Time
	origin   string // traceparent of the request that came first
}

// RecoveryPoint is the last durable place of the operation.
func (c *Claim) RecoveryPoint() string { return c.point }

// Resumed reports whether somebody worked on the key before: then a call may
// have been made that nobody recorded.
func (c *Claim) Resumed() bool { return c.Attempts > 1 }

// Phase runs fn in one transaction that ends at the recovery point to. The
// key's row is locked and the token checked before fn works, so a holder that
// lost its lease writes nothing: ErrLeaseLost.
//
// When the answer to COMMIT is lost, the row is read back, and fn runs again if
// it had no effect. So fn may run more than once, and what it leaves outside of q
// before the commit is known must be as good the second time. It never runs on
// top of its own effect: a server that lost its client may still be at that
// COMMIT when the row is read back, and then the lock shows what came of it.
func (c *Claim) Phase(ctx context.Context, to string, fn func(q *db.Queries) error) error {
	return c.durably(ctx, to, func() error {
		return c.store.pool.InTx(ctx, func(q *db.Queries) error {
			point, err := c.hold(ctx, q)
			if err != nil {
				return err
			}
			if point == to && to != c.point {
				return errLanded
			}
			if err := fn(q); err != nil {
				return err
			}
			n, err := q.KeyMove(ctx, db.KeyMoveParams{TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: to})
			return rows(n, err)
		})
	})
}

// Finish is the last phase: fn's writes and its answer, in one commit. After it
// the answer is what every request with the key gets.
func (c *Claim) Finish(ctx context.Context, fn func(q *db.Queries) (Answer, error)) error {
	var answer Answer
	err := c.durably(ctx, Finished, func() error {
		return c.store.pool.InTx(ctx, func(q *db.Queries) (err error) {
			if _, err = c.hold(ctx, q); err != nil {
				return err
			}
			if answer, err = fn(q); err != nil {
				return err
			}
			return finish(ctx, q, c.TenantID, c.Key, c.Token, answer)
		})
	})
	if err == nil && c.answer.Status == 0 {
		c.answer = answer
	}
	return err
}

// Statement is a phase that is one SQL statement, fence included: one round
// trip. fn returns how many rows it changed; zero is ErrLeaseLost, unless fn
// found out that it is ErrMoved.
func (c *Claim) Statement(ctx context.Context, to string, fn func(q *db.Queries) (int64, error)) error {
	return c.durably(ctx, to, func() error {
		n, err := fn(c.store.pool.Grouped())
		if errors.Is(err, ErrMoved) {
			return err // The statement has been answered. There is nothing to read back.
		}
		return rows(n, db.Written(err))
	})
}

// FinishStatement is Finish as one SQL statement. The answer is encoded for it.
func (c *Claim) FinishStatement(ctx context.Context, answer Answer, fn func(q *db.Queries, a Encoded) (int64, error)) error {
	encoded, err := encode(answer)
	if err != nil {
		return err
	}
	err = c.Statement(ctx, Finished, func(q *db.Queries) (int64, error) { return fn(q, encoded) })
	if err == nil && c.answer.Status == 0 {
		c.answer = answer
	}
	return err
}

// Encoded is an answer as the row holds it.
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
	return Encoded{Version: answerVersion, Status: int16(a.Status), Headers: headers, Body: body}, nil //nolint:gosec // an HTTP status fits
}

func finish(ctx context.Context, q *db.Queries, tenantID, key string, token int64, a Answer) error {
	e, err := encode(a)
	if err != nil {
		return err
	}
	n, err := q.KeyFinish(ctx, db.KeyFinishParams{
		TenantID: tenantID, Key: key, LeaseToken: token,
		AnswerVersion: e.Version, AnswerStatus: e.Status, AnswerHeaders: e.Headers, AnswerBody: e.Body,
	})
	return rows(n, err)
}

// Lost is for a write that the operation fences by itself, outside of a phase,
// and that changed no row: it counts, and is ErrLeaseLost.
func (c *Claim) Lost() error { return c.fenced(ErrLeaseLost) }

// Answer is the stored answer of a finished claim.
func (c *Claim) Answer() Answer { return c.answer }

// Yield gives the claim back, to be resumed after the pause by the completer or
// earlier by a retry. The reason is for the person who looks at a stuck key.
func (c *Claim) Yield(ctx context.Context, pause time.Duration, reason string) error {
	return c.yield(ctx, pause, reason, false)
}

// Park gives the claim back and takes it off the completer's list: enough was
// tried. It is visible, raises an alarm, and resumes when a person, a webhook
// or a retry of the client asks for it.
func (c *Claim) Park(ctx context.Context, reason string) error {
	return c.yield(ctx, 0, reason, true)
}

func (c *Claim) yield(ctx context.Context, pause time.Duration, reason string, park bool) error {
	// Often it is the end of ctx that stopped the work, and then above all the
	// claim must go back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), yieldWithin)
	defer cancel()
	reason = db.Text(reason) // it may quote a stranger
	n, err := c.store.pool.KeyYield(ctx, db.KeyYieldParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, Pause: pause, LastError: &reason, Park: park,
	})
	if err := c.fenced(rows(n, db.Written(err))); err != nil {
		return fmt.Errorf("give the claim back: %w", err) // The lease runs out by itself; that is slower, not wrong.
	}
	tracing.Current(ctx).Event("claim given back")
	c.Log().Info("claim given back", "pause", pause, "reason", reason, "parked", park)
	return nil
}

// Log carries what a person needs to find the key's story: never the key itself.
func (c *Claim) Log() *slog.Logger {
	return c.store.o.Log.With("tenant_id", c.TenantID, "key_hash", HashForLog(c.Key), "operation", c.Operation,
		"resource_id", c.ResourceID, "recovery_point", c.point, "lease_token", c.Token, "request_id", c.RequestID)
}

// describe says on a span what Log says in a line.
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

// errLanded says that a phase has been committed: by a try of it that was taken
// for lost.
var errLanded = errors.New("the phase has been committed already")

// hold locks the key's row, checks the token and returns the recovery point.
func (c *Claim) hold(ctx context.Context, q *db.Queries) (point string, err error) {
	point, err = q.KeyHold(ctx, db.KeyHoldParams{TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token})
	if errors.Is(err, db.ErrNoRows) {
		return "", ErrLeaseLost
	}
	return point, err
}

// durably runs a phase until its outcome is known: done, refused, or the time
// is up. It is what makes a lost COMMIT neither success nor failure.
func (c *Claim) durably(ctx context.Context, to string, phase func() error) (err error) {
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "phase ", to)
	defer func() {
		c.describe(span)
		span.End(err)
	}()
	for {
		err := phase()
		if errors.Is(err, db.ErrInDoubt) {
			c.store.o.Metrics.inDoubt.Inc()
			span.Event("commit in doubt")
			done, readErr := c.readBack(ctx, to)
			switch {
			case errors.Is(readErr, ErrLeaseLost):
				return c.fenced(readErr)
			case readErr != nil:
				return fmt.Errorf("%w; and it cannot be read back: %w", err, readErr)
			case !done:
				continue // None yet. Should it have one after all, a phase finds its key moved, and a statement has its own guards.
			}
			err = nil
		}
		if err != nil && !errors.Is(err, errLanded) {
			return c.fenced(err)
		}
		c.reached(to)
		return nil
	}
}

// readBack asks whether the phase that ends at to has been committed under our token.
func (c *Claim) readBack(ctx context.Context, to string) (done bool, err error) {
	var row db.KeyReadRow
	err = c.store.untilAnswered(ctx, func() (err error) {
		row, err = c.store.pool.KeyRead(ctx, db.KeyReadParams{TenantID: c.TenantID, Key: c.Key})
		return err
	})
	switch {
	case err != nil:
		return false, err
	case row.LeaseToken != c.Token:
		return false, ErrLeaseLost
	case row.FinishedAt != nil && to == Finished:
		c.answer, err = decodeAnswer(int(*row.AnswerVersion), int(*row.AnswerStatus), row.AnswerHeaders, row.AnswerBody)
		return true, err
	}
	return row.RecoveryPoint == to && to != c.point, nil
}

func (c *Claim) reached(point string) {
	c.store.o.Metrics.reached(c.Operation, point, time.Since(c.since))
	c.point, c.since = point, time.Now()
	c.store.o.Boundary(c.Operation, point)
}

func (c *Claim) fenced(err error) error {
	if errors.Is(err, ErrLeaseLost) {
		c.store.o.Metrics.fenced.WithLabelValues(c.Operation).Inc()
		c.Log().Warn("write refused: the claim was taken over")
	}
	return err
}

func rows(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

func (s *Store) claimOf(row db.KeyTakeOverRow) *Claim {
	c := &Claim{
		store: s, TenantID: row.TenantID, Key: row.Key, Operation: row.Operation, Request: row.Request, RequestID: row.RequestID,
		ResourceID: row.ResourceID, Token: row.LeaseToken, Attempts: int(row.Attempts), Deaths: int(row.Deaths),
		Age: time.Duration(row.AgeSeconds * float64(time.Second)), point: row.RecoveryPoint, since: time.Now(),
		tookOver: strings.Contains(row.Trail[len(row.Trail)-1], " taken_over "),
	}
	if row.Traceparent != nil {
		c.origin = *row.Traceparent
	}
	return c
}

func (s *Store) claimRead(row db.KeyReadRow) *Claim {
	c := &Claim{
		store: s, TenantID: row.TenantID, Key: row.Key, Operation: row.Operation, Request: row.Request, RequestID: row.RequestID,
		ResourceID: row.ResourceID, Token: row.LeaseToken, Attempts: int(row.Attempts), point: row.RecoveryPoint, since: time.Now(),
	}
	if row.FinishedAt != nil {
		c.answer, _ = decodeAnswer(int(*row.AnswerVersion), int(*row.AnswerStatus), row.AnswerHeaders, row.AnswerBody)
	}
	return c
}
