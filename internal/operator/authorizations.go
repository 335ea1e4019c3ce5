package operator

import (
	"context"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/money"
)

// Limits of what is shown of authorizations.
const (
	expiresSoon       = 24 * time.Hour // as in PayonceAuthorizationExpiring
	authorizationsMax = 50
)

// authorizationsPanel shows the authorizations that are about to expire, and those that have.
type authorizationsPanel struct {
	panel
	Counts  db.OperatorAuthorizationCountsRow
	AtMost  bool // the count stopped at its limit, so there may be more
	Next    []authorization
	Expired []db.OperatorAuthorizationsExpiredRow
}

func (a *authorizationsPanel) read(ctx context.Context, q *db.Queries, now time.Time) (err error) {
	a.Counts, err = q.OperatorAuthorizationCounts(ctx, db.OperatorAuthorizationCountsParams{
		ScanMax: scanMax, Within: expiresSoon,
	})
	if err != nil {
		return err
	}
	a.AtMost = a.Counts.Held >= scanMax
	rows, err := q.OperatorAuthorizations(ctx, db.OperatorAuthorizationsParams{
		Within: expiresSoon, LimitRows: authorizationsMax,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		a.Next = append(a.Next, authorization{OperatorAuthorizationsRow: row, Now: now})
	}
	a.Expired, err = q.OperatorAuthorizationsExpired(ctx, db.OperatorAuthorizationsExpiredParams{
		ScanMax: scanMax, LimitRows: authorizationsMax,
	})
	return err
}

// expired is how many are shown as expired.
func (a *authorizationsPanel) expired() int64 { return int64(len(a.Expired)) }

// authorization is money that is held on a card and about to be released.
type authorization struct {
	db.OperatorAuthorizationsRow
	Now time.Time
}

// Overdue reports whether the authorization should have ended already.
func (a authorization) Overdue() bool { return a.CaptureBefore.Before(a.Now) }

// Deadline says how long there is to capture.
func (a authorization) Deadline() string { return deadline(*a.CaptureBefore, a.Now) }

// Holder says what works on the authorization.
func (a authorization) Holder() string { return holder(a.CapturingKey, a.CapturingMinor, a.Currency) }

// deadline says how long an authorization lasts.
func deadline(before, now time.Time) string {
	if before.Before(now) {
		return "expired " + span(now.Sub(before)) + " ago; what became of it is read from Stripe"
	}
	return "expires in " + span(before.Sub(now))
}

// holder says what works on an authorization: a capture, a cancel, or nothing. A caller's key is not shown.
func holder(key *string, minor *int64, currency string) string {
	switch {
	case key == nil:
		return "nothing"
	case minor == nil:
		return "a cancel, hash of the key " + idempotency.HashForLog(*key)
	}
	return "a capture of " + money.Format(*minor, currency) + ", hash of the key " + idempotency.HashForLog(*key)
}

// Holder says what works on the payment's authorization.
func (p paymentView) Holder() string { return holder(p.CapturingKey, p.CapturingMinor, p.Currency) }

// Held is the payment that holds money on a card, if there is one.
func (p *objectPage) Held() *paymentView {
	if i := slices.IndexFunc(p.Payments, paymentView.Authorized); i >= 0 {
		return &p.Payments[i]
	}
	return nil
}

// Deadline says how long a payment of the page is authorized.
func (p *objectPage) Deadline(v paymentView) string { return deadline(*v.CaptureBefore, p.Now) }

// heldSummary of a payment that is authorized. While a capture works on it, money may have moved.
func (p paymentView) heldSummary(now time.Time) string {
	held := money.Format(p.AmountMinor, p.Currency)
	switch {
	case p.CapturingMinor != nil:
		return held + " authorized, and a capture of " + money.Format(*p.CapturingMinor, p.Currency) +
			" is not finished. Charged at most once."
	case p.CapturingKey != nil:
		return "Not charged: " + held + " authorized, and being released."
	}
	return "Not charged yet: " + held + " authorized, which " + deadline(*p.CaptureBefore, now) + "."
}
