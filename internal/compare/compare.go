package compare

import (
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
)

// The kinds of Stripe objects that are compared, as discrepancies are stored with them.
const (
	PaymentIntent = "payment_intent"
	Refund        = "refund"
)

// Result is the result of comparing one object of Stripe's with our rows.
type Result int

// The results. All but Agrees and Unregistered lead to something being done.
const (
	Agrees        Result = iota // or there is nothing to compare
	InProgress                  // an unfinished operation will find out; expedite it
	Adoptable                   // money that is provably ours and has no row
	StatusChanged               // a refund is further along at Stripe than here
	Abandoned                   // an intent that no operation will confirm
	Unaccounted                 // an intent that a lost life has made, and a payment of its order must account for
	Differs                     // an operator must decide
	Unregistered                // made by an operation that this program does not have
)

func (r Result) String() string {
	switch r {
	case Agrees:
		return "agrees"
	case InProgress:
		return "in_progress"
	case Adoptable:
		return "adoptable"
	case StatusChanged:
		return "status_changed"
	case Abandoned:
		return "abandoned"
	case Unaccounted:
		return "unaccounted"
	case Differs:
		return "differs"
	case Unregistered:
		return "unregistered"
	}
	panic("bug: a result without a name")
}

// Difference is a result with its consequences.
type Difference struct {
	Result Result
	// Key is the idempotency key of the operation that will find out; empty if it is
	// not waiting for anything.
	Key         string
	Discrepancy Discrepancy // of Adoptable, StatusChanged and Differs
	// GivenBack: it agrees because all that was paid was refunded. A bank may send a refund back weeks later, and then
	// the money is here.
	GivenBack bool
	// NoPayment: no payment of the order has the intent. Another order's may have it, if its metadata was edited.
	NoPayment bool
}

// Discrepancy is what Stripe and our rows disagree about, for one object.
type Discrepancy struct {
	Kind       db.DiscrepancyKind
	Object     string // PaymentIntent or Refund
	ObjectID   string // Stripe's
	TenantID   string
	OrderID    string
	PaymentID  string
	RefundID   string
	Currency   string
	DriftMinor int64 // how much more Stripe has than our rows say; negative: less
	Detail     string
}

// OrderRef names an order.
type OrderRef struct{ TenantID, OrderID string }

// HolderPatience is how long a checkout or a cancel that reserves an order may take to find out about money that no
// payment here knows. After that the money is a discrepancy, although the other may still end.
const HolderPatience = 30 * time.Minute

// Order is everything that our rows say about one order.
type Order struct {
	Row *db.Order // nil: there is no such order
	// Reserved: another operation pays the order, and only that one may: a checkout
	// that has not ended.
	Reserved bool
	// HolderKey is the key of that checkout, or of the cancel of the order, and HolderInProgress says
	// that it is unfinished, not parked, and younger than HolderPatience.
	HolderKey        string
	HolderInProgress bool

	Payments []Payment
	Refunds  []RefundRow
	// Charges are those of the registered operations, and Registered their names.
	Charges    []Charge
	Registered map[string]bool
}

// Payment is a payment's row.
type Payment struct {
	db.Payment
	InProgress bool          // its key, or that of its capture or cancel, is unfinished and not parked
	Idle       time.Duration // since its status last changed
}

// RefundRow is a refund's row.
type RefundRow struct {
	db.Refund
	InProgress bool
}

// Live is the order's payment that has not ended; nil if there is none.
func (o *Order) Live() *Payment {
	return o.payment(func(p Payment) bool {
		return p.Status == db.PaymentStatusProcessing || p.Status == db.PaymentStatusRequiresAction ||
			p.Status == db.PaymentStatusAuthorized
	})
}

// PaidMinor is how much a payment took: all of it or, if it was authorized first, what was captured. Zero before it has
// succeeded.
func PaidMinor(p db.Payment) int64 {
	switch {
	case p.Status != db.PaymentStatusSucceeded:
		return 0
	case p.CapturedMinor != nil:
		return *p.CapturedMinor
	}
	return p.AmountMinor
}

