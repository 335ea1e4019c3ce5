package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

const (
	resealBatch = 100                   // values outside of finished keys, of each kind
	resealPage  = 500                   // finished keys that are looked at together
	resealRest  = 20 * time.Millisecond // between two pages, so that requests go first
	// resealBehind is longer than a transaction takes that stores a response, so that none is passed by.
	resealBehind = time.Minute
	// resealAgain is from the end of one pass to the next, while there are several keys. A process that has them in the
	// order from before their change seals back what another one has sealed already.
	resealAgain = 10 * time.Minute
)

// Resealer seals with the first key what is plain, or was sealed with another one. It goes through the responses in the
// order in which they were stored, and on with those that are stored later: another process may still write with an
// older key. While there are several keys, it does so again and again. Any number may run.
type Resealer struct {
	pool  *Pool
	log   *slog.Logger
	after db.AnswersAfterParams // the place in the order of responses
	ended time.Time             // when this pass had come to the last response; zero: it has not
	dirty bool                  // something in this pass could not be sealed anew

	resealed atomic.Int64
	passedBy atomic.Int64 // responses that cannot be opened, of this pass
	stuck    atomic.Int64 // other values that cannot be opened
	settled  atomic.Int64 // Unix seconds since when nothing was found; 0: not all was looked at
}

// NewResealer returns a resealer for one loop.
func NewResealer(pool *Pool, log *slog.Logger) *Resealer {
	r := &Resealer{pool: pool, log: log}
	r.begin()
	return r
}

// begin begins a pass.
func (r *Resealer) begin() {
	r.after = db.AnswersAfterParams{
		KeyID: r.pool.box.SealedBy(), AfterAt: time.Unix(0, 0), Behind: resealBehind, LimitRows: resealPage,
	}
	r.ended, r.dirty = time.Time{}, false
	r.passedBy.Store(0)
}

// Resealed counts the values that were sealed anew.
func (r *Resealer) Resealed() float64 { return float64(r.resealed.Load()) }

// Unreadable counts the values that cannot be opened, and so not be sealed anew.
func (r *Resealer) Unreadable() float64 { return float64(r.passedBy.Load() + r.stuck.Load()) }

// Settled is for how many seconds nothing was found that is not sealed with the first key, since all was looked at; 0
// before that, and while something cannot be opened. What was stored within the last minute is not looked at yet.
func (r *Resealer) Settled() float64 {
	since := r.settled.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(since, 0)).Seconds()
}

// RunOnce seals a few values anew, and returns how many it has sealed or looked at; zero once it has come to the last
// one. Without a key that seals it does nothing.
func (r *Resealer) RunOnce(ctx context.Context) (int, error) {
	if !r.pool.box.Seals() {
		return 0, nil
	}
	if !r.ended.IsZero() && time.Since(r.ended) > resealAgain && (r.dirty || len(r.pool.box.KeyIDs()) > 1) {
		r.begin()
	}
	n, full, err := r.others(ctx)
	looked, found, more, answersErr := r.answers(ctx)
	err = errors.Join(err, answersErr)
	r.resealed.Add(int64(n + found))
	r.dirty = r.dirty || err != nil || r.stuck.Load() > 0
	switch {
	case r.dirty || n+found > 0:
		r.settled.Store(0)
	case !more && r.settled.Load() == 0:
		r.settled.Store(time.Now().Unix())
		r.log.Info("all values that were stored until a minute ago are sealed with the first key of DATA_KEY",
			"key_id", r.pool.box.KeyIDs()[0], "resealed", r.resealed.Load())
	}
	if more {
		select {
		case <-time.After(resealRest):
		case <-ctx.Done():
		}
		return n + looked, err
	}
	if r.ended.IsZero() {
		r.ended = time.Now()
	}
	if full {
		return n + found, err
	}
	return found, err // no hurry with the others: another process may seal them with its own first key
}

