package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// captures are the operation that captures an authorized payment. Stripe captures an intent once, whatever the key, so
// what has become of it is always read from the intent.
type captures struct{ *Service }

// CaptureRequest is what POST /v1/payments/{id}/capture asks for, decoded and validated.
type CaptureRequest struct {
	PaymentID string `json:"payment_id"`
	Amount    *int64 `json:"amount"` // nil: all that is authorized
}

// The definite refusals of a capture.
var (
	ErrPaymentNotCapturable        = errors.New("only an authorized payment can be captured")
	ErrCaptureExceedsAuthorization = errors.New("more than what is authorized")
	// ErrCaptureInProgress is ErrPaymentInProgress for a capture or cancel that another one precedes.
	ErrCaptureInProgress = fmt.Errorf("%w: a capture or cancel of the payment is in progress", ErrPaymentInProgress)
)

// CaptureRecorded is the recovery point of a capture that Stripe may have made.
const CaptureRecorded = "capture_recorded"

// expiredCodes are Stripe's refusals of a capture because the network has dropped the authorization, before Stripe has
// canceled the intent.
var expiredCodes = map[string]bool{
	"charge_expired_for_capture": true, "capture_charge_authorization_expired": true,
	"capture_unauthorized_payment": true,
}

// reasonExpired is Stripe's reason for the cancel of an intent whose authorization has expired. One that is canceled
// here because of an expiredCode has none at Stripe.
const reasonExpired = "expired"

// begin claims the key, takes the authorization for this capture and records the call it will make.
func (s captures) begin(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	req := idempotency.Decode[CaptureRequest](r.Body)
	known, err := s.paymentOf(ctx, r.TenantID, req.PaymentID)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	amount := known.AmountMinor
	if req.Amount != nil && *req.Amount != amount {
		amount = *req.Amount
		if err := money.CheckStep(amount, known.Currency); err != nil {
			return nil, idempotency.Answer{}, &InvalidError{Pointer: "/amount", Message: err.Error()}
		}
	}
	claim, err := s.beginHolding(ctx, r, known, CaptureRecorded, &amount, func(q *db.Queries, p db.Payment) error {
		switch {
		case p.Status != db.PaymentStatusAuthorized:
			return ErrPaymentNotCapturable
		case amount > p.AmountMinor:
			return ErrCaptureExceedsAuthorization
		}
		return nil
	})
	if errors.Is(err, ErrPaymentNotCapturable) || errors.Is(err, ErrCaptureExceedsAuthorization) {
		return s.refuse(ctx, r, req.PaymentID, err)
	}
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	claim.Carry = true // the call is recorded and has never been sent
	return claim, idempotency.Answer{}, nil
}

// paymentOf reads a payment that a request names. ErrNotFound: the tenant has none.
func (s *Service) paymentOf(ctx context.Context, tenantID, id string) (db.Payment, error) {
	if !ids.Is(ids.Payment, id) {
		return db.Payment{}, ErrNotFound
	}
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return p, notFound(err, "read payment %s", id)
	}
	return p, nil
}

// beginHolding claims a key for a capture of an authorization or, amount nil, its cancel. check says under the locks
// whether it may begin. ErrPaymentInProgress: another works on the authorization, or its order is being canceled.
func (s *Service) beginHolding(
	ctx context.Context, r idempotency.Request, known db.Payment, point string, amount *int64,
	check func(q *db.Queries, p db.Payment) error,
) (*idempotency.Claim, error) {
	var order db.Order
	lock := func(q *db.Queries) (err error) {
		order, err = q.OrderLock(ctx, db.OrderLockParams{TenantID: r.TenantID, ID: known.OrderID})
		if err != nil {
			return notFound(err, "lock order %s", known.OrderID)
		}
		return nil
	}
	return s.keys.BeginBehind(ctx, r, known.ID, point, lock, func(q *db.Queries) error {
		p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: r.TenantID, ID: known.ID})
		if err != nil {
			return notFound(err, "lock payment %s", known.ID)
		}
		if err := check(q, p); err != nil {
			return err
		}
		if order.CancelingKey != nil {
			return ErrCaptureInProgress
		}
		if err := HoldAuthorization(ctx, q, p, r.Key, amount); err != nil || amount == nil {
			return err
		}
		p.CapturingMinor = amount
		return CaptureCall(p, r.Key).Insert(ctx, q, r.TenantID)
	})
}

// HoldAuthorization keeps other captures and cancels from an authorization. ErrPaymentInProgress: one works on it.
func HoldAuthorization(ctx context.Context, q *db.Queries, p db.Payment, key string, amount *int64) error {
	n, err := q.PaymentCaptureBegin(ctx, db.PaymentCaptureBeginParams{
		TenantID: p.TenantID, ID: p.ID, CapturingKey: &key, CapturingMinor: amount,
	})
	switch {
	case err != nil:
		return fmt.Errorf("hold the authorization of payment %s: %w", p.ID, err)
	case n == 0:
		return ErrCaptureInProgress
	}
	return nil
}