// IsReleased reports whether the money of a payment was authorized, and was released without a capture. A payment that was
// canceled has a charge only if it was authorized before.
func IsReleased(p db.Payment) bool {
	return p.ManualCapture && p.Status == db.PaymentStatusCanceled && p.ChargeID != nil
}

// Paid is the order's payment that succeeded; nil if there is none.
func (o *Order) Paid() *Payment {
	return o.payment(func(p Payment) bool { return p.Status == db.PaymentStatusSucceeded })
}

func (o *Order) payment(match func(Payment) bool) *Payment {
	if i := slices.IndexFunc(o.Payments, match); i >= 0 {
		return &o.Payments[i]
	}
	return nil
}

// Uses reports whether the payment is made through the intent.
func (p *Payment) Uses(intentID string) bool { return p.IntentID != nil && *p.IntentID == intentID }

// Intent compares a PaymentIntent with our rows of its order.
func Intent(i stripe.Intent, o *Order) Difference {
	// Anybody with access to the Stripe account can edit metadata. Our row decides whose intent it is.
	if i.Operation != "" && o.payment(func(p Payment) bool { return p.Uses(i.ID) }) == nil {
		return registeredIntent(i, o)
	}
	if live := o.Live(); live != nil && live.Status == db.PaymentStatusAuthorized && live.Uses(i.ID) {
		return authorizedIntent(i, o, live)
	}
	paid := o.Paid()
	switch {
	case i.Status == stripe.IntentRequiresCapture && o.authorizable(i):
		d := intentDiscrepancy(i, o, db.DiscrepancyKindUnmatchedAtStripe, 0, "authorized at Stripe, and no payment here")
		return Difference{Result: Adoptable, Discrepancy: d}
	case paid != nil && paid.Uses(i.ID) && i.Status != stripe.IntentSucceeded:
		d := intentDiscrepancy(i, o, db.DiscrepancyKindMissingAtStripe, -PaidMinor(paid.Payment),
			"succeeded here, and does not exist at Stripe")
		if i.Status != "" {
			d.Detail = fmt.Sprintf("succeeded here, and is %s at Stripe", i.Status)
		}
		d.PaymentID, d.Currency = paid.ID, paid.Currency
		return Difference{Result: Differs, Discrepancy: d}
	case paid != nil && paid.Uses(i.ID) && (i.ReceivedMinor != PaidMinor(paid.Payment) || i.Currency != paid.Currency):
		d := intentDiscrepancy(i, o, db.DiscrepancyKindAmountMismatch, i.ReceivedMinor-PaidMinor(paid.Payment),
			fmt.Sprintf("%d %s here, %d %s at Stripe", PaidMinor(paid.Payment), paid.Currency, i.ReceivedMinor,
				i.Currency))
		d.PaymentID = paid.ID
		return Difference{Result: Differs, Discrepancy: d}
	case paid != nil && paid.Uses(i.ID) && paid.ChargeID != nil && i.ChargeID != "" && *paid.ChargeID != i.ChargeID:
		// The money is the same, but refunds and disputes of that charge would be looked for at another.
		d := intentDiscrepancy(i, o, db.DiscrepancyKindStatusMismatch, 0,
			fmt.Sprintf("charge %s here, %s at Stripe", *paid.ChargeID, i.ChargeID))
		d.PaymentID = paid.ID
		return Difference{Result: Differs, Discrepancy: d}
	case i.Status == stripe.IntentSucceeded && (paid == nil || !paid.Uses(i.ID)):
		d := unmatchedIntent(i, o).withoutLost(i)
		d.NoPayment = o.payment(func(p Payment) bool { return p.Uses(i.ID) }) == nil
		return d
	}
	return Difference{Result: Agrees}
}

