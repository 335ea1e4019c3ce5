package ledger

import (
	"context"
	"encoding/json"
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

func book(ctx context.Context, q *db.Queries, e inbox.Event, _ any) error {
	var envelope outbox.Envelope
	var money struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	if err := json.Unmarshal(e.Payload, &envelope); err != nil {
		return fmt.Errorf("%w: %w", inbox.ErrPoison, err)
	}
	if err := json.Unmarshal(envelope.Data, &money); err != nil {
		return fmt.Errorf("%w: %w", inbox.ErrPoison, err)
	}
	if money.Amount <= 0 || money.Currency == "" {
		return fmt.Errorf("%w: %s of %d %q", inbox.ErrPoison, e.Type, money.Amount, money.Currency)
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
