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
	resealBatch = 100                   // values outside of finished keys that are read together
	resealPage  = 500                   // finished keys that are looked at together
	resealRest  = 20 * time.Millisecond // between two pages, so that requests go first
	// resealBehind is longer than a transaction takes that stores a response, so that none is passed by.
	resealBehind = time.Minute
	// resealAgain is from the end of one pass to the next, while there are several keys. A process that has them in the
	// order from before their change seals back what another one has sealed already.
	resealAgain = 10 * time.Minute
	// resealWarnings is how many values that cannot be decrypted are logged in one pass. There may be millions.
	resealWarnings = 10
)

// Resealer encrypts with the first key what is plain, or was encrypted with another one. It goes through the responses
// in the order in which they were stored, and on with those that are stored later: another process may still write with
// an older key. While there are several keys, it does so again and again. Any number may run.
//
// What it cannot decrypt it counts and passes by, so that it reaches every other value.
type Resealer struct {
	pool    *Pool
	log     *slog.Logger
	after   db.AnswersAfterParams    // the place in the order of responses
	other   db.SealedOtherwiseParams // the place in the order of the other values; they are looked at again and again
	ended   time.Time                // when this pass had come to the last response; zero: it has not
	dirty   bool                     // something in this pass could not be encrypted anew
	stuck   bool                     // of the other values: they are looked at again in the next pass
	warned  int                      // values of this pass that were logged
	answers unreadable
	others  unreadable

	resealed atomic.Int64
	settled  atomic.Int64 // Unix seconds since when nothing was found; 0: not all was looked at
}

// unreadable counts values that cannot be decrypted. While they are counted again, the last count stands.
type unreadable struct {
	counted  int64
	reported atomic.Int64
}

func (u *unreadable) add() {
	u.counted++
	u.reported.Store(max(u.reported.Load(), u.counted))
}

// end ends a count and returns it.
func (u *unreadable) end() int64 {
	n := u.counted
	u.counted = 0
	u.reported.Store(n)
	return n
}

// NewResealer returns a resealer for one loop.
func NewResealer(pool *Pool, log *slog.Logger) *Resealer {
	r := &Resealer{pool: pool, log: log}
	r.begin()
	return r
}

// begin begins a pass.
func (r *Resealer) begin() {
	key := r.pool.box.SealedBy()
	r.after = db.AnswersAfterParams{KeyID: key, AfterAt: time.Unix(0, 0), Behind: resealBehind, LimitRows: resealPage}
	r.other = db.SealedOtherwiseParams{KeyID: key, LimitRows: resealBatch}
	r.ended, r.dirty, r.stuck, r.warned = time.Time{}, false, false, 0
	r.answers.counted, r.others.counted = 0, 0
}

// Resealed counts the values that were encrypted anew.
func (r *Resealer) Resealed() float64 { return float64(r.resealed.Load()) }

// Unreadable counts the values that cannot be decrypted, and so not be encrypted anew.
func (r *Resealer) Unreadable() float64 {
	return float64(r.answers.reported.Load() + r.others.reported.Load())
}

// Settled is for how many seconds nothing was found that is not encrypted with the first key, since all was looked at; 0
// before that, and while something cannot be decrypted. What was stored within the last minute is not looked at yet.
func (r *Resealer) Settled() float64 {
	since := r.settled.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(since, 0)).Seconds()
}

// RunOnce encrypts a few values anew, and returns how many it has looked at, or encrypted; zero once it has come to the
// last one. Without a key that encrypts it does nothing.
func (r *Resealer) RunOnce(ctx context.Context) (int, error) {
	if !r.pool.box.Seals() {
		return 0, nil
	}
	if !r.ended.IsZero() && time.Since(r.ended) > resealAgain && (r.dirty || len(r.pool.box.KeyIDs()) > 1) {
		r.begin()
	}
	if mine, err := r.isNewest(ctx); err != nil || !mine {
		return 0, err
	}
	others, err := r.resealOthers(ctx)
	answers, answersErr := r.resealAnswers(ctx)
	err = errors.Join(err, answersErr)
	found := others.resealed + answers.resealed
	r.resealed.Add(int64(found))
	r.dirty = r.dirty || err != nil
	more := others.more || answers.more
	switch {
	case r.dirty || found > 0:
		r.settled.Store(0)
	case !more && r.settled.Load() == 0:
		r.settled.Store(time.Now().Unix())
		r.log.Info("all values that were stored until a minute ago are encrypted with the first key of DATA_KEY",
			"key_id", r.pool.box.KeyIDs()[0], "reencrypted", r.resealed.Load())
	}
	if !answers.more && answersErr == nil && r.ended.IsZero() {
		r.ended = time.Now()
		r.answers.end()
	}
	if more {
		select {
		case <-time.After(resealRest):
		case <-ctx.Done():
		}
		return others.looked + answers.looked, err
	}
	return answers.resealed, err // the others have time: another process may write them with its own first key
}