// authorizedIntent compares the intent of an authorized payment. While a capture or cancel of it, or of its order, is in
// progress, that finds out how it ended.
func authorizedIntent(i stripe.Intent, o *Order, held *Payment) Difference {
	differs := func(kind db.DiscrepancyKind, drift int64, detail string) Difference {
		d := intentDiscrepancy(i, o, kind, drift, detail)
		d.PaymentID, d.Currency = held.ID, held.Currency
		return Difference{Result: Differs, Discrepancy: d}
	}
	switch i.Status {
	case stripe.IntentSucceeded:
		if i.Currency != held.Currency || i.ReceivedMinor > held.AmountMinor || i.ReceivedMinor <= 0 {
			return differs(db.DiscrepancyKindAmountMismatch, i.ReceivedMinor, fmt.Sprintf(
				"%d %s authorized, and %d %s captured", held.AmountMinor, held.Currency, i.ReceivedMinor, i.Currency))
		}
	case stripe.IntentCanceled:
	case "":
		return differs(db.DiscrepancyKindMissingAtStripe, 0, "authorized here, and does not exist at Stripe")
	default:
		return Difference{Result: Agrees}
	}
	d := differs(db.DiscrepancyKindStatusMismatch, i.ReceivedMinor, "authorized here, and "+string(i.Status)+" at Stripe")
	inProgress := o.HolderInProgress
	if d.Key = o.HolderKey; held.CapturingKey != nil {
		d.Key, inProgress = *held.CapturingKey, held.InProgress
	}
	switch {
	case d.Key == "":
		d.Result = StatusChanged
	case inProgress:
		d.Result = InProgress
	default:
		d.Discrepancy.Detail += ", and the key of its capture or cancel is parked"
	}
	return d
}

// authorizable reports whether an intent whose money is reserved can become the payment of its order: a database that was
// restored has forgotten that it was.
func (o *Order) authorizable(i stripe.Intent) bool {
	return o.Row != nil && o.Row.Status == db.OrderStatusOpen && !o.Reserved && o.Row.CancelingKey == nil &&
		o.Live() == nil && i.AmountMinor == o.Row.AmountMinor && i.Currency == o.Row.Currency &&
		o.payment(func(p Payment) bool { return p.Uses(i.ID) && p.IntentClosed }) == nil
}

// withoutLost is d without what lost disputes took of an intent that no payment here has: that money is not at Stripe
// any more, and nothing can be given back of it.
func (d Difference) withoutLost(i stripe.Intent) Difference {
	if d.Result != Differs || i.LostMinor == 0 {
		return d
	}
	if d.Discrepancy.DriftMinor -= i.LostMinor; d.Discrepancy.DriftMinor == 0 {
		return Difference{Result: Agrees, GivenBack: true}
	}
	d.Discrepancy.Detail += fmt.Sprintf("; %d %s were lost in disputes", i.LostMinor, i.Currency)
	return d
}

// unmatchedIntent compares an intent that was paid and that no payment of ours used.
func unmatchedIntent(i stripe.Intent, o *Order) Difference {
	net := i.ReceivedMinor - i.RefundedMinor
	unmatched := func(detail string) Difference {
		return Difference{
			Result: Differs, Discrepancy: intentDiscrepancy(i, o, db.DiscrepancyKindUnmatchedAtStripe, net, detail),
		}
	}
	live, paid := o.Live(), o.Paid()
	switch {
	case i.RefundedAtMost: // It is read on its own before anything follows from that.
		return unmatched("paid at Stripe, and a list does not say for certain what was given back of it")
	case live != nil && live.Uses(i.ID) && net != 0 && (i.AmountMinor != live.AmountMinor || i.Currency != live.Currency):
		d := intentDiscrepancy(i, o, db.DiscrepancyKindAmountMismatch, net, fmt.Sprintf(
			"the payment is for %d %s, and %d %s was paid", live.AmountMinor, live.Currency, i.ReceivedMinor, i.Currency))
		d.PaymentID = live.ID
		return Difference{Result: Differs, Discrepancy: d}
	case live != nil && (live.IntentID == nil || live.Uses(i.ID)):
		d := unmatched(fmt.Sprintf("paid at Stripe, %s here, and the payment's key is parked", live.Status))
		d.Key, d.Discrepancy.PaymentID = live.IdempotencyKey, live.ID
		if live.InProgress {
			d.Result = InProgress
		}
		return d
	case net == 0:
		return Difference{Result: Agrees, GivenBack: true}
	case o.Row == nil:
		return unmatched("paid at Stripe, and the order does not exist here")
	case o.Reserved || o.Row.Status == db.OrderStatusOpen && o.Row.CancelingKey != nil:
		if o.HolderInProgress {
			return Difference{Result: InProgress}
		}
		d := unmatched("paid at Stripe, and the checkout or cancel that reserves the order is parked or hangs")
		d.Key = o.HolderKey
		return d
	case live != nil:
		return unmatched("paid at Stripe while another payment of the order is in progress: " + live.ID)
	case paid != nil:
		return unmatched(fmt.Sprintf("the order is paid a second time, after %s with %s", paid.ID, *paid.IntentID))
	case i.AmountMinor != o.Row.AmountMinor || i.ReceivedMinor != o.Row.AmountMinor && !partlyCaptured(i) ||
		i.Currency != o.Row.Currency:
		return Difference{Result: Differs, Discrepancy: intentDiscrepancy(i, o, db.DiscrepancyKindAmountMismatch, net,
			fmt.Sprintf("the order is for %d %s, and %d %s was paid",
				o.Row.AmountMinor, o.Row.Currency, i.ReceivedMinor, i.Currency))}
	case o.Row.Status == db.OrderStatusOpen, o.Row.Status == db.OrderStatusCanceled:
		d := unmatched("paid at Stripe, and no payment here")
		d.Result = Adoptable
		return d
	}
	return unmatched("paid at Stripe, and the order is " + string(o.Row.Status))
}

