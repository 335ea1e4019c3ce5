package calls

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

const (
	// KeyLifetime is how long Stripe remembers a key. After that the same key would act
	// again (https://docs.stripe.com/api/idempotent_requests).
	KeyLifetime = 24 * time.Hour
	// ResendWithin is how long a call is sent again. Past this its object is read instead.
	ResendWithin = 12 * time.Hour

	attemptsMax  = 3               // Attempts in one run, while Stripe rejects the call without executing it.
	recordWithin = 2 * time.Second // For recording an outcome after the operation's own deadline has passed.
)

const _ = uint(KeyLifetime - ResendWithin) // does not compile if we would outlive Stripe's memory

// Call is a POST to Stripe before it is sent: its identity and its parameters,
// which are the same for every attempt.
type Call struct {
	Operation  stripe.Operation
	Key        string // Stripe's idempotency key
	ResourceID string // of the row that it is about
	Params     []byte // their hash
}

// New is a call with its parameters.
func New(operation stripe.Operation, resourceID, key string, params ...string) Call {
	sum := sha256.Sum256([]byte(strings.Join(params, "\x00")))
	return Call{Operation: operation, Key: key, ResourceID: resourceID, Params: sum[:]}
}

// Send makes one attempt of a call.
type Send func(context.Context, stripe.Call) stripe.Outcome

// Record records an attempt before it is sent.
type Record func(context.Context) (db.StripeCallRecordAttemptRow, error)

// Attempts is what was known about a call when its last attempt was sent.
type Attempts struct {
	Count int
	// PastCutoff: too old to be sent again, because Stripe may have forgotten the key.
	PastCutoff bool
	// InDoubt: an earlier attempt may still be executed, unless a response to this one settles it.
	InDoubt bool
}

// Recorder makes calls and records them.
type Recorder struct{ pool *postgres.Pool }

// NewRecorder returns a recorder.
func NewRecorder(pool *postgres.Pool) Recorder { return Recorder{pool} }

// Make makes a call, a few times if Stripe rejects it without executing it. Each
// attempt is recorded before its first byte is sent, and its outcome afterwards, unless
// that is done or refused: then the operation's next phase records it, together with its
// consequences. recorded says that the previous phase has recorded the first attempt
// already; nil says that it has not. A call past the cut-off is not sent: its outcome is
// unknown.
func (r Recorder) Make(
	ctx context.Context, c *idempotency.Claim, call Call, recorded *bool, send Send,
) (stripe.Outcome, Attempts, error) {
	record := func(ctx context.Context) (db.StripeCallRecordAttemptRow, error) {
		return call.Attempt(ctx, r.pool.Queries, c)
	}
	return r.MakeRecorded(ctx, c, call, recorded, record, send)
}

// MakeRecorded is Make for an operation that records its attempts in its own way.
func (r Recorder) MakeRecorded(
	ctx context.Context, c *idempotency.Claim, call Call, recorded *bool, record Record, send Send,
) (stripe.Outcome, Attempts, error) {
	var attempts Attempts
	for try := 1; ; try++ {
		attempt := stripe.Call{TenantID: c.TenantID, Key: call.Key}
		attempts.Count = 1
		if recorded != nil && *recorded {
			*recorded = false
		} else {
			row, err := record(ctx)
			if err != nil {
				return stripe.Outcome{}, attempts, err
			}
			attempts.Count, attempts.PastCutoff = int(row.Attempts), row.PastResendCutoff
			if attempts.PastCutoff {
				return stripe.Outcome{Effect: stripe.Unknown, Err: errPastCutoff}, attempts, nil
			}
			attempt.InDoubt, attempts.InDoubt = row.InDoubt, row.InDoubt
		}
		out := send(ctx, attempt)
		if out.Failure.Code == stripe.CodeKeyReused {
			c.Log().Error("Stripe knows the key from a request that this database does not have; was it restored?",
				"stripe_operation", string(call.Operation), "stripe_request_id", out.RequestID)
		}
		if out.Effect == stripe.Done || out.Effect == stripe.Refused {
			return out, attempts, nil
		}
		if err := r.RecordAttempt(ctx, c, call, out); err != nil {
			return out, attempts, err
		}
		if out.Effect != stripe.NotExecuted || try == attemptsMax || !idempotency.Pause(ctx, idempotency.Backoff(try)) {
			return out, attempts, nil
		}
	}
}

var errPastCutoff = errors.New("too long ago to send it again")

