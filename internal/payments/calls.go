package payments

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

const (
	stripeKeyLifetime = 24 * time.Hour // Stripe may forget a key after a day; then the same key would act again.
	resendWithin      = 12 * time.Hour // Past this the object is looked up, and nothing is sent again.
	sendsMax          = 3              // Attempts of one call in one run, while Stripe rejects it without executing it.
	cancelsMax        = 8              // Keys of one cancel: four days without an answer, or sixteen stored errors. Then a person must look.

	recordWithin = 2 * time.Second // For recording an outcome after the operation's own deadline has passed.

	lookEvery = 1500 * time.Millisecond // A read that hangs is joined by another; the first answer counts.
	looksMax  = 10

	patientAfter = 90 * time.Second // Until a key is this old the completer retries quickly, after that slowly.
	quickPause   = 2 * time.Second
	slowPause    = 30 * time.Second
	parkAfter    = 48 * time.Hour   // Unknown for two days. Now a person must look; a webhook or a retry still wakes it.
	actionPoll   = 40 * time.Second // A webhook is faster; this is for webhooks that never come.
)

const (
	_ = uint(stripeKeyLifetime - resendWithin) // does not compile if we would outlive Stripe's memory
	_ = uint(60*time.Second - actionPoll - actionPoll/10 - quickPause)
)

// call is a POST to Stripe before it is sent: its identity and its parameters,
// which are the same for every attempt.
type call struct {
	op         operation
	key        string
	resourceID string
	params     []byte
}

func newCall(op operation, resourceID, key string, params ...string) call {
	sum := sha256.Sum256([]byte(strings.Join(params, "\x00")))
	return call{op: op, key: key, resourceID: resourceID, params: sum[:]}
}

// createCall makes the order's n-th PaymentIntent. No caller asked for it, so the
// key is made from our own ids.
func (w *paying) createCall() call {
	p := w.payment
	n := strconv.Itoa(int(p.IntentNumber))
	return newCall(opCreateIntent, p.OrderID, p.TenantID+":"+p.OrderID+":intent:"+n, strconv.FormatInt(p.AmountMinor, 10), p.Currency)
}

// confirmCall moves the money, so it carries the caller's key, scoped by tenant
// and operation: two tenants can never meet, and whoever knows the key finds
// the payment in Stripe's dashboard.
func (w *paying) confirmCall() call { return w.confirmCallOn(*w.payment.IntentID) }

func (w *paying) confirmCallOn(intentID string) call {
	p := w.payment
	return newCall(opConfirm, p.ID, p.TenantID+":"+p.IdempotencyKey+":confirm", intentID, p.PaymentMethod)
}

// sending is what was known about a call when its last attempt was sent.
type sending struct {
	attempts  int
	forgotten bool // too old to be sent again, because Stripe may have forgotten the key; a creation has also been shown to have made nothing
}

// call makes a call, a few times if Stripe rejects it without executing it. Each
// attempt is recorded before its first byte is sent, and its outcome afterwards.
// announced says that the previous phase has recorded the first attempt already;
// nil says that it has not.
func (s *Service) call(ctx context.Context, c *idempotency.Claim, target call, announced *bool, send func(context.Context, Call) Outcome) (Outcome, sending, error) {
	return s.callAnnounced(ctx, c, target, announced, func(ctx context.Context) (db.StripeCallRecordAttemptRow, error) {
		return announce(ctx, s.pool.Queries, c, target)
	}, send)
}

// callAnnounced is call for an operation that announces its attempts in its own way.
func (s *Service) callAnnounced(ctx context.Context, c *idempotency.Claim, target call, announced *bool, announce func(context.Context) (db.StripeCallRecordAttemptRow, error), send func(context.Context, Call) Outcome) (Outcome, sending, error) {
	var sent sending
	for try := 1; ; try++ {
		attempt := Call{Key: target.key}
		sent.attempts = 1
		if announced != nil && *announced {
			*announced = false
		} else {
			row, err := announce(ctx)
			if err != nil {
				return Outcome{}, sent, err
			}
			sent.attempts, sent.forgotten = int(row.Attempts), row.PastResendCutoff
			if sent.forgotten {
				return s.tooOldToSend(ctx, c, target, sent)
			}
			attempt.InDoubt = row.InDoubt
		}
		out := send(ctx, attempt)
		if out.Verdict == Done || out.Verdict == Refused {
			return out, sent, nil // The next phase records it, together with its consequences.
		}
		if err := s.answered(ctx, c, target, out); err != nil {
			return out, sent, err
		}
		if out.Verdict != NotExecuted || try == sendsMax || !pause(ctx, backoff(try)) {
			return out, sent, nil
		}
	}
}

