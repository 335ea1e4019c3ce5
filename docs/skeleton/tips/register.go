package tips

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/docs/skeleton/tips/tipsql"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// Name is in the table of keys and in the metadata of each PaymentIntent, Kind begins the
// ids. Neither must ever change.
const (
	Name = "create_tip"
	Kind = "tip_"

	amountMax = 99_999_999 // Stripe's limit
)

//go:embed openapi.yaml
var openAPI []byte

// Operation is everything that the service has to know about tips.
func Operation() operations.Operation {
	return operations.Operation{
		Name: Name,
		New: func(t operations.Tools) idempotency.Operation {
			return idempotency.Operation{Begin: service{t}.begin, Run: service{t}.run}
		},
		Post: "/v1/orders/{id}/tips", Parse: parse, OpenAPI: openAPI,
		Kind: Kind, Path: "/v1/tips/", Show: show,
		Registered: payments.Registered{Charges: charges, Charge: charge},
	}
}

type request struct {
	OrderID       string `json:"order_id"`
	Amount        int64  `json:"amount"`
	PaymentMethod string `json:"payment_method"`
}

// parse checks the form only, before the key is looked up. begin checks the order.
func parse(r *http.Request, decode func(into any) error) (any, error) {
	var body struct {
		Amount        int64  `json:"amount"`
		PaymentMethod string `json:"payment_method"`
	}
	if err := decode(&body); err != nil {
		return nil, err
	}
	if body.Amount < 1 || body.Amount > amountMax {
		why := fmt.Sprintf("must be between 1 and %d", amountMax)
		return nil, &payments.InvalidError{Pointer: "/amount", Message: why}
	}
	if !strings.HasPrefix(body.PaymentMethod, "pm_") || len(body.PaymentMethod) > 255 { // never a card number
		return nil, &payments.InvalidError{Pointer: "/payment_method", Message: "must be the id of a payment method"}
	}
	return request{r.PathValue("id"), body.Amount, body.PaymentMethod}, nil
}

// Tip is a tip as the API shows it.
type Tip struct {
	ID          string           `json:"id"`
	Object      string           `json:"object"`
	Status      tipsql.TipStatus `json:"status"`
	OrderID     string           `json:"order_id"`
	Amount      int64            `json:"amount"`
	Currency    string           `json:"currency"`
	FailureCode *string          `json:"failure_code"`
}

func tipOf(t tipsql.Tip) Tip {
	return Tip{t.ID, "tip", t.Status, t.OrderID, t.AmountMinor, t.Currency, t.FailureCode}
}

// answer is the answer to the key: final, or 202 while the outcome is not known.
func (s service) answer(t tipsql.Tip) idempotency.Answer {
	status := http.StatusAccepted
	switch t.Status {
	case tipsql.TipStatusSucceeded:
		status = http.StatusCreated
	case tipsql.TipStatusFailed:
		status = http.StatusPaymentRequired
	case tipsql.TipStatusPending:
	}
	return s.Answers.Object(status, "/v1/tips/"+t.ID, tipOf(t))
}

func get(ctx context.Context, q *db.Queries, tenantID, id string) (tipsql.TipGetRow, error) {
	if !ids.Is(Kind, id) {
		return tipsql.TipGetRow{}, payments.ErrNotFound
	}
	row, err := tipsql.New(q.DB()).TipGet(ctx, tipsql.TipGetParams{TenantID: tenantID, ID: id})
	if errors.Is(err, postgres.ErrNoRows) {
		err = payments.ErrNotFound
	}
	return row, err
}

func show(ctx context.Context, q *db.Queries, tenantID, id string) (any, error) {
	row, err := get(ctx, q, tenantID, id)
	return tipOf(row.Tip), err
}

// charge and charges are for the reconciler, the audit, the webhooks and whatever
// else reads all charges.
func charge(ctx context.Context, q *db.Queries, tenantID, id string) (compare.Charge, error) {
	row, err := get(ctx, q, tenantID, id)
	return chargeOf(row.Tip, row.InProgress), err
}

func charges(ctx context.Context, q *db.Queries, orders []compare.OrderRef) (list []compare.Charge, err error) {
	var p tipsql.TipsOfOrdersParams
	for _, o := range orders {
		p.TenantIds, p.OrderIds = append(p.TenantIds, o.TenantID), append(p.OrderIds, o.OrderID)
	}
	rows, err := tipsql.New(q.DB()).TipsOfOrders(ctx, p)
	for _, row := range rows {
		list = append(list, chargeOf(row.Tip, row.InProgress))
	}
	return list, err
}

func chargeOf(t tipsql.Tip, inProgress bool) compare.Charge {
	w := work{tip: t}
	status := map[tipsql.TipStatus]compare.ChargeStatus{
		tipsql.TipStatusPending: compare.ChargePending, tipsql.TipStatusSucceeded: compare.ChargeSucceeded,
		tipsql.TipStatusFailed: compare.ChargeFailed,
	}
	return compare.Charge{
		OrderRef: compare.OrderRef{TenantID: t.TenantID, OrderID: t.OrderID}, ID: t.ID, Status: status[t.Status],
		IntentID: postgres.Deref(t.IntentID), AmountMinor: t.AmountMinor, Currency: t.Currency,
		FailureCode: postgres.Deref(t.FailureCode), Key: t.IdempotencyKey, InProgress: inProgress,
		StripeKeys: []string{w.create().Key, w.confirm().Key, w.cancel().Key},
	}
}
