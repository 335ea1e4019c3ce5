package payments

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
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

// cancelCall cancels the order's n-th PaymentIntent. Its first key is the n-th
// cancel's; another, where that one can tell nothing new any more, adds a count.
func cancelCall(p db.Payment, try int) call {
	key := p.TenantID + ":" + p.OrderID + ":cancel:" + strconv.Itoa(int(p.IntentNumber))
	if try > 1 {
		key += ":" + strconv.Itoa(try)
	}
	return newCall(opCancel, p.OrderID, key, *p.IntentID)
}

// nextCancel is the cancel to send: the first whose key is not given up. A cancel
// is the one call of ours that may be sent under another key while the first is in
// doubt, because twice canceled is once canceled, and no money moves. Without it a
// single error that Stripe stored would keep an intent alive that nobody
// may confirm, and its payment open until a person looks.
func (s *Service) nextCancel(ctx context.Context, p db.Payment) (call, error) {
	for try := 1; ; try++ {
		target := cancelCall(p, try)
		last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: p.TenantID, StripeKey: target.key})
		if errors.Is(err, db.ErrNoRows) {
			return target, nil
		}
		if err != nil {
			return target, fmt.Errorf("read the cancel of %s: %w", *p.IntentID, err)
		}
		if !givenUp(last) || try == cancelsMax {
			return target, nil
		}
	}
}

// sending is what was known of a call when its last attempt left.
type sending struct {
	attempts  int
	forgotten bool // too old to be sent: Stripe may not know the key any more. Of a creation: and it made nothing
}

// call makes a call, at most a few times while Stripe turns it away without
// executing it. Each attempt is written down before its first byte leaves, and
// its outcome after. announced says that the first was written down already.
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
		if !*announced {
			row, err := announce(ctx)
			if err != nil {
				return Outcome{}, sent, err
			}
			if sent.attempts, sent.forgotten = int(row.Attempts), row.Forgotten; sent.forgotten {
				out := Outcome{Verdict: Unknown, Err: errors.New("too long ago to send it again")}
				if target.op != opCreateIntent {
					return out, sent, nil
				}
				switch err := s.adoptIntent(ctx, c, target); {
				case errors.Is(err, errMoved), errors.Is(err, idempotency.ErrLeaseLost):
					return out, sent, err
				case err != nil: // Nobody can tell yet, so nothing may be given up.
					out.Err, sent.forgotten = err, false
				}
				return out, sent, nil
			}
			attempt.InDoubt = row.InDoubt
		}
		*announced = false
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

// cancelIntent cancels a payment's intent and returns it as it is then. An
// intent without a status: nobody knows, ask again later.
func (s *Service) cancelIntent(ctx context.Context, c *idempotency.Claim, p db.Payment) (Intent, Outcome, error) {
	target, err := s.nextCancel(ctx, p)
	if err != nil {
		return Intent{}, Outcome{}, err
	}
	never := false
	out, _, err := s.call(ctx, c, target, &never, func(ctx context.Context, call Call) Outcome {
		return s.gateway.CancelIntent(ctx, call, *p.IntentID)
	})
	if err != nil {
		return Intent{}, out, err
	}
	if out.Verdict == Done && !out.Replayed {
		return out.Intent, out, s.answered(ctx, c, target, out)
	}
	if out.Verdict == NotExecuted {
		return Intent{}, out, nil
	}
	intent, err := s.look(ctx, *p.IntentID)
	if err != nil {
		return Intent{}, Outcome{Verdict: Unknown, Err: err}, nil //nolint:nilerr // a look that failed is an outcome: unknown
	}
	if out.Verdict == Unknown && intent.Status != IntentCanceled && intent.Status != IntentSucceeded {
		return Intent{}, out, nil // The cancel may still be under way.
	}
	return intent, out, s.answered(ctx, c, target, out)
}

// look reads the intent.
func (s *Service) look(ctx context.Context, intentID string) (Intent, error) {
	type result struct {
		intent Intent
		err    error
	}
	r := hedged(ctx, func(ctx context.Context) (result, bool) {
		intent, err := s.gateway.GetIntent(ctx, intentID)
		return result{intent, err}, err == nil || errors.Is(err, ErrNoSuchObject)
	})
	return r.intent, r.err
}

// hedged asks what may be asked any number of times. Stripe may let one question
// hang and answer the next, so one that takes long is joined by another, up to
// a few; the first that tells something counts, or the last when none does.
func hedged[T any](ctx context.Context, ask func(context.Context) (answer T, tells bool)) T {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type reply struct {
		answer T
		tells  bool
	}
	replies := make(chan reply, looksMax) // so that those who answer too late do not hang
	asked, answered := 0, 0
	for {
		var another <-chan time.Time
		if asked < looksMax {
			asked++
			go func() {
				answer, tells := ask(ctx)
				replies <- reply{answer, tells}
			}()
			another = time.After(lookEvery)
		}
	wait:
		for {
			select {
			case r := <-replies:
				answered++
				if r.tells || answered == asked {
					return r.answer
				}
			case <-another:
				break wait
			}
		}
	}
}

// wait gives the claim back until there is reason to look again, and says how
// things stand.
func (s *Service) wait(ctx context.Context, c *idempotency.Claim, w *paying, out Outcome) (idempotency.Answer, error) {
	return s.waitFor(ctx, c, w, out.why())
}

// why is what came of an attempt that did not end the call, for a person.
func (o Outcome) why() error {
	text := o.Verdict.String() + ": no answer"
	if o.HTTPStatus != 0 {
		text = fmt.Sprintf("%s: status %d", o.Verdict, o.HTTPStatus)
	}
	for _, more := range []string{o.ErrorCode, errText(o.Err)} {
		if more != "" {
			text += ", " + more
		}
	}
	return errors.New(text)
}

func (s *Service) waitFor(ctx context.Context, c *idempotency.Claim, w *paying, why error) (idempotency.Answer, error) {
	interim := s.interim(ctx, c, w) // Once the claim is given back, how things stand is another's to say.
	if c.Age > parkAfter {
		return interim, givenBack(c, c.Park(ctx, why.Error()))
	}
	return interim, yield(ctx, c, nextTry(c), why)
}

// yield gives a claim back for a while. The only error is ErrLeaseLost: then how
// things stand is another's to say.
func yield(ctx context.Context, c *idempotency.Claim, pause time.Duration, why error) error {
	return givenBack(c, c.Yield(ctx, pause, why.Error()))
}

// givenBack judges what came of giving a claim back. A database that could not be
// told is no error: whoever asked is told what is known, and the lease runs out.
func givenBack(c *idempotency.Claim, err error) error {
	if err == nil || errors.Is(err, idempotency.ErrLeaseLost) {
		return err
	}
	c.Log().Warn("the claim was not given back; its lease will run out", "error", err.Error())
	return nil
}

// nextTry is the pause before the completer looks again: short while whoever
// asked may still be waiting, long when Stripe has been away for a while.
func nextTry(c *idempotency.Claim) time.Duration {
	if c.Age > patientAfter {
		return jittered(slowPause)
	}
	return jittered(min(time.Duration(c.Attempts)*500*time.Millisecond, quickPause))
}

// jittered is d give or take a tenth, so that what failed together does not
// come back together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// backoff is full jitter below a ceiling that doubles.
func backoff(try int) time.Duration {
	return time.Duration(rand.Int64N(int64(200*time.Millisecond) << try))
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