// tooOldToSend is the outcome of a call whose key Stripe may have forgotten: sent
// again, it could act a second time. What a creation has made is looked for instead.
func (s *Service) tooOldToSend(ctx context.Context, c *idempotency.Claim, target call, sent sending) (Outcome, sending, error) {
	out := Outcome{Verdict: Unknown, Err: errors.New("too long ago to send it again")}
	if target.op != opCreateIntent {
		return out, sent, nil
	}
	err := s.adoptIntent(ctx, c, target)
	if errors.Is(err, errMoved) || errors.Is(err, idempotency.ErrLeaseLost) {
		return out, sent, err
	}
	if err != nil { // It cannot be told yet, so nothing may be given up.
		out.Err, sent.forgotten = err, false
	}
	return out, sent, nil
}

// announce records an attempt before it is sent, under the fence.
func announce(ctx context.Context, q *db.Queries, c *idempotency.Claim, target call) (db.StripeCallRecordAttemptRow, error) {
	row, err := q.StripeCallRecordAttempt(ctx, db.StripeCallRecordAttemptParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: target.key, Operation: string(target.op), ResourceID: target.resourceID,
		ParamsSha256: target.params, ResendWithin: resendWithin,
	})
	if errors.Is(err, db.ErrNoRows) {
		return row, c.Lost()
	}
	if err != nil {
		return row, fmt.Errorf("announce %s: %w", target.op, err)
	}
	return row, nil
}

// insertCall records the first attempt of a call, in the phase that precedes it.
func insertCall(ctx context.Context, q *db.Queries, tenantID string, c call) error {
	err := q.StripeCallInsert(ctx, db.StripeCallInsertParams{
		TenantID: tenantID, StripeKey: c.key, Operation: string(c.op), ResourceID: c.resourceID, ParamsSha256: c.params,
	})
	if err != nil {
		return fmt.Errorf("announce %s: %w", c.op, err)
	}
	return nil
}

// answered records the outcome of an attempt that does not end the call, also under
// the fence: a holder that lost its lease knows less than its successor.
func (s *Service) answered(ctx context.Context, c *idempotency.Claim, target call, out Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	n, err := s.pool.StripeCallRecordAttemptOutcome(ctx, db.StripeCallRecordAttemptOutcomeParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: target.key, Outcome: out.record(),
		InDoubt: out.Verdict == Unknown, ErrorCached: out.Frozen, HttpStatus: &status, ErrorCode: optional(out.ErrorCode), ObjectID: optional(out.objectID()),
		StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record the outcome of %s: %w", target.op, err)
	}
	if n == 0 {
		return c.Lost()
	}
	return nil
}

// recordCall records the outcome that ends a call, in the transaction of q.
func recordCall(ctx context.Context, q *db.Queries, tenantID, key string, out Outcome, inDoubt bool) error {
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	err := q.StripeCallRecordOutcome(ctx, db.StripeCallRecordOutcomeParams{
		TenantID: tenantID, StripeKey: key, Outcome: out.record(), InDoubt: inDoubt, HttpStatus: &status,
		ErrorCode: optional(out.ErrorCode), ObjectID: optional(out.objectID()), StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record the outcome of a call: %w", err)
	}
	return nil
}

// objectID is the id of the object that the call made or changed.
func (o Outcome) objectID() string {
	if o.Refund.ID != "" {
		return o.Refund.ID
	}
	return o.Intent.ID
}

func (o Outcome) record() db.StripeOutcome {
	switch o.Verdict {
	case Done:
		return db.StripeOutcomeDone
	case Refused, Conflict:
		return db.StripeOutcomeRefused
	case NotExecuted:
		return db.StripeOutcomeNotExecuted
	case Unknown:
		return db.StripeOutcomeUnknown
	}
	panic("bug: " + o.Verdict.String())
}

// givenUp reports whether another attempt could tell nothing new: Stripe repeats a
// stored error, or may have forgotten the key.
func givenUp(last db.StripeCallGetRow) bool {
	return last.ErrorCached && last.Attempts > 1 || last.AgeSeconds > resendWithin.Seconds()
}

// failureOf is what a caller is told about an abandoned payment.
func failureOf(last db.StripeCallGetRow) Failure {
	f := Failure{Code: "provider_error", Message: "The payment provider could not process the payment. No money was taken."}
	if last.Outcome == db.StripeOutcomeRefused && last.ErrorCode != nil {
		f.Code = *last.ErrorCode
	}
	return f
}