// partlyCaptured reports whether less was captured of an intent than was authorized.
func partlyCaptured(i stripe.Intent) bool {
	return i.ManualCapture && i.ReceivedMinor > 0 && i.ReceivedMinor < i.AmountMinor
}

func intentDiscrepancy(i stripe.Intent, o *Order, kind db.DiscrepancyKind, drift int64, detail string) Discrepancy {
	d := Discrepancy{
		Kind: kind, Object: PaymentIntent, ObjectID: i.ID, TenantID: i.TenantID, OrderID: i.OrderID,
		Currency: i.Currency, DriftMinor: drift, Detail: detail,
	}
	if o.Row != nil && d.Currency == "" {
		d.Currency = o.Row.Currency
	}
	return d
}

// RefundOf compares a refund at Stripe with our rows of its order.
func RefundOf(r stripe.Refund, o *Order) Difference {
	i := slices.IndexFunc(o.Refunds, func(row RefundRow) bool { return r.Is(row.Refund) })
	if i < 0 {
		return unmatchedRefund(r, o)
	}
	row := o.Refunds[i]
	d := Discrepancy{
		Object: Refund, ObjectID: r.ID, TenantID: row.TenantID, OrderID: row.OrderID, PaymentID: row.PaymentID,
		RefundID: row.ID, Currency: row.Currency, Kind: db.DiscrepancyKindStatusMismatch,
		DriftMinor: movedMinor(row.Status, row.AmountMinor) - movedMinor(r.Status, r.AmountMinor),
		Detail:     fmt.Sprintf("refund %s here, %s at Stripe", row.Status, r.Status),
	}
	_, _, applies := RefundTransition(row.Status, r.Status, row.AmountMinor)
	differs := r.Status != "" && !r.Returns(row.Refund)
	switch {
	// Nothing but metadata says that it is ours, and its own operation is about to find out. The row is pending,
	// because no other is matched by metadata.
	case row.StripeRefundID == nil && row.InProgress && (differs || r.Status != row.Status):
		return Difference{Result: InProgress, Key: row.IdempotencyKey, Discrepancy: d}
	case differs:
		d.Kind = db.DiscrepancyKindAmountMismatch
		d.Detail = fmt.Sprintf("refund of %d %s here, %d %s at Stripe", row.AmountMinor, row.Currency, r.AmountMinor,
			r.Currency)
		return Difference{Result: Differs, Discrepancy: d}
	case row.Status == r.Status:
		return Difference{Result: Agrees}
	case applies:
		return Difference{Result: StatusChanged, Discrepancy: d}
	case row.Status == db.RefundStatusPending && row.InProgress:
		return Difference{Result: InProgress, Key: row.IdempotencyKey, Discrepancy: d}
	case r.Status == "":
		d.Kind, d.Detail = db.DiscrepancyKindMissingAtStripe,
			fmt.Sprintf("refund %s here, and does not exist at Stripe", row.Status)
	}
	if d.DriftMinor == 0 {
		return Difference{Result: Agrees} // Failed here and canceled there: no money moved either way.
	}
	return Difference{Result: Differs, Discrepancy: d}
}