// CaptureCall captures what the payment's row says. It carries the caller's key, as a confirm does.
func CaptureCall(p db.Payment, key string) calls.Call {
	return calls.New(stripe.OpCapture, p.ID, p.TenantID+":"+key+":capture", *p.IntentID,
		strconv.FormatInt(*p.CapturingMinor, 10))
}

// CaptureEnding is what happens when a capture ends, as Ending is for a payment.
type CaptureEnding interface {
	// FinishCapture records how a capture ended, under the fence, and returns the answer to the key; none: the operation
	// continues at the recovery point it is at now. out has the intent as Stripe shows it: captured, by
	// this capture or at Stripe, canceled or, if the capture was refused, still waiting for one.
	FinishCapture(ctx context.Context, c *idempotency.Claim, p db.Payment, call calls.Call, out stripe.Outcome) (
		idempotency.Answer, error)
	// PendingCapture is the answer while the capture has not ended.
	PendingCapture(ctx context.Context, c *idempotency.Claim, p db.Payment) idempotency.Answer
}

// run takes a capture from its record to its answer.
func (s captures) run(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: c.ResourceID})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", c.ResourceID, err)
	}
	if p.CapturingKey == nil || *p.CapturingKey != c.Key {
		// Another process has taken over and ended it, which the lost lease says.
		return s.waitToCapture(ctx, c, p, s, fmt.Errorf("payment %s is not held for this capture", p.ID))
	}
	recorded, _ := c.Carry.(bool)
	answer, err := s.Capture(ctx, c, p, recorded, s)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		// It is recorded, may have been made and will be finished, so the answer is 202, even if the claim cannot be
		// given back.
		c.Log().Error("capture interrupted", "error", err.Error())
		return s.waitToCapture(ctx, c, p, s, err)
	}
	return answer, err
}

// PendingCapture implements CaptureEnding.
func (s captures) PendingCapture(_ context.Context, _ *idempotency.Claim, p db.Payment) idempotency.Answer {
	return s.answers.Object(http.StatusAccepted, "/v1/payments/"+p.ID, PaymentOf(p))
}

func (s *Service) waitToCapture(
	ctx context.Context, c *idempotency.Claim, p db.Payment, end CaptureEnding, why error,
) (idempotency.Answer, error) {
	pending := end.PendingCapture(ctx, c, p) // Once the claim is given back, another process may change the state.
	return pending, c.YieldOrPark(ctx, why)
}

// Capture takes the capture that a payment's row is held for to its end: unless it has never been sent, look what became
// of it; make it; have end record how it ended. recorded: the phase before, in this very run, has recorded the call.
func (s *Service) Capture(
	ctx context.Context, c *idempotency.Claim, p db.Payment, recorded bool, end CaptureEnding,
) (idempotency.Answer, error) {
	call := CaptureCall(p, c.Key)
	if !recorded {
		last, err := s.calls.Last(ctx, c.TenantID, call)
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read the capture of payment %s: %w", p.ID, err)
		}
		intent, err := s.gateway.GetIntent(ctx, c.TenantID, *p.IntentID)
		switch {
		case err != nil:
			return s.waitToCapture(ctx, c, p, end, err)
		case intent.Status == stripe.IntentRequiresCapture && calls.Exhausted(last):
			return s.captureRefused(ctx, c, p, call, end,
				stripe.Outcome{Effect: stripe.Refused, ErrorCode: "provider_error"})
		case intent.Status != stripe.IntentRequiresCapture:
			if last.ErrorCode != nil && expiredCodes[*last.ErrorCode] {
				intent.CanceledReason = reasonExpired // if it is canceled, then for that, by a run that was interrupted
			}
			return s.settleCapture(ctx, c, p, call, end, stripe.FromRead(intent))
		}
	}
	out, attempts, err := s.calls.Make(ctx, c, call, &recorded,
		func(ctx context.Context, attempt stripe.Call) stripe.Outcome {
			// The money moves here. No transaction is open.
			return s.gateway.CaptureIntent(ctx, attempt, *p.IntentID, *p.CapturingMinor)
		})
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Done && out.Intent.Status == stripe.IntentSucceeded && !out.Replayed:
		return s.settleCapture(ctx, c, p, call, end, out)
	case out.Effect == stripe.NotExecuted:
		return s.waitToCapture(ctx, c, p, end, out.Why())
	case out.Effect == stripe.Done, out.Effect == stripe.Refused: // Neither ends the capture before the intent is read.
		if err := s.calls.RecordAttempt(ctx, c, call, out); err != nil {
			return idempotency.Answer{}, err
		}
	}
	intent, err := s.gateway.GetIntent(ctx, c.TenantID, *p.IntentID)
	if err != nil {
		return s.waitToCapture(ctx, c, p, end, err)
	}
	if intent.Status != stripe.IntentRequiresCapture {
		return s.settleCapture(ctx, c, p, call, end, stripe.FromRead(intent))
	}
	// Nothing was captured. After a refusal, or when another attempt would only repeat a stored error, nothing will be.
	// A refusal that says nothing of an earlier attempt in doubt is none: that may still be on its way. Of an expired
	// authorization the cancel decides.
	switch {
	case out.Effect == stripe.Refused, out.Effect == stripe.Conflict && !attempts.InDoubt,
		out.Effect == stripe.Conflict && expiredCodes[out.ErrorCode], out.ErrorCached && attempts.Count > 1:
		out.RequestID = "" // It is recorded.
		return s.captureRefused(ctx, c, p, call, end, out)
	}
	return s.waitToCapture(ctx, c, p, end, out.Why())
}