// isNewest reports whether values are encrypted anew with the key of this process. A process from before the change of a key
// leaves them as they are.
func (r *Resealer) isNewest(ctx context.Context) (bool, error) {
	switch introduced, err := r.pool.KeyIntroduced(ctx); {
	case err != nil || introduced == KeyIsNewest:
		return err == nil, err
	case introduced == KeyIsUnknown:
		owns, err := r.pool.OwnsTables(ctx)
		return owns, err
	}
	r.settled.Store(0)
	return false, nil
}

// resealedPage is a page of values that was looked at.
type resealedPage struct {
	looked, resealed int
	more             bool // values may follow it
}

// passBy counts a value that cannot be decrypted, and goes on.
func (r *Resealer) passBy(of *unreadable, err error) {
	r.dirty = true
	of.add()
	if r.warned < resealWarnings {
		r.warned++
		r.log.Warn("a stored value cannot be decrypted with DATA_KEY", "error", err.Error())
	}
}

// resealOthers looks at a page of what is not in finished keys.
func (r *Resealer) resealOthers(ctx context.Context) (page resealedPage, err error) {
	if r.stuck {
		return page, nil
	}
	values, err := r.pool.SealedOtherwise(ctx, r.other)
	if err != nil {
		return page, fmt.Errorf("look for values that are encrypted otherwise: %w", err)
	}
	for _, v := range values {
		n, err := r.resealOther(ctx, v)
		switch {
		case cannotBeOpened(err):
			r.passBy(&r.others, err)
		case err != nil:
			page.more = true
			return page, fmt.Errorf("encrypt a value of %s anew: %w", v.Place, err)
		}
		page.resealed += int(n)
		page.looked++
		r.other.AfterPlace, r.other.AfterOwner, r.other.AfterID = v.Place, v.Owner, v.ID
	}
	if page.more = len(values) == resealBatch; !page.more {
		r.other.AfterPlace, r.other.AfterOwner, r.other.AfterID = "", "", ""
		r.stuck = r.others.end() > 0
	}
	return page, nil
}

// cannotBeOpened says of an error that another try would have it too, until DATA_KEY has another key.
func cannotBeOpened(err error) bool {
	var missing *sealed.MissingKeyError
	return errors.As(err, &missing) || errors.Is(err, sealed.ErrChanged) || errors.Is(err, sealed.ErrPlain)
}

func (r *Resealer) resealOther(ctx context.Context, v db.SealedOtherwiseRow) (int64, error) {
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
	case "webhook_secrets":
		value, err := anew(sealed.WebhookSecret(v.Owner, v.ID))
		if err != nil {
			return 0, err
		}
		return r.pool.SecretReseal(ctx, db.SecretResealParams{TenantID: v.Owner, ID: v.ID, Was: v.Stored, Sealed: value})
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
	if v.MadeSealed && sealed.KeyID(v.Stored) == nil {
		return 0, fmt.Errorf("open %s: %w", sealed.Request(v.Owner, v.ID), sealed.ErrPlain)
	}
	value, err := anew(sealed.Request(v.Owner, v.ID))
	if err != nil {
		return 0, err
	}
	return r.pool.RequestReseal(ctx, db.RequestResealParams{TenantID: v.Owner, Key: v.ID, Was: v.Stored, Sealed: value})
}

// resealAnswers looks at the next page of finished keys.
func (r *Resealer) resealAnswers(ctx context.Context) (page resealedPage, err error) {
	keys, err := r.pool.AnswersAfter(ctx, r.after)
	if err != nil {
		return page, fmt.Errorf("look for responses that are encrypted otherwise: %w", err)
	}
	for _, k := range keys {
		if k.Request != nil || k.AnswerBody != nil {
			n, err := r.resealAnswer(ctx, k)
			switch {
			case cannotBeOpened(err):
				r.passBy(&r.answers, err)
			case err != nil:
				page.more = true
				return page, fmt.Errorf("encrypt a response anew: %w", err)
			}
			page.resealed += int(n)
		}
		r.after.AfterAt, r.after.AfterTenant, r.after.AfterKey = k.FinishedAt, k.TenantID, k.Key
		page.looked++
	}
	page.more = len(keys) == resealPage
	return page, nil
}

func (r *Resealer) resealAnswer(ctx context.Context, k db.AnswersAfterRow) (int64, error) {
	box := r.pool.box
	request, err := r.pool.OpenOfKey(ctx, r.pool.Queries, sealed.Request(k.TenantID, k.Key), k.CreatedAt, k.Request)
	if err != nil {
		return 0, err
	}
	body, err := r.pool.OpenOfKey(ctx, r.pool.Queries, sealed.Answer(k.TenantID, k.Key), k.CreatedAt, k.AnswerBody)
	if err != nil {
		return 0, err
	}
	return r.pool.KeyReseal(ctx, db.KeyResealParams{
		TenantID: k.TenantID, Key: k.Key, WasRequest: k.Request, WasAnswer: k.AnswerBody,
		SealedRequest: box.Seal(sealed.Request(k.TenantID, k.Key), request),
		SealedAnswer:  box.Seal(sealed.Answer(k.TenantID, k.Key), body),
	})
}
