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
	stripeKeyLifetime = 24 * time.Hour // Stripe may forget a key after a day; then the same key acts again.
	resendWithin      = 12 * time.Hour // Past this we look, and do not push.
	sendsMax          = 3              // Attempts of one call in one run, while Stripe turns it away unexecuted.
	cancelsMax        = 8              // Keys of one cancel. Four days of silence, or sixteen stored errors; then a person.

	recordWithin = 2 * time.Second // An outcome is worth a last try when the time is up.

	lookEvery = 1500 * time.Millisecond // A look that hangs is joined by another; whichever answers first counts.
	looksMax  = 10

	patientAfter = 90 * time.Second // Until a payment is this old the completer is quick about it, after that patient.
	quickPause   = 2 * time.Second
	slowPause    = 30 * time.Second
	parkAfter    = 48 * time.Hour   // Nobody has been able to tell for two days. A person must; a webhook or a retry still can.
	actionPoll   = 40 * time.Second // A webhook is faster; this is for the one that never comes.
)

const (
	_ = uint(stripeKeyLifetime - resendWithin) // does not compile if we would outlive Stripe's memory
	_ = uint(60*time.Second - actionPoll - actionPoll/10 - quickPause)
)

// call is a POST to Stripe before it is sent: its identity and its parameters.
// The identity is never that of an attempt.
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

// createCall makes the order's n-th PaymentIntent. No caller asked for it, so
// its key is ours.
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

// sending is what was known of a call when its last attempt left.
type sending struct {
	attempts  int
	forgotten bool // too old to be sent: Stripe may not know the key any more. Of a creation: and it made nothing
}

// call makes a call, at most a few times while Stripe turns it away without
// executing it. Each attempt is written down before its first byte leaves, and
// its outcome after. announced says that the phase before has written down the
// first attempt already; nil says that it has not.
func (s *Service) call(ctx context.Context, c *idempotency.Claim, target call, announced *bool, send func(context.Context, Call) Outcome) (Outcome, sending, error) {
	return s.callAnnounced(ctx, c, target, announced, func(ctx context.Context) (db.StripeCallSendRow, error) {
		return announce(ctx, s.pool.Queries, c, target)
	}, send)
}

// callAnnounced is call for an operation that has its own way to announce one.
func (s *Service) callAnnounced(ctx context.Context, c *idempotency.Claim, target call, announced *bool, announce func(context.Context) (db.StripeCallSendRow, error), send func(context.Context, Call) Outcome) (Outcome, sending, error) {
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
			sent.attempts, sent.forgotten = int(row.Attempts), row.Forgotten
			if sent.forgotten {
				return s.tooOldToSend(ctx, c, target, sent)
			}
			attempt.InDoubt = row.InDoubt
		}
		out := send(ctx, attempt)
		if out.Verdict == Done || out.Verdict == Refused {
			return out, sent, nil // The phase that comes next records it, together with what it means.
		}
		if err := s.answered(ctx, c, target, out); err != nil {
			return out, sent, err
		}
		if out.Verdict != NotExecuted || try == sendsMax || !pause(ctx, backoff(try)) {
			return out, sent, nil
		}
	}
}

// tooOldToSend is what comes of a call whose key Stripe may have forgotten: sent
// again, it could act a second time. A creation is looked for instead.
func (s *Service) tooOldToSend(ctx context.Context, c *idempotency.Claim, target call, sent sending) (Outcome, sending, error) {
	out := Outcome{Verdict: Unknown, Err: errors.New("too long ago to send it again")}
	if target.op != opCreateIntent {
		return out, sent, nil
	}
	err := s.adoptIntent(ctx, c, target)
	if errors.Is(err, errMoved) || errors.Is(err, idempotency.ErrLeaseLost) {
		return out, sent, err
	}
	if err != nil { // Nobody can tell yet, so nothing may be given up.
		out.Err, sent.forgotten = err, false
	}
	return out, sent, nil
}

// announce writes an attempt down, under the fence.
func announce(ctx context.Context, q *db.Queries, c *idempotency.Claim, target call) (db.StripeCallSendRow, error) {
	row, err := q.StripeCallSend(ctx, db.StripeCallSendParams{
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

// answered writes down what came of an attempt that does not end the call, under
// the fence too: a holder that lost its lease knows less than its successor.
func (s *Service) answered(ctx context.Context, c *idempotency.Claim, target call, out Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	n, err := s.pool.StripeCallAnswered(ctx, db.StripeCallAnsweredParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: target.key, Outcome: out.record(),
		InDoubt: out.Verdict == Unknown, Frozen: out.Frozen, HttpStatus: &status, ErrorCode: optional(out.ErrorCode), ObjectID: optional(out.objectID()),
		StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record what came of %s: %w", target.op, err)
	}
	if n == 0 {
		return c.Lost()
	}
	return nil
}

func recordCall(ctx context.Context, q *db.Queries, tenantID, key string, out Outcome, inDoubt bool) error {
	status := int16(out.HTTPStatus) //nolint:gosec // an HTTP status fits
	err := q.StripeCallRecord(ctx, db.StripeCallRecordParams{
		TenantID: tenantID, StripeKey: key, Outcome: out.record(), InDoubt: inDoubt, HttpStatus: &status,
		ErrorCode: optional(out.ErrorCode), ObjectID: optional(out.objectID()), StripeRequestID: out.RequestID,
	})
	if err != nil {
		return fmt.Errorf("record what came of a call: %w", err)
	}
	return nil
}

// objectID is what the call made or changed.
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

// givenUp reports whether another attempt of a call could not tell anything
// new: Stripe repeats a stored error, or may have forgotten the key.
func givenUp(last db.StripeCallGetRow) bool {
	return last.Frozen && last.Attempts > 1 || last.AgeSeconds > resendWithin.Seconds()
}

// failureOf is what a caller is told of a payment that was abandoned.
func failureOf(last db.StripeCallGetRow) Failure {
	f := Failure{Code: "provider_error", Message: "The payment provider could not process the payment. No money was taken."}
	if last.Outcome == db.StripeOutcomeRefused && last.ErrorCode != nil {
		f.Code = *last.ErrorCode
	}
	return f
}
