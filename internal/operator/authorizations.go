package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
)

// Limits of what is shown of authorizations.
const (
	expiresSoon       = 24 * time.Hour // as in PayonceAuthorizationExpiring
	unreadAfter       = 24 * time.Hour // as in OperatorAuthorizationCounts
	authorizationsMax = 50
)

// authorizationsPanel shows the authorizations that are about to expire, and those that have expired.
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

// Summary says how many payments are authorized, and of them how many end soon or should have ended.
func (a *authorizationsPanel) Summary() string {
	c := a.Counts
	text := plural(c.Held, "payment is", "payments are") + " authorized and not captured"
	if a.AtMost {
		text = "At least " + text
	}
	if c.Expiring > 0 {
		text += fmt.Sprintf(", %s within 24 hours", plural(c.Expiring, "of which expires", "of which expire"))
	}
	text += "."
	if c.Overdue > 0 {
		text += " " + plural(c.Overdue, "has expired, and how it ended is", "have expired, and how they ended is") +
			" not read from Stripe yet."
	}
	return text
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

// Unread reports whether the end of the authorization has not been read from Stripe for a day.
func (a authorization) Unread() bool { return a.Overdue() && a.Now.Sub(*a.CaptureBefore) > unreadAfter }

// Severity is the colour of the authorization. One that has just expired ends by itself.
func (a authorization) Severity() string {
	if a.Unread() {
		return "bad"
	}
	return "warn"
}

// Owner says who acts next.
func (a authorization) Owner() string {
	switch {
	case a.CapturingKey != nil:
		return "Being worked on"
	case a.Overdue() && !a.Unread():
		return "Automatic"
	}
	return "Needs you"
}

// Next says what happens next.
func (a authorization) Next() string {
	switch {
	case a.CapturingKey != nil:
		return "see the unfinished requests."
	case a.Unread():
		return "for a day, how it ended has not been read from Stripe. Check that the reconciler runs, and look at the " +
			"PaymentIntent in Stripe’s dashboard."
	case a.Overdue():
		return "it cannot be captured any more. Whether it expired, or was captured or canceled at Stripe before, is read " +
			"from Stripe, and ends the payment."
	}
	return "nothing captures it. If the tenant does not, the money is released and the order is open again. " +
		"Tell the tenant."
}

// Deadline says how long there is to capture.
func (a authorization) Deadline() string { return deadline(*a.CaptureBefore, a.Now) }

// Holder says what works on the authorization.
func (a authorization) Holder() string { return holder(a.CapturingKey, a.CapturingMinor, a.Currency) }

// deadline says how long an authorization lasts.
func deadline(before, now time.Time) string {
	if before.Before(now) {
		return "expired " + span(now.Sub(before)) + " ago"
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

// Hold says where the money of a payment is that is or was authorized; empty for any other.
func (p *objectPage) Hold(v paymentView) string {
	amount := money.Format(v.AmountMinor, v.Currency)
	switch {
	case v.InPart():
		return "The rest of the authorization was released to the card. That is no refund."
	case v.Released() && v.expired():
		return amount + " was reserved on the card until the authorization expired. Nothing was taken. " + maybePending
	case v.Released():
		return amount + " was reserved on the card and then released. Nothing was taken, and that is no refund. " +
			maybePending
	case !v.Authorized():
		return ""
	case v.CapturingMinor != nil:
		return "Held on the card, or taken: a capture works on it. The authorization " +
			deadline(*v.CaptureBefore, p.Now) + "."
	case v.CapturingKey != nil:
		return "Held on the card, and being released. The authorization " + deadline(*v.CaptureBefore, p.Now) + "."
	case v.CaptureBefore.Before(p.Now):
		return "The authorization " + deadline(*v.CaptureBefore, p.Now) + ". How it ended is not read from Stripe yet."
	}
	return "Held on the card, and not taken. It " + deadline(*v.CaptureBefore, p.Now) + "."
}

// maybePending explains what a customer sees of an authorization that was released.
const maybePending = "A bank may show it as a pending charge for some days more."

// Released reports whether the payment's money was reserved on the card, and nothing of it was taken.
func (p paymentView) Released() bool { return compare.IsReleased(p.Payment) }

// expired reports whether the authorization expired.
func (p paymentView) expired() bool {
	return p.FailureCode != nil && *p.FailureCode == payments.AuthorizationExpired
}

// ReleasedSummary says what a customer may see as pending charges; empty if no authorization was released.
func (p *objectPage) ReleasedSummary() string {
	i := slices.IndexFunc(p.Payments, paymentView.Released)
	if i < 0 {
		return ""
	}
	last := p.Payments[i]
	n := 0
	for _, v := range p.Payments {
		if v.Released() {
			n++
		}
	}
	amount := money.Format(last.AmountMinor, last.Currency)
	switch {
	case n > 1:
		return fmt.Sprintf("%s was reserved on the card %d times, and not taken.", amount, n)
	case last.expired():
		return amount + " was reserved on the card until the authorization expired."
	}
	return amount + " was reserved on the card and then released."
}

// heldSummary of a payment that is authorized. While a capture works on it, money may have moved.
func (p paymentView) heldSummary(now time.Time) string {
	held := money.Format(p.AmountMinor, p.Currency)
	switch {
	case p.CapturingMinor != nil:
		return held + " authorized, and a capture of " + money.Format(*p.CapturingMinor, p.Currency) +
			" is not finished. Charged at most once."
	case p.CapturingKey != nil:
		return "Not charged: " + held + " authorized, and being released."
	case p.CaptureBefore.Before(now):
		return held + " authorized, which " + deadline(*p.CaptureBefore, now) + ". How it ended is not read from Stripe yet."
	}
	return "Not charged yet: " + held + " authorized, which " + deadline(*p.CaptureBefore, now) + "."
}
