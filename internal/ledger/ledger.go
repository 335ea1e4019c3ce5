package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

// Name is the ledger's name as a consumer, at the broker and in the inbox. Do not change
// it: under another name it is a new consumer, which books all events again.
const Name = "ledger"

const (
	accountStripe  = "stripe"
	accountSales   = "sales"
	accountRefunds = "refunds"
)

const (
	paymentSucceeded = "payment.succeeded"
	refundSucceeded  = "refund.succeeded"
	refundFailed     = "refund.failed"
)

// Handler books the events that moved money, and no others.
func Handler() inbox.Handler {
	return inbox.Handler{Types: []string{paymentSucceeded, refundSucceeded, refundFailed}, Apply: book}
}

// entries are those of one event. They are two lists, because the query takes arrays.
type entries struct {
	currency string
	accounts []string
	amounts  []int64
}

func (e *entries) add(account string, amountMinor int64) {
	e.accounts = append(e.accounts, account)
	e.amounts = append(e.amounts, amountMinor)
}

// moved is the part of an event's object that the ledger needs.
type moved struct {
	Amount   int64  `json:"amount"`
	Captured *int64 `json:"amount_captured"` // only in a payment: what it took
	Currency string `json:"currency"`
	OrderID  string `json:"order_id"` // only in a payment, as Stripe is
	Stripe   struct {
		PaymentIntent string `json:"payment_intent"`
	} `json:"stripe"`
}

func book(ctx context.Context, q *db.Queries, e inbox.Event, _ any) error {
	var envelope outbox.Envelope
	var money moved
	if err := json.Unmarshal(e.Payload, &envelope); err != nil {
		return fmt.Errorf("%w: %w", inbox.ErrPoison, err)
	}
	if err := json.Unmarshal(envelope.Data, &money); err != nil {
		return fmt.Errorf("%w: %w", inbox.ErrPoison, err)
	}
	if money.Captured != nil { // An authorization moves nothing, and its capture may take less.
		money.Amount = *money.Captured
	}
	if money.Amount <= 0 || money.Currency == "" {
		return fmt.Errorf("%w: %s of %d %q", inbox.ErrPoison, e.Type, money.Amount, money.Currency)
	}
	if due, err := isDue(ctx, q, e, money); err != nil || !due {
		return err
	}
	lines := entries{currency: money.Currency}
	switch e.Type {
	case paymentSucceeded:
		lines.add(accountStripe, money.Amount)
		lines.add(accountSales, -money.Amount)
	case refundSucceeded:
		lines.add(accountRefunds, money.Amount)
		lines.add(accountStripe, -money.Amount)
	case refundFailed:
		// Most refunds that fail never succeeded, and nothing was booked. But a bank may
		// return a refund days after it succeeded; then its entries are reversed.
		booked, err := q.LedgerOfResource(ctx, db.LedgerOfResourceParams{TenantID: e.TenantID, ResourceID: e.Subject})
		if err != nil {
			return fmt.Errorf("read the entries of %s: %w", e.Subject, err)
		}
		for _, b := range booked {
			if b.AmountMinor != 0 {
				lines.add(b.Account, -b.AmountMinor)
			}
		}
	default:
		return fmt.Errorf("%w: the ledger cannot book %s", inbox.ErrPoison, e.Type)
	}
	if len(lines.accounts) == 0 {
		return nil
	}
	err := q.LedgerBook(ctx, db.LedgerBookParams{
		TenantID: e.TenantID, EventID: e.ID, ResourceID: e.Subject,
		Currency: lines.currency, Accounts: lines.accounts, AmountsMinor: lines.amounts,
	})
	if err != nil {
		return fmt.Errorf("book %s: %w", e.ID, err)
	}
	return nil
}

// isDue reports whether an event is to be booked: its payment or refund is in the database and
// matches it. The event is our own row, so it does, unless rows were lost or changed. Booking
// it then would add money of an unknown payment; so it waits, for as long as attempts last,
// until the reconciler has imported the payment, and is parked. A payment that was imported
// under another id has an event of its own, so this one is not booked.
func isDue(ctx context.Context, q *db.Queries, e inbox.Event, m moved) (bool, error) {
	var here, adopted bool
	var err error
	switch e.Type {
	case paymentSucceeded:
		var basis db.LedgerBasisOfPaymentRow
		basis, err = q.LedgerBasisOfPayment(ctx, db.LedgerBasisOfPaymentParams{
			TenantID: e.TenantID, ResourceID: e.Subject, AmountMinor: m.Amount, Currency: m.Currency,
			OrderID: m.OrderID, IntentID: m.Stripe.PaymentIntent,
		})
		here, adopted = basis.Matches, basis.Adopted
	case refundSucceeded, refundFailed:
		here, err = q.LedgerBasisOfRefund(ctx, db.LedgerBasisOfRefundParams{
			TenantID: e.TenantID, ResourceID: e.Subject, AmountMinor: m.Amount, Currency: m.Currency,
			Failed: e.Type == refundFailed, Version: e.Version,
		})
	default:
		return true, nil
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("look up %s: %w", e.Subject, err)
	case !here && !adopted:
		return false, fmt.Errorf("%w: %s of %d %s", errNotHere, e.Subject, m.Amount, m.Currency)
	}
	return here, nil
}

// errNotHere is not inbox.ErrPoison, because a retry may succeed: the reconciler may still
// import the payment.
var errNotHere = errors.New(
	"the payment or refund is not in this database or differs from the event; was an older copy restored?")

// Balance is the sum of one account in one currency. Currencies are never added up.
type Balance struct {
	Account     string
	Currency    string
	AmountMinor int64
}

// Balances computes a tenant's balances from its entries.
func Balances(ctx context.Context, q *db.Queries, tenantID string) ([]Balance, error) {
	rows, err := q.LedgerBalances(ctx, tenantID)
	if err != nil {
		return nil, fmt.Errorf("compute the balances of %s: %w", tenantID, err)
	}
	balances := make([]Balance, len(rows))
	for i, r := range rows {
		balances[i] = Balance{Account: r.Account, Currency: r.Currency, AmountMinor: r.AmountMinor}
	}
	return balances, nil
}
