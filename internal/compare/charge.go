package compare

import (
	"fmt"
	"slices"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

// Charge is what an operation that is not a payment has charged, or is about to: a tip,
// a fee, a charge of a saved card. Its operation reads it from rows of its own.
type Charge struct {
	OrderRef
	ID          string // of the operation's row
	Operation   string // set by who reads it
	IntentID    string // empty: not known yet
	AmountMinor int64
	Currency    string
	Status      ChargeStatus
	FailureCode string   // of ChargeFailed
	Key         string   // the idempotency key that it is made under
	StripeKeys  []string // the keys that it was sent to Stripe under
	InProgress  bool     // the key is unfinished and not parked
}

// ChargeStatus is how far a charge has come.
type ChargeStatus int

// The statuses of a charge.
const (
	ChargePending ChargeStatus = iota // its outcome is not known yet
	ChargeSucceeded
	ChargeFailed
)

// registeredIntent compares an intent that another operation than a payment has made.
func registeredIntent(i stripe.Intent, o *Order) Difference {
	if !o.Registered[i.Operation] {
		return Difference{Result: Unregistered}
	}
	n := slices.IndexFunc(o.Charges, func(c Charge) bool { return c.Operation == i.Operation && c.IntentID == i.ID })
	if n < 0 { // Perhaps the response that named the intent was lost. A charge that has an intent is none of these.
		n = slices.IndexFunc(o.Charges, func(c Charge) bool {
			return c.Operation == i.Operation && c.IntentID == "" && c.Status == ChargePending &&
				c.AmountMinor == i.AmountMinor && c.Currency == i.Currency
		})
	}
	if n < 0 {
		if i.Status != stripe.IntentSucceeded || i.ReceivedMinor == i.RefundedMinor {
			return Difference{Result: Agrees} // No money moved, or all of it went back.
		}
		return Difference{Result: Differs, Discrepancy: intentDiscrepancy(i, o, db.DiscrepancyKindUnmatchedAtStripe,
			i.ReceivedMinor-i.RefundedMinor, "paid at Stripe by "+i.Operation+", which has no row of it")}
	}
	c := o.Charges[n]
	differs := func(kind db.DiscrepancyKind, drift int64, detail string) Difference {
		d := intentDiscrepancy(i, o, kind, drift, detail)
		d.Currency = c.Currency
		return Difference{Result: Differs, Key: c.Key, Discrepancy: d}
	}
	paid := i.Status == stripe.IntentSucceeded
	switch {
	case paid && c.Status == ChargeSucceeded && i.ReceivedMinor == c.AmountMinor && i.Currency == c.Currency:
		return Difference{Result: Agrees}
	case paid && c.Status == ChargeSucceeded:
		return differs(db.DiscrepancyKindAmountMismatch, i.ReceivedMinor-c.AmountMinor,
			fmt.Sprintf("%s of %d %s here, %d %s at Stripe", i.Operation, c.AmountMinor, c.Currency, i.ReceivedMinor,
				i.Currency))
	case c.Status == ChargeSucceeded:
		return differs(db.DiscrepancyKindMissingAtStripe, -c.AmountMinor,
			fmt.Sprintf("%s succeeded here, and is %q at Stripe", i.Operation, i.Status))
	case !paid:
		return Difference{Result: Agrees}
	case c.InProgress:
		return Difference{Result: InProgress, Key: c.Key}
	case c.Status == ChargeFailed && i.ReceivedMinor == i.RefundedMinor:
		return Difference{Result: Agrees}
	}
	return differs(db.DiscrepancyKindUnmatchedAtStripe, i.ReceivedMinor-i.RefundedMinor,
		"paid at Stripe by "+i.Operation+", and not here")
}