// unmatchedRefund compares a refund that has no row here: one that somebody made at Stripe, or that was ours before the
// database was restored. Every refund of a payment that succeeded gets a row, whatever its metadata says.
func unmatchedRefund(r stripe.Refund, o *Order) Difference {
	paid := o.Paid()
	if r.Released {
		return Difference{Result: Agrees}
	}
	if movedMinor(r.Status, 1) == 0 && r.Status != db.RefundStatusPending || paid == nil || !paid.Uses(r.IntentID) {
		// No money moved, or the intent is the discrepancy and its drift includes this refund.
		return Difference{Result: Agrees, NoPayment: o.payment(func(p Payment) bool { return p.Uses(r.IntentID) }) == nil}
	}
	d := Difference{Result: Differs, Discrepancy: Discrepancy{
		Kind: db.DiscrepancyKindUnmatchedAtStripe, Object: Refund, ObjectID: r.ID, TenantID: paid.TenantID,
		OrderID: paid.OrderID, PaymentID: paid.ID, RefundID: r.RefundID, Currency: r.Currency,
		DriftMinor: -movedMinor(r.Status, r.AmountMinor), Detail: "refunded at Stripe, and no refund here",
	}}
	switch pending := o.pendingRefund(paid.ID); {
	case r.Currency != paid.Currency:
		d.Discrepancy.Detail += ": the payment is in " + paid.Currency
	case r.AmountMinor <= PaidMinor(paid.Payment)-paid.AmountRefundingMinor:
		d.Result = Adoptable
	case pending != nil: // Stripe will refuse ours, because there is not enough left for both.
		d.Result, d.Key = InProgress, pending.IdempotencyKey
	default:
		d.Discrepancy.Detail += ": more than what is left of the payment"
	}
	return d
}

// pendingRefund is a refund of the payment whose operation is unfinished; nil if there is none.
func (o *Order) pendingRefund(paymentID string) *RefundRow {
	i := slices.IndexFunc(o.Refunds, func(row RefundRow) bool {
		return row.PaymentID == paymentID && row.Status == db.RefundStatusPending && row.InProgress
	})
	if i < 0 {
		return nil
	}
	return &o.Refunds[i]
}

// IsOwnRefund reports whether a refund without a row is one that this service made and then lost with its database: it
// names the payment that it returns and a refund that no row has. Any other was made by somebody else.
func IsOwnRefund(r stripe.Refund, o *Order) bool {
	paid := o.Paid()
	return paid != nil && paid.Uses(r.IntentID) && ids.Is(ids.Refund, r.RefundID) &&
		r.TenantID == paid.TenantID && r.OrderID == paid.OrderID && r.PaymentID == paid.ID &&
		!slices.ContainsFunc(o.Refunds, func(row RefundRow) bool { return row.ID == r.RefundID })
}

// movedMinor is how much of a refund's amount has moved.
func movedMinor(status db.RefundStatus, amount int64) int64 {
	if status == db.RefundStatusSucceeded {
		return amount
	}
	return 0
}

// RefundTransition is what a refund's change of status does to the sums of its payment:
// to what is reserved for refunds, and to what was refunded, in minor units. A status
// that arrives late, or again, changes nothing: not legal.
func RefundTransition(from, to db.RefundStatus, amount int64) (reserved, refunded int64, legal bool) {
	ended := to == db.RefundStatusFailed || to == db.RefundStatusCanceled
	switch {
	case from == db.RefundStatusPending && to == db.RefundStatusSucceeded:
		return 0, amount, true
	case from == db.RefundStatusPending && ended:
		return -amount, 0, true
	case from == db.RefundStatusSucceeded && ended: // The bank sent it back, or it was canceled in the dashboard.
		return -amount, -amount, true
	}
	return 0, 0, false
}
