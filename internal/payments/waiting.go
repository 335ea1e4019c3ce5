package payments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/payonce/internal/idempotency"
)

// look reads the intent from Stripe.
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

// hedged makes a request that is safe to repeat. Stripe may let one request hang and
// answer the next, so a slow one is joined by another, up to looksMax; the first
// reply that tells something counts, or the last one if none does.
func hedged[T any](ctx context.Context, ask func(context.Context) (answer T, tells bool)) T {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type reply struct {
		answer T
		tells  bool
	}
	replies := make(chan reply, looksMax) // buffered, so that a late reply does not block its goroutine
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

// wait gives the claim back until it is time to look again, and answers with the
// present state.
func (s *Service) wait(ctx context.Context, c *idempotency.Claim, w *paying, out Outcome) (idempotency.Answer, error) {
	return s.waitFor(ctx, c, w, out.why())
}

// why describes, for a person, an attempt that did not end the call.
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
	interim := s.interim(ctx, c, w) // Once the claim is given back, another process may change the state.
	if c.Age > parkAfter {
		return interim, givenBack(c, c.Park(ctx, why.Error()))
	}
	return interim, yield(ctx, c, nextTry(c), why)
}

// yield gives a claim back for a while. The only error is ErrLeaseLost: then the
// new holder knows the present state.
func yield(ctx context.Context, c *idempotency.Claim, pause time.Duration, why error) error {
	return givenBack(c, c.Yield(ctx, pause, why.Error()))
}

// givenBack decides whether a failed attempt to give a claim back is an error. Only
// a lost lease is: otherwise the client is told what is known, and the lease runs out.
func givenBack(c *idempotency.Claim, err error) error {
	if err == nil || errors.Is(err, idempotency.ErrLeaseLost) {
		return err
	}
	c.Log().Warn("the claim was not given back; its lease will run out", "error", err.Error())
	return nil
}

// nextTry is the pause before the completer looks again: short while the client may
// still be waiting, long when Stripe has been away for a while.
func nextTry(c *idempotency.Claim) time.Duration {
	if c.Age > patientAfter {
		return jittered(slowPause)
	}
	return jittered(min(time.Duration(c.Attempts)*500*time.Millisecond, quickPause))
}

// jittered is d plus or minus a tenth, so that what failed together is not retried
// together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// backoff is full jitter below a ceiling that doubles with each try.
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
