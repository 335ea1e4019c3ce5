package compare

import (
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

// IsAbandoned reports whether no operation will ever confirm the intent: it is
// unconfirmed, older than the given time, and no payment of its order can use it.
func (o *Order) IsAbandoned(i stripe.Intent, before time.Time) bool {
	return Unconfirmed(i.Status) && i.CreatedAt.Before(before) && !o.MayConfirm(i.ID)
}

// Unaccounted reports whether an intent that a lost life has made holds the money of its order or still can, and no payment
// here has it.
func (o *Order) Unaccounted(i stripe.Intent) bool {
	return i.Operation == "" && o.Row != nil && i.Status != stripe.IntentCanceled && i.Status != "" && o.Number(i.ID) == 0
}

// Unconfirmed reports whether no money has moved and a confirm or a capture could still move it.
func Unconfirmed(status stripe.IntentStatus) bool {
	return status == stripe.IntentRequiresPaymentMethod || status == stripe.IntentRequiresConfirmation ||
		status == stripe.IntentRequiresAction || status == stripe.IntentRequiresCapture ||
		status == stripe.IntentRequiresReauthorization
}

// UnusedAfter is how long an intent waits for the order's next payment. After that it is canceled, and the
// next payment makes another: the intents that could still be paid without us stay few.
const UnusedAfter = 24 * time.Hour

// MayConfirm reports whether a payment of the order uses the intent, or the next one would.
func (o *Order) MayConfirm(intentID string) bool {
	if live := o.Live(); live != nil && (live.IntentID == nil || live.Uses(intentID)) {
		return true
	}
	if o.Row == nil || o.Row.Status != db.OrderStatusOpen {
		return false
	}
	if o.Reserved || o.Row.CancelingKey != nil || len(o.Payments) == 0 {
		return true
	}
	next := o.Payments[0] // the last payment of the last intent
	for _, p := range o.Payments {
		if p.IntentNumber >= next.IntentNumber {
			next = p
		}
	}
	return next.Uses(intentID) && next.IntentNumber > o.Row.IntentsRetired && next.Idle < UnusedAfter
}

// Number is the number of the intent, if a payment of the order has used it; otherwise 0.
func (o *Order) Number(intentID string) int32 {
	if p := o.payment(func(p Payment) bool { return p.Uses(intentID) }); p != nil {
		return p.IntentNumber
	}
	return 0
}

// Cancel is a cancel of an intent that was recorded before.
type Cancel struct {
	IntentNumber int32
	SameIntent   bool // it cancels the intent in question
}

// CancelNumber is the number under which the intent is canceled: its own if a payment
// has it, otherwise the smallest that no other intent of the order has, in our rows or
// in a recorded cancel. False: that number may still be given to the order's next
// intent.
func (o *Order) CancelNumber(intentID string, recorded []Cancel) (int32, bool) {
	taken, top := map[int32]bool{}, int32(0)
	for _, p := range o.Payments {
		if p.Uses(intentID) {
			return p.IntentNumber, true
		}
		if p.IntentID != nil {
			taken[p.IntentNumber] = true
		}
		top = max(top, p.IntentNumber)
	}
	for _, c := range recorded {
		if c.SameIntent {
			return c.IntentNumber, true
		}
		taken[c.IntentNumber] = true
	}
	n := int32(1)
	for taken[n] {
		n++
	}
	return n, n <= top || o.Row == nil || o.Row.Status != db.OrderStatusOpen
}

// NextNumber is the number that an intent of the order gets: its own if a payment has
// it, otherwise the next one.
func (o *Order) NextNumber(intentID string) int32 {
	next := int32(1)
	for _, p := range o.Payments {
		if p.Uses(intentID) {
			return p.IntentNumber
		}
		next = max(next, p.IntentNumber+1)
	}
	return next
}