// Attempt records an attempt before it is sent, under the fence.
func (call Call) Attempt(
	ctx context.Context, q *db.Queries, c *idempotency.Claim,
) (db.StripeCallRecordAttemptRow, error) {
	row, err := q.StripeCallRecordAttempt(ctx, db.StripeCallRecordAttemptParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: call.Key, Operation: string(call.Operation),
		ResourceID: call.ResourceID, ParamsSha256: call.Params, ResendWithin: ResendWithin,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return row, c.Lost()
	}
	if err != nil {
		return row, fmt.Errorf("record an attempt of %s: %w", call.Operation, err)
	}
	if row.Taken {
		return row, fmt.Errorf("another call has the key %s of %s of %s", call.Key, call.Operation, call.ResourceID)
	}
	return row, nil
}

// Insert records the first attempt of a call, in the phase that precedes it.
func (call Call) Insert(ctx context.Context, q *db.Queries, tenantID string) error {
	err := q.StripeCallInsert(ctx, db.StripeCallInsertParams{
		TenantID: tenantID, StripeKey: call.Key, Operation: string(call.Operation), ResourceID: call.ResourceID,
		ParamsSha256: call.Params,
	})
	if err != nil {
		return fmt.Errorf("record an attempt of %s: %w", call.Operation, err)
	}
	return nil
}

// RecordAttempt records the outcome of an attempt that does not end the call, also under
// the fence: a holder that lost its lease knows less than its successor.
func (r Recorder) RecordAttempt(ctx context.Context, c *idempotency.Claim, call Call, out stripe.Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	n, err := r.pool.StripeCallRecordAttemptOutcome(ctx, db.StripeCallRecordAttemptOutcomeParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: call.Key, Operation: string(call.Operation),
		ResourceID: call.ResourceID, Outcome: Stored(out),
		InDoubt: out.Effect == stripe.Unknown, ErrorCached: out.ErrorCached, HttpStatus: &status,
		ErrorCode: postgres.Nullable(out.ErrorCode), ObjectID: postgres.Nullable(out.ObjectID()),
		StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record the outcome of %s: %w", call.Operation, err)
	}
	if n == 0 {
		return c.Lost()
	}
	return nil
}

// RecordEnd records the outcome that ends a call, in the transaction of q.
func RecordEnd(ctx context.Context, q *db.Queries, tenantID string, call Call, out stripe.Outcome) error {
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	err := q.StripeCallRecordOutcome(ctx, db.StripeCallRecordOutcomeParams{
		TenantID: tenantID, StripeKey: call.Key, Operation: string(call.Operation), ResourceID: call.ResourceID,
		Outcome: Stored(out), HttpStatus: &status,
		ErrorCode: postgres.Nullable(out.ErrorCode), ObjectID: postgres.Nullable(out.ObjectID()),
		StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record the outcome of a call: %w", err)
	}
	return nil
}

// Last reads the record of a call. postgres.ErrNoRows: it was never recorded.
func (r Recorder) Last(ctx context.Context, tenantID string, call Call) (db.StripeCallGetRow, error) {
	return r.pool.StripeCallGet(ctx, db.StripeCallGetParams{
		TenantID: tenantID, StripeKey: call.Key, Operation: string(call.Operation), ResourceID: call.ResourceID,
	})
}

// BeganHere reports whether Stripe says that the first request under a call's key is one of those that are recorded: no
// life of this database that a restore has lost sent it. False also if that response was lost, or has no id.
func (r Recorder) BeganHere(ctx context.Context, tenantID string, call Call, out stripe.Outcome) (bool, error) {
	last, err := r.Last(ctx, tenantID, call)
	return out.OriginalRequestID != "" && slices.Contains(last.RequestIds, out.OriginalRequestID), err
}

// Exhausted reports whether another attempt could give no new information: Stripe repeats a
// stored error, or may have forgotten the key.
func Exhausted(last db.StripeCallGetRow) bool {
	return last.ErrorCached && last.Attempts > 1 || last.AgeSeconds > ResendWithin.Seconds()
}

// Stored is an outcome as the table of calls has it.
func Stored(o stripe.Outcome) db.StripeOutcome {
	switch o.Effect {
	case stripe.Done:
		return db.StripeOutcomeDone
	case stripe.Refused, stripe.Conflict:
		return db.StripeOutcomeRefused
	case stripe.NotExecuted:
		return db.StripeOutcomeNotExecuted
	case stripe.Unknown:
		return db.StripeOutcomeUnknown
	}
	panic(fmt.Sprintf("bug: an outcome with the effect %d", o.Effect))
}
