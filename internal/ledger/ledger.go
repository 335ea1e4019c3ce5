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

// Name is the ledger's name as a consumer, at the broker and in the inbox.
// Changed, it is a new consumer, which books everything again.
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

// Handler books events.
func Handler() inbox.Handler {
	return inbox.Handler{Types: []string{paymentSucceeded, refundSucceeded, refundFailed}, Apply: book}
}

// entries of one event, by account.
type entries struct {
	currency string
	accounts []string
	amounts  []int64
}

func (e *entries) add(account string, amountMinor int64) {
	e.accounts = append(e.accounts, account)
	e.amounts = append(e.amounts, amountMinor)
}

// moved is what the ledger needs of the object in an event.
type moved struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	OrderID  string `json:"order_id"` // of a payment, like Stripe
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
		// Most refunds fail before they succeed, and nothing was booked. A bank may also send one back days later.
		booked, err := q.LedgerOfResource(ctx, db.LedgerOfResourceParams{TenantID: e.TenantID, ResourceID: e.Subject})
		if err != nil {
			return fmt.Errorf("read what is booked of %s: %w", e.Subject, err)
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
	err := q.LedgerBook(ctx, db.LedgerBookParams{TenantID: e.TenantID, EventID: e.ID, Currency: lines.currency, ResourceID: e.Subject,
		Accounts: lines.accounts, AmountsMinor: lines.amounts})
	if err != nil {
		return fmt.Errorf("book %s: %w", e.ID, err)
	}
	return nil
}

// isDue says whether an event is to be booked in these books. They are in one
// database with the payments and go back with it when an older copy is restored,
// but the broker does not: it may deliver what happened in the time that was lost.
// Booked at once, that would be money of a payment which nobody here knows of. So
// an event waits until the payment or refund is here and is what the event says,
// which the reconciler sees to within a minute where it can. A payment that was
// adopted under another id has an event of its own, and this one nothing to book.
// What never comes true is parked, for a person.
func isDue(ctx context.Context, q *db.Queries, e inbox.Event, m moved) (bool, error) {
	var here, adopted bool
	var err error
	switch e.Type {
	case paymentSucceeded:
		var basis db.LedgerBasisOfPaymentRow
		basis, err = q.LedgerBasisOfPayment(ctx, db.LedgerBasisOfPaymentParams{
			TenantID: e.TenantID, ResourceID: e.Subject, AmountMinor: m.Amount, Currency: m.Currency, OrderID: m.OrderID, IntentID: m.Stripe.PaymentIntent,
		})
		here, adopted = basis.Matches, basis.Adopted
	case refundSucceeded, refundFailed:
		here, err = q.LedgerBasisOfRefund(ctx, db.LedgerBasisOfRefundParams{
			TenantID: e.TenantID, ResourceID: e.Subject, AmountMinor: m.Amount, Currency: m.Currency, Failed: e.Type == refundFailed, Version: e.Version,
		})
	default:
		return true, nil
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("look for %s: %w", e.Subject, err)
	case !here && !adopted:
		return false, fmt.Errorf("%w: %s of %d %s", errNotHere, e.Subject, m.Amount, m.Currency)
	}
	return here, nil
}

// errNotHere is no poison: the payment may yet be adopted.
var errNotHere = errors.New("not in this database as the event says; was it restored from an older copy?")

// Balance of one account in one currency.
type Balance struct {
	Account     string
	Currency    string
	AmountMinor int64
}

// Balances sums up a tenant's entries.
func Balances(ctx context.Context, q *db.Queries, tenantID string) ([]Balance, error) {
	rows, err := q.LedgerBalances(ctx, tenantID)
	if err != nil {
		return nil, fmt.Errorf("sum up the ledger of %s: %w", tenantID, err)
	}
	balances := make([]Balance, len(rows))
	for i, r := range rows {
		balances[i] = Balance{Account: r.Account, Currency: r.Currency, AmountMinor: r.AmountMinor}
	}
	return balances, nil
}