// others seals what is not in finished keys. full: there may be more of them.
func (r *Resealer) others(ctx context.Context) (n int, full bool, err error) {
	values, err := r.pool.SealedOtherwise(ctx, db.SealedOtherwiseParams{KeyID: r.after.KeyID, LimitRows: resealBatch})
	if err != nil {
		return 0, false, fmt.Errorf("look for values that are sealed otherwise: %w", err)
	}
	stuck := int64(0)
	for _, v := range values {
		changed, otherErr := r.other(ctx, v)
		if cannotBeOpened(otherErr) {
			stuck++
			r.log.Warn("a stored value is not sealed anew", "error", otherErr.Error())
			continue
		}
		n += int(changed)
		err = errors.Join(err, otherErr)
	}
	r.stuck.Store(stuck)
	return n, len(values) >= resealBatch && n > 0, err
}

// cannotBeOpened says of an error that another try would have it too, until DATA_KEY has another key.
func cannotBeOpened(err error) bool {
	var missing *sealed.MissingKeyError
	return errors.As(err, &missing) || errors.Is(err, sealed.ErrChanged)
}

func (r *Resealer) other(ctx context.Context, v db.SealedOtherwiseRow) (int64, error) {
	anew := func(p sealed.Place) ([]byte, error) {
		value, err := r.pool.box.Open(p, v.Stored)
		return r.pool.box.Seal(p, value), err
	}
	switch v.Place {
	case "tenants":
		value, err := anew(sealed.FingerprintSecret(v.Owner))
		if err != nil {
			return 0, err
		}
		return r.pool.TenantReseal(ctx, db.TenantResealParams{ID: v.Owner, Was: v.Stored, Sealed: value})
	// part: webhooks {
	case "webhook_endpoints":
		value, err := anew(sealed.WebhookSecret(v.Owner))
		if err != nil {
			return 0, err
		}
		return r.pool.EndpointReseal(ctx, db.EndpointResealParams{TenantID: v.Owner, Was: v.Stored, Sealed: value})
	// part: webhooks }
	case "inbox_events":
		value, err := anew(sealed.Payload(v.Owner, v.ID))
		if err != nil {
			return 0, err
		}
		return r.pool.EventReseal(ctx, db.EventResealParams{
			Consumer: v.Owner, EventID: v.ID, Was: v.Stored, Sealed: value,
		})
	}
	value, err := anew(sealed.Request(v.Owner, v.ID))
	if err != nil {
		return 0, err
	}
	return r.pool.RequestReseal(ctx, db.RequestResealParams{TenantID: v.Owner, Key: v.ID, Was: v.Stored, Sealed: value})
}

// answers looks at the next page of finished keys, and seals what is sealed otherwise. It goes on behind those that it
// cannot open.
func (r *Resealer) answers(ctx context.Context) (looked, found int, more bool, err error) {
	page, err := r.pool.AnswersAfter(ctx, r.after)
	if err != nil {
		return 0, 0, false, fmt.Errorf("look for responses that are sealed otherwise: %w", err)
	}
	for _, k := range page {
		if k.Request != nil || k.AnswerBody != nil {
			n, err := r.answer(ctx, k)
			switch {
			case cannotBeOpened(err):
				r.passedBy.Add(1)
				r.dirty = true
				r.log.Warn("a stored value is not sealed anew", "tenant_id", k.TenantID, "error", err.Error())
			case err != nil:
				return looked, found, true, fmt.Errorf("seal a response anew: %w", err)
			}
			found += int(n)
		}
		r.after.AfterAt, r.after.AfterTenant, r.after.AfterKey = k.FinishedAt, k.TenantID, k.Key
		looked++
	}
	return looked, found, len(page) == resealPage, nil
}

func (r *Resealer) answer(ctx context.Context, k db.AnswersAfterRow) (int64, error) {
	box := r.pool.box
	request, err := box.Open(sealed.Request(k.TenantID, k.Key), k.Request)
	if err != nil {
		return 0, err
	}
	body, err := box.Open(sealed.Answer(k.TenantID, k.Key), k.AnswerBody)
	if err != nil {
		return 0, err
	}
	return r.pool.KeyReseal(ctx, db.KeyResealParams{
		TenantID: k.TenantID, Key: k.Key, WasRequest: k.Request, WasAnswer: k.AnswerBody,
		SealedRequest: box.Seal(sealed.Request(k.TenantID, k.Key), request),
		SealedAnswer:  box.Seal(sealed.Answer(k.TenantID, k.Key), body),
	})
}