// settleCapture ends a capture by what Stripe shows of an intent that waits for none any more.
func (s *Service) settleCapture(
	ctx context.Context, c *idempotency.Claim, p db.Payment, call calls.Call, end CaptureEnding, out stripe.Outcome,
) (idempotency.Answer, error) {
	if out.Intent.Status == stripe.IntentSucceeded || out.Intent.Status == stripe.IntentCanceled {
		return end.FinishCapture(ctx, c, p, call, out)
	}
	return s.waitToCapture(ctx, c, p, end, fmt.Errorf("the PaymentIntent is %s", out.Intent.Status))
}

// captureRefused ends a capture that took nothing. The payment stays authorized, and another key may capture it, unless the
// network has dropped the authorization: then the intent is canceled, so that the order can be paid again.
func (s *Service) captureRefused(
	ctx context.Context, c *idempotency.Claim, p db.Payment, call calls.Call, end CaptureEnding, out stripe.Outcome,
) (idempotency.Answer, error) {
	out.Intent = stripe.Intent{ID: *p.IntentID, Status: stripe.IntentRequiresCapture}
	if expiredCodes[out.ErrorCode] {
		intent, canceled, err := s.CancelIntent(ctx, c, p)
		switch {
		case err != nil:
			return idempotency.Answer{}, err
		case intent.Status == stripe.IntentCanceled:
			intent.CanceledReason = reasonExpired
		case intent.Status != stripe.IntentSucceeded:
			return s.waitToCapture(ctx, c, p, end, canceled.Why())
		}
		out.Intent = intent
	}
	return end.FinishCapture(ctx, c, p, call, out)
}

// EndCapture records how a capture ended, in q's transaction: what Stripe shows of the intent, unless another operation
// has recorded it, and the outcome of the call. ours: what the capture asked for was captured.
func EndCapture(
	ctx context.Context, q *db.Queries, seen db.Payment, call calls.Call, out stripe.Outcome,
) (p db.Payment, ours bool, err error) {
	if p, err = EndAuthorization(ctx, q, seen, out.Intent); err != nil {
		return p, false, err
	}
	ours = p.Status == db.PaymentStatusSucceeded && *p.CapturedMinor == *seen.CapturingMinor
	out.Effect = stripe.Refused // Nothing of it is on its way any more.
	if ours {
		out.Effect = stripe.Done
	}
	return p, ours, calls.RecordEnd(ctx, q, p.TenantID, call, out)
}

// FinishCapture implements CaptureEnding: how the capture ended is the answer.
func (s captures) FinishCapture(
	ctx context.Context, c *idempotency.Claim, seen db.Payment, call calls.Call, out stripe.Outcome,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		p, ours, err := EndCapture(ctx, q, seen, call, out)
		if err != nil {
			return idempotency.Answer{}, err
		}
		switch {
		case ours:
			return s.answers.Object(http.StatusOK, "", PaymentOf(p)), nil
		case p.Status == db.PaymentStatusSucceeded: // Others have captured another amount at Stripe.
			return s.answers.Problem(ErrPaymentNotCapturable, c.RequestID), nil
		case p.Status == db.PaymentStatusAuthorized:
			if p, err = abortHolding(ctx, q, p, c.Key); err != nil {
				return idempotency.Answer{}, err
			}
		}
		return s.answers.Problem(&PaymentError{Payment: PaymentOf(p)}, c.RequestID), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish the capture of payment %s: %w", seen.ID, err)
	}
	c.Log().Info("capture finished", "payment_id", seen.ID, "intent_status", string(out.Intent.Status),
		"stripe_request_id", out.RequestID)
	return c.Answer(), nil
}

// abortHolding lets other captures and cancels work on an authorization again.
func abortHolding(ctx context.Context, q *db.Queries, p db.Payment, key string) (db.Payment, error) {
	n, err := q.PaymentCaptureAbort(ctx, db.PaymentCaptureAbortParams{
		TenantID: p.TenantID, ID: p.ID, CapturingKey: &key,
	})
	if err == nil && n == 0 {
		err = postgres.ErrNoRows
	}
	if err != nil {
		return p, fmt.Errorf("release the hold on payment %s: %w", p.ID, err)
	}
	p.CapturingKey, p.CapturingMinor = nil, nil
	return p, nil
}
