// Package tips charges a tip on an order: a second charge beside the order's payment, on
// a card that the customer has saved. It is the skeleton that docs/add-an-operation.md
// starts from. Its tests run it in the whole service; no service runs it.
//
// begin.go is the first transaction and the last, tips.go what is between them, and
// register.go what the rest of the service has to know.
package tips

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/docs/skeleton/tips/tipsql"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// Recovery points, in order. The table of keys has them, so they must never change.
const (
	recorded       = "tip_recorded"        // the tip exists; its intent may
	intentRecorded = "tip_intent_recorded" // the intent exists; it may be confirmed
)

type service struct{ operations.Tools }

// work is one run of a tip.
type work struct {
	tip      tipsql.Tip
	recorded bool // the next call was recorded in the phase before, in this run: it was never sent
}

// The calls of a tip. Their keys contain nothing that differs between two attempts, so
// Stripe makes one intent and one charge, however often they are sent.
func (w *work) create() calls.Call {
	return calls.New(stripe.OpCreateIntent, w.tip.ID, w.tip.TenantID+":"+w.tip.ID+":intent",
		strconv.FormatInt(w.tip.AmountMinor, 10), w.tip.Currency)
}

func (w *work) confirm() calls.Call {
	return calls.New(stripe.OpConfirm, w.tip.ID, w.tip.TenantID+":"+w.tip.IdempotencyKey+":confirm",
		postgres.Deref(w.tip.IntentID), w.tip.PaymentMethod)
}

func (w *work) cancel() calls.Call {
	return calls.New(stripe.OpCancel, w.tip.ID, w.tip.TenantID+":"+w.tip.ID+":cancel", postgres.Deref(w.tip.IntentID))
}

// begin claims the key and records the tip and its first call, in one transaction.
func (s service) begin(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	req := idempotency.Decode[request](r.Body)
	order, err := s.Pool.OrderGet(ctx, db.OrderGetParams{TenantID: r.TenantID, ID: req.OrderID})
	if errors.Is(err, postgres.ErrNoRows) {
		return nil, idempotency.Answer{}, payments.ErrNotFound // The key stays unused.
	}
	if err != nil {
		return nil, idempotency.Answer{}, fmt.Errorf("read order %s: %w", req.OrderID, err)
	}
	if order.Status == db.OrderStatusCanceled { // A definite refusal is the answer to the key.
		answer, err := s.Keys.BeginFinished(ctx, r, order.ID, func(*db.Queries) (idempotency.Answer, error) {
			return s.Answers.Problem(payments.ErrOrderNotPayable, r.RequestID), nil
		})
		return nil, answer, err
	}
	admitted, err := s.Gateway.Ready(ctx, r.TenantID)
	if err != nil { // Stripe is down, or much waits for it. The key stays unused.
		return nil, idempotency.Answer{}, err
	}
	defer admitted()
	w := &work{recorded: true, tip: tipsql.Tip{
		TenantID: r.TenantID, ID: ids.Keyed(Kind, r.TenantID, r.Key), OrderID: order.ID, IdempotencyKey: r.Key,
		AmountMinor: req.Amount, Currency: order.Currency, PaymentMethod: req.PaymentMethod,
		Status: tipsql.TipStatusPending,
	}}
	claim, err := s.Keys.Begin(ctx, r, w.tip.ID, recorded, func(q *db.Queries) error {
		err := tipsql.New(q.DB()).TipInsert(ctx, tipsql.TipInsertParams{
			TenantID: r.TenantID, ID: w.tip.ID, OrderID: order.ID, IdempotencyKey: r.Key,
			AmountMinor: req.Amount, Currency: order.Currency, PaymentMethod: req.PaymentMethod,
		})
		if err != nil {
			return err
		}
		return w.create().Insert(ctx, q, r.TenantID)
	})
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	claim.Carry = w
	return claim, idempotency.Answer{}, nil
}

// ended is a call with the outcome that ended it.
type ended struct {
	calls.Call
	outcome stripe.Outcome
}

// failed is why a tip has failed.
func failed(out stripe.Outcome) string {
	if out.Failure.Code != "" {
		return out.Failure.Code
	}
	return "provider_error"
}

// end records the outcome, what the calls ended with, and the answer, in one transaction
// under the fence. failure is empty if the tip was charged.
func (s service) end(
	ctx context.Context, c *idempotency.Claim, w *work, failure string, list ...ended,
) (idempotency.Answer, error) {
	status := tipsql.TipStatusSucceeded
	if failure != "" {
		status = tipsql.TipStatusFailed
	}
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		for _, call := range list {
			if err := calls.RecordEnd(ctx, q, c.TenantID, call.Call, call.outcome); err != nil {
				return idempotency.Answer{}, err
			}
		}
		row, err := tipsql.New(q.DB()).TipEnd(ctx, tipsql.TipEndParams{
			TenantID: c.TenantID, ID: w.tip.ID, Status: status, FailureCode: postgres.Nullable(failure),
		})
		return s.answer(row), err
	})
	return c.Answer(), err
}
