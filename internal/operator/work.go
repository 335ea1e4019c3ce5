package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

// workPanel shows the unfinished requests.
type workPanel struct {
	panel
	Counts db.OperatorWorkCountsRow
	Items  []workItem
	AtMost bool // the count stopped at its limit, so there may be more
}

func (w *workPanel) read(ctx context.Context, q *db.Queries, now time.Time) (err error) {
	if w.Counts, err = q.OperatorWorkCounts(ctx, scanMax); err != nil {
		return err
	}
	w.AtMost = w.Counts.Unfinished >= scanMax
	rows, err := q.OperatorWork(ctx, db.OperatorWorkParams{ScanMax: scanMax, LimitRows: workMax, Keys: []string{}})
	w.Items = workItems(rows, now)
	return err
}

// Summary says how many requests are unfinished, and in which states.
func (w *workPanel) Summary() string {
	c := w.Counts
	text := plural(c.Unfinished, "unfinished request", "unfinished requests")
	if w.AtMost {
		text = "At least " + text
	}
	var states []string
	for _, state := range []struct {
		n    int64
		name string
	}{
		{c.Parked, "parked"}, {c.Overdue, "overdue"}, {c.Unknown, "with an unknown outcome"},
		{c.AwaitingCustomer, "waiting for the customer"},
	} {
		if state.n > 0 {
			states = append(states, fmt.Sprintf("%d %s", state.n, state.name))
		}
	}
	if len(states) > 0 {
		text += ": " + strings.Join(states, ", ")
	}
	return text + "."
}

// workItem is an unfinished request.
type workItem struct {
	db.OperatorWorkRow
	Now         time.Time
	AdviceShown bool // the page's summary already says who acts next
}

// workItems gives all rows the same time, so that their ages can be compared.
func workItems(rows []db.OperatorWorkRow, now time.Time) []workItem {
	items := make([]workItem, len(rows))
	for i, row := range rows {
		items[i] = workItem{OperatorWorkRow: row, Now: now}
	}
	return items
}

// withoutAdvice is for a page with a single item, whose summary says who acts next: the
// item itself does not repeat it.
func withoutAdvice(items []workItem) []workItem {
	if len(items) == 1 {
		items[0].AdviceShown = true
	}
	return items
}

// KeyHash stands for the caller's key, which the page never shows.
func (w workItem) KeyHash() string { return idempotency.HashForLog(w.Key) }

// Severity is the colour of the item.
func (w workItem) Severity() string {
	switch {
	case w.NeedsYou():
		return "bad"
	case w.Unknown:
		return "warn"
	}
	return "calm"
}

// NeedsYou reports whether the request stays unfinished without an operator: it is
// parked, or it is due and no completer claims it.
func (w workItem) NeedsYou() bool { return w.ParkedAt != nil || w.Overdue }

// MarkableID is the payment or refund that may be marked as failed; empty for any other
// operation, which has no state at Stripe to check first.
func (w workItem) MarkableID() string {
	switch w.Operation {
	case payments.CreatePayment:
		return w.PaymentID
	// part: checkouts {
	case checkout.Create:
		return w.PaymentID
	// part: checkouts }
	case payments.CreateRefund, payments.RefundOrder, payments.RefundByOperator:
		return w.ResourceID
	}
	return ""
}

// Object is the id of what the request is about.
func (w workItem) Object() string {
	if w.Operation == payments.RefundOrphanedIntent {
		return intentOfRefundKey(w.Key)
	}
	return w.ResourceID
}

// Href is the page of the object.
func (w workItem) Href() string {
	if w.Operation == payments.RefundOrphanedIntent {
		return "/operator/intents/" + intentOfRefundKey(w.Key)
	}
	return objectHref(w.TenantID, w.ResourceID)
}

// Owner says who acts next.
func (w workItem) Owner() string {
	switch {
	case w.NeedsYou():
		return "Needs you"
	case w.Held:
		return "In progress"
	case w.RecoveryPoint == "action_required":
		return "Waiting for the customer"
	}
	return "Automatic"
}

// Next says what happens next, and when.
func (w workItem) Next() string {
	switch {
	case w.ParkedAt != nil:
		return "parked " + span(w.Now.Sub(*w.ParkedAt)) + " ago, no longer retried. " + w.advice()
	case w.Overdue:
		return "due at " + clock(w.NextAt) + ", " + span(w.Now.Sub(w.NextAt)) +
			" ago, and not claimed by any completer. Check that the processes run."
	case w.Held:
		return "a process is working on it. If that process stops, a completer takes over at " + clock(w.NextAt) + "."
	case w.RecoveryPoint == "action_required":
		return "authentication at their bank (3-D Secure). The completer checks at " + clock(w.NextAt) +
			"; a webhook triggers the check sooner."
	case w.RecoveryPoint == "refund_owed": // It has failed on every attempt. That is on the panel of what is owed.
		return "it waits until the refund that is owed to the customer has ended, and then goes on by itself."
	case !w.NextAt.After(w.Now):
		return "due now; a completer will claim it within a second."
	}
	return "a completer retries at " + clock(w.NextAt) + ", in " + span(w.NextAt.Sub(w.Now)) + "."
}

// advice says what to do about a parked request.
func (w workItem) advice() string {
	if w.LeaseExpirations > 1 {
		return "The processes that worked on it exited: see their logs. Fix the cause, then retry now."
	}
	return "Retry now is safe: the completer reads the state at Stripe before it sends anything."
}

// Money says whether money has moved.
func (w workItem) Money() string {
	if w.Unknown {
		return "unknown whether it has moved"
	}
	return moneyAt(w.RecoveryPoint)
}

// nothingMoved is what moneyAt returns for the points before the first call that can
// move money.
const nothingMoved = "cannot have moved"

// moneyAt says what a recovery point means for the money.
func moneyAt(point string) string {
	switch point {
	case "payment_recorded", "checkout_recorded", "order_created", "stock_reserved":
		return nothingMoved
	case "intent_recorded":
		return "may have moved"
	case "action_required":
		return "not moved before the customer authenticates"
	case "refund_recorded", "refund_begun", "orphan_refund_begun":
		return "may have been refunded"
	case "capture_recorded":
		return "may have been captured"
	case "refund_owed":
		return "owed to the customer: the refund failed"
	}
	return ""
}
