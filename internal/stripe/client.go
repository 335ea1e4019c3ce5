package stripe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

// Options of New. All are required but BaseURL.
type Options struct {
	SecretKey string
	BaseURL   string        // empty: Stripe's own
	Timeout   time.Duration // of one attempt
	// HedgeAfter is how long a request that may be sent twice hangs before another one joins it; default 1.5 s.
	HedgeAfter time.Duration
	Limits     *Limits
	Metrics    *Metrics
	Log        *slog.Logger
	RootCAs    *x509.CertPool // nil: the system's
}

// Client is the Gateway. It is the only production code that imports stripe-go, and
// it overrides every default of the library that could move money: retries (none),
// idempotency keys (always the caller's), deadlines (one per attempt).
type Client struct {
	api      *client.API
	o        Options
	releases knownReleases
}

// New returns the gateway. It makes no call.
func New(o Options) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
	// HTTP/1.1 only, as stripe-go's own client. All calls would share one connection of HTTP/2: when it dies silently,
	// each of them and each hedge waits for it, and after Stripe's GOAWAY a POST cannot be repeated, because it must not be
	// sent twice without our knowing.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if o.RootCAs != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}
	}
	config := &stripego.BackendConfig{
		HTTPClient: &http.Client{
			Transport:     oneAttempt{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxNetworkRetries: stripego.Int64(0),    // The default of 2 would resend without our knowing.
		EnableTelemetry:   stripego.Bool(false), // On by default, whatever the field's comment says.
		LeveledLogger:     silent{},             // Its messages hold client secrets.
	}
	if o.BaseURL != "" {
		config.URL = stripego.String(o.BaseURL)
	}
	backend := stripego.GetBackendWithConfig(stripego.APIBackend, config)
	return &Client{
		api: client.New(o.SecretKey, &stripego.Backends{API: backend, Connect: backend, Uploads: backend}), o: o,
	}
}

// CreateIntent implements Gateway.
func (s *Client) CreateIntent(ctx context.Context, call Call, n NewIntent) Outcome {
	asked := func(i Intent) bool {
		return i.AmountMinor == n.AmountMinor && i.Currency == n.Currency && matchesOrAbsent(i.TenantID,
			n.TenantID) && matchesOrAbsent(i.OrderID, n.OrderID)
	}
	create := func(ctx context.Context) (out Outcome, conclusive bool) {
		out = s.post(ctx, OpCreateIntent, call, asked, func(p stripego.Params) (*stripego.PaymentIntent, error) {
			return s.api.PaymentIntents.New(&stripego.PaymentIntentParams{
				Params:   p,
				Metadata: n.metadata(),
				Amount:   stripego.Int64(n.AmountMinor),
				Currency: stripego.String(n.Currency),
				// Explicit, because both defaults have changed between Stripe's API
				// versions: without the types the account's dashboard decides, and
				// a confirm would require a return_url.
				PaymentMethodTypes: stripego.StringSlice([]string{"card"}),
				CaptureMethod:      stripego.String(string(n.captureMethod())),
			})
		})
		return out, out.Effect != Unknown
	}
	if call.InDoubt { // The key is the same every time, so Stripe makes one intent.
		return hedged(ctx, cmp.Or(s.o.HedgeAfter, hedgeAfter), s.o.Limits, call.TenantID, OpCreateIntent, create)
	}
	out, _ := create(ctx)
	return out
}

func (n NewIntent) captureMethod() stripego.PaymentIntentCaptureMethod {
	if n.ManualCapture {
		return stripego.PaymentIntentCaptureMethodManual
	}
	return stripego.PaymentIntentCaptureMethodAutomatic
}

// operationKey is the member of an intent's metadata that names the operation.
const operationKey = "payonce_operation"

// metadata is by what the intent is found again. A payment's own intents have had
// these two members from the beginning, so only other operations add theirs.
func (n NewIntent) metadata() map[string]string {
	m := map[string]string{"tenant_id": n.TenantID, "order_id": n.OrderID}
	if n.Operation != "" {
		m[operationKey] = n.Operation
	}
	return m
}

// Ready implements Gateway.
func (s *Client) Ready(ctx context.Context, tenantID string) (recorded func(), err error) {
	err = s.o.Limits.ready(ctx, func(ctx context.Context) error {
		return s.get(ctx, NoTenant, OpListIntents, func(p stripego.Params) error {
			list := s.api.PaymentIntents.List(&stripego.PaymentIntentListParams{
				ListParams: stripego.ListParams{Context: p.Context, Limit: stripego.Int64(1), Single: true},
			})
			list.Next()
			return list.Err()
		})
	})
	if err != nil {
		return nil, err
	}
	return s.o.Limits.admit(tenantID)
}

// ConfirmIntent implements Gateway.
func (s *Client) ConfirmIntent(ctx context.Context, call Call, intentID, paymentMethod string) Outcome {
	return s.change(ctx, OpConfirm, call, intentID, func(p stripego.Params) (*stripego.PaymentIntent, error) {
		params := &stripego.PaymentIntentConfirmParams{Params: p, PaymentMethod: stripego.String(paymentMethod)}
		if call.WithCharge {
			params.AddExpand("latest_charge")
		}
		return s.api.PaymentIntents.Confirm(intentID, params)
	})
}

// CaptureIntent implements Gateway. The capture is final: Stripe releases what it does not take, and refuses a second
// one, whatever its key (https://docs.stripe.com/payments/capture-later).
func (s *Client) CaptureIntent(ctx context.Context, call Call, intentID string, amountMinor int64) Outcome {
	return s.change(ctx, OpCapture, call, intentID, func(p stripego.Params) (*stripego.PaymentIntent, error) {
		return s.api.PaymentIntents.Capture(intentID, &stripego.PaymentIntentCaptureParams{
			Params: p, AmountToCapture: stripego.Int64(amountMinor),
		})
	})
}

// CancelIntent implements Gateway.
func (s *Client) CancelIntent(ctx context.Context, call Call, intentID string) Outcome {
	return s.change(ctx, OpCancel, call, intentID, func(p stripego.Params) (*stripego.PaymentIntent, error) {
		return s.api.PaymentIntents.Cancel(intentID, &stripego.PaymentIntentCancelParams{Params: p})
	})
}

// GetIntent implements Gateway.
func (s *Client) GetIntent(ctx context.Context, tenantID, intentID string) (Intent, error) {
	type result struct {
		intent Intent
		err    error
	}
	r := hedged(ctx, cmp.Or(s.o.HedgeAfter, hedgeAfter), s.o.Limits, tenantID, OpGetIntent, func(ctx context.Context) (result, bool) {
		intent, err := s.getIntent(ctx, tenantID, intentID)
		return result{intent, err}, err == nil || errors.Is(err, ErrNoSuchObject) || errors.Is(err, ErrNotShown)
	})
	return r.intent, r.err
}

func (s *Client) getIntent(ctx context.Context, tenantID, intentID string) (Intent, error) {
	var intent Intent
	err := s.get(ctx, tenantID, OpGetIntent, func(p stripego.Params) error {
		pi, err := s.api.PaymentIntents.Get(intentID, &stripego.PaymentIntentParams{
			Params: p, Expand: stripego.StringSlice([]string{"latest_charge"}),
		})
		if err == nil && pi.ID != intentID {
			err = errAnotherObject
		}
		if err == nil {
			intent = intentOf(pi)
		}
		return err
	})
	if err == nil && intent.RefundedAtMost {
		intent.RefundedAtMost = false
		intent.RefundedMinor, err = s.refundedOf(ctx, tenantID, intentID)
	}
	return intent, err
}

// IntentOf implements Gateway. An object of another kind is of no intent.
func (s *Client) IntentOf(ctx context.Context, kind, id string) (intentID string, err error) {
	err = s.get(ctx, NoTenant, OpGetIntent, func(p stripego.Params) error {
		var of *stripego.PaymentIntent
		switch kind {
		case "charge":
			charge, err := s.api.Charges.Get(id, &stripego.ChargeParams{Params: p})
			if err != nil {
				return err
			}
			of = charge.PaymentIntent
		case "refund":
			refund, err := s.api.Refunds.Get(id, &stripego.RefundParams{Params: p})
			if err != nil {
				return err
			}
			of = refund.PaymentIntent
		}
		if of != nil {
			intentID = of.ID
		}
		return nil
	})
	return intentID, err
}

// listPage is the largest page that Stripe returns.
const listPage = 100

// ListIntents implements Gateway. It expands the latest charge, because only the
// charge shows what was refunded.
func (s *Client) ListIntents(ctx context.Context, w Window) (Page[Intent], error) {
	var page Page[Intent]
	err := s.get(ctx, w.TenantID, OpListIntents, func(p stripego.Params) error {
		list := s.api.PaymentIntents.List(&stripego.PaymentIntentListParams{
			ListParams: w.params(p.Context), CreatedRange: w.created(),
			Expand: stripego.StringSlice([]string{"data.latest_charge"}),
		})
		for list.Next() {
			page.Objects = append(page.Objects, intentOf(list.PaymentIntent()))
		}
		page.More = list.Meta().HasMore
		return list.Err()
	})
	return page, err
}

// ListRefunds implements Gateway. It expands the intent and the charge, whose metadata name the tenant and the order: a
// refund that was made in Stripe's dashboard has none, or whatever its maker wrote there.
func (s *Client) ListRefunds(ctx context.Context, w Window) (Page[Refund], error) {
	var page Page[Refund]
	var raw []*stripego.Refund
	err := s.get(ctx, w.TenantID, OpListRefunds, func(p stripego.Params) error {
		list := s.api.Refunds.List(&stripego.RefundListParams{
			ListParams: w.params(p.Context), CreatedRange: w.created(),
			Expand: stripego.StringSlice([]string{"data.payment_intent", "data.charge"}),
		})
		for list.Next() {
			refund := refundOf(list.Refund())
			if pi := list.Refund().PaymentIntent; pi != nil && pi.Metadata["tenant_id"] != "" {
				refund.TenantID, refund.OrderID = pi.Metadata["tenant_id"], pi.Metadata["order_id"]
			}
			refund.Charged = chargedOrder(list.Refund().Charge)
			page.Objects, raw = append(page.Objects, refund), append(raw, list.Refund())
		}
		page.More = list.Meta().HasMore
		return list.Err()
	})
	if err != nil {
		return page, err
	}
	for n, refund := range raw {
		if page.Objects[n].Released, err = s.isRelease(ctx, w.TenantID, refund, func() (bool, error) {
			return s.oldestOfCharge(ctx, w.TenantID, refund)
		}); err != nil {
			return page, err
		}
	}
	return page, nil
}

// SearchIntents implements Gateway. An order has few intents, so one page is enough.
func (s *Client) SearchIntents(ctx context.Context, tenantID, orderID string) ([]Intent, error) {
	var found []Intent
	err := s.get(ctx, tenantID, OpSearchIntents, func(p stripego.Params) error {
		list := s.api.PaymentIntents.Search(&stripego.PaymentIntentSearchParams{
			SearchParams: stripego.SearchParams{
				Context: p.Context, Single: true, Limit: stripego.Int64(listPage),
				Query: fmt.Sprintf("metadata['tenant_id']:'%s' AND metadata['order_id']:'%s'", tenantID, orderID),
			},
		})
		for list.Next() {
			found = append(found, intentOf(list.PaymentIntent()))
		}
		return list.Err()
	})
	return found, err
}

func (w Window) params(ctx context.Context) stripego.ListParams {
	// One page per call: the library would fetch the others past the rate limit.
	p := stripego.ListParams{Context: ctx, Single: true, Limit: stripego.Int64(listPage)}
	if w.After != "" {
		p.StartingAfter = stripego.String(w.After)
	}
	return p
}

func (w Window) created() *stripego.RangeQueryParams {
	r := &stripego.RangeQueryParams{GreaterThanOrEqual: w.From.Unix()}
	if !w.Until.IsZero() {
		r.LesserThanOrEqual = w.Until.Unix()
	}
	return r
}

func refundOf(r *stripego.Refund) Refund {
	refund := Refund{
		ID: r.ID, Status: refundStatus(r.Status), FailureCode: string(r.FailureReason), AmountMinor: r.Amount,
		Currency: string(r.Currency), CreatedAt: time.Unix(r.Created, 0).UTC(), TenantID: r.Metadata["tenant_id"],
		OrderID: r.Metadata["order_id"], PaymentID: r.Metadata["payment_id"], RefundID: r.Metadata["refund_id"],
	}
	if r.PaymentIntent != nil {
		refund.IntentID = r.PaymentIntent.ID
	}
	switch r.Reason {
	case stripego.RefundReasonDuplicate, stripego.RefundReasonFraudulent, stripego.RefundReasonRequestedByCustomer:
		refund.Reason = string(r.Reason)
	case stripego.RefundReasonExpiredUncapturedCharge: // Stripe's own. Nobody can ask for it.
	}
	return refund
}

func refundStatus(status stripego.RefundStatus) db.RefundStatus {
	switch status {
	case stripego.RefundStatusSucceeded:
		return db.RefundStatusSucceeded
	case stripego.RefundStatusFailed:
		return db.RefundStatusFailed
	case stripego.RefundStatusCanceled:
		return db.RefundStatusCanceled
	case stripego.RefundStatusPending, stripego.RefundStatusRequiresAction:
	}
	return db.RefundStatusPending // Pending, or a status that we do not know: not final.
}

// CreateRefund implements Gateway.
func (s *Client) CreateRefund(ctx context.Context, call Call, n NewRefund) Outcome {
	done, err := s.o.Limits.alone(ctx, n.IntentID)
	if err != nil {
		return outcomeOf(nil, false, nil, err, call.InDoubt)
	}
	defer done()
	var made *stripego.Refund
	out := s.attempt(ctx, OpRefund, call,
		func(p stripego.Params) (found bool, intent *stripego.PaymentIntent, err error) {
			made, err = s.api.Refunds.New(&stripego.RefundParams{
				Params: p,
				Metadata: map[string]string{"tenant_id": n.TenantID, "order_id": n.OrderID, "payment_id": n.PaymentID,
					"refund_id": n.RefundID},
				PaymentIntent: stripego.String(n.IntentID), Amount: stripego.Int64(n.AmountMinor), Reason: n.Reason,
			})
			if err == nil && (made == nil || made.ID == "" || !matchesOrAbsent(made.Object,
				"refund") || made.Amount != n.AmountMinor || !matchesOrAbsent(made.Metadata["refund_id"], n.RefundID)) {
				err = errAnotherObject
			}
			return err == nil, nil, err
		})
	if out.Effect == Done {
		out.Refund = refundOf(made)
	}
	return out
}

// RefundsOf implements Gateway.
func (s *Client) RefundsOf(ctx context.Context, tenantID, intentID string) ([]Refund, error) {
	var raw []*stripego.Refund
	err := s.get(ctx, tenantID, OpListRefunds, func(p stripego.Params) error {
		raw = raw[:0]
		params := &stripego.RefundListParams{
			PaymentIntent: stripego.String(intentID), Expand: stripego.StringSlice([]string{"data.charge"}),
		}
		params.Context = p.Context
		params.Limit = stripego.Int64(100)
		refunds := s.api.Refunds.List(params)
		for refunds.Next() {
			raw = append(raw, refunds.Refund())
		}
		return refunds.Err()
	})
	if err != nil {
		return nil, err
	}
	var list []Refund
	for n, refund := range raw {
		released, err := s.isRelease(ctx, tenantID, refund, func() (bool, error) { return isOldestOfCharge(raw, n), nil })
		if err != nil {
			return nil, err
		}
		if !released {
			list = append(list, refundOf(refund))
		}
	}
	return list, nil
}

// errAnotherObject says that a response is a valid object, but not the one that the
// call is about. Its success proves nothing about ours.
var errAnotherObject = errors.New("the response is another object than the one requested")

// matchesOrAbsent reports whether a field of a response has the expected value or is absent,
// which contradicts nothing.
func matchesOrAbsent(part, should string) bool { return part == "" || part == should }

// post makes one attempt of a call that changes a PaymentIntent. asked recognises the
// intent that the call is about.
func (s *Client) post(
	ctx context.Context, op Operation, call Call, asked func(Intent) bool,
	send func(stripego.Params) (*stripego.PaymentIntent, error),
) Outcome {
	return s.attempt(ctx, op, call, func(p stripego.Params) (bool, *stripego.PaymentIntent, error) {
		intent, err := send(p)
		if err == nil && (intent == nil || intent.ID == "" || !matchesOrAbsent(intent.Object,
			"payment_intent") || !asked(intentOf(intent))) {
			return false, nil, errAnotherObject
		}
		return err == nil, intent, err
	})
}

// change is post for an existing intent: one change of it at a time.
func (s *Client) change(
	ctx context.Context, op Operation, call Call, intentID string,
	send func(stripego.Params) (*stripego.PaymentIntent, error),
) Outcome {
	done, err := s.o.Limits.alone(ctx, intentID)
	if err != nil {
		return outcomeOf(nil, false, nil, err, call.InDoubt)
	}
	defer done()
	return s.post(ctx, op, call, func(i Intent) bool { return i.ID == intentID }, send)
}

// attempt makes one attempt of a call that changes something at Stripe. send reports
// whether the response was an object, and returns the intent if it was one.
func (s *Client) attempt(
	ctx context.Context, op Operation, call Call, send func(stripego.Params) (bool, *stripego.PaymentIntent, error),
) Outcome {
	if call.Key == "" {
		panic("bug: a POST to Stripe without an idempotency key")
	}
	var (
		seen   *exchange
		object bool
		intent *stripego.PaymentIntent
		err    = s.o.Limits.wait(ctx, call.TenantID, op)
	)
	ctx, span := startCall(ctx, op)
	began, sent := time.Now(), err == nil
	if sent {
		err = s.doOnce(ctx, func(ctx context.Context, x *exchange) (err error) {
			seen = x
			p := stripego.Params{Context: ctx, IdempotencyKey: stripego.String(call.Key)}
			object, intent, err = send(p)
			return err
		})
	}
	o := outcomeOf(seen, object, intent, err, call.InDoubt)
	if superseded(ctx) {
		endCall(span, errSuperseded.Error(), o.HTTPStatus, o.RequestID, "", nil)
		return o
	}
	if sent {
		s.o.Limits.saw(o.HTTPStatus)
	}
	s.o.Metrics.observe(op, o.Effect.String(), time.Since(began))
	endCall(span, o.Effect.String(), o.HTTPStatus, o.RequestID, o.ErrorCode, o.Err)
	if o.Effect != Done {
		s.o.Log.Warn("stripe call", "stripe_operation", op, "outcome", o.Effect.String(), "status", o.HTTPStatus,
			"code", o.ErrorCode,
			"stripe_request_id", o.RequestID, "replayed", o.Replayed, "error", errText(o.Err))
	}
	return o
}

// get makes a call that only reads, and so may be repeated at will.
func (s *Client) get(ctx context.Context, tenantID string, op Operation, ask func(stripego.Params) error) error {
	if err := s.o.Limits.wait(ctx, tenantID, op); err != nil {
		return err
	}
	ctx, span := startCall(ctx, op)
	began, outcome := time.Now(), "done"
	var seen *exchange
	err := s.doOnce(ctx, func(ctx context.Context, x *exchange) error {
		seen = x
		return ask(stripego.Params{Context: ctx})
	})
	var refused *stripego.Error
	switch {
	case errors.As(err, &refused) && refused.HTTPStatusCode == http.StatusNotFound &&
		refused.Code == stripego.ErrorCodeResourceMissing:
		err, outcome = fmt.Errorf("%s: %w", op, ErrNoSuchObject), "refused"
	case refused != nil && refused.Type != "" && isClientError(refused.HTTPStatusCode):
		err, outcome = fmt.Errorf("%s: %w: %w", op, ErrNotShown, safe(err)), "refused"
	case err != nil:
		err, outcome = fmt.Errorf("%s: %w: %w", op, ErrAway, safe(err)), "unknown"
	}
	if superseded(ctx) {
		endCall(span, errSuperseded.Error(), int(seen.status.Load()), "", "", nil)
		return err
	}
	s.o.Limits.saw(int(seen.status.Load()))
	s.o.Metrics.observe(op, outcome, time.Since(began))
	endCall(span, outcome, int(seen.status.Load()), "", "", err)
	return err
}

// startCall begins the span of one attempt. The trace id is not sent to Stripe: what
// Stripe receives must not change from attempt to attempt.
func startCall(ctx context.Context, op Operation) (context.Context, tracing.Span) {
	ctx, span := tracing.Start(ctx, trace.SpanKindClient, "stripe ", string(op))
	span.Set("stripe.operation", string(op))
	return ctx, span
}

// endCall records the outcome on the span, but neither the Stripe key, which contains
// the caller's key, nor the body.
func endCall(span tracing.Span, outcome string, status int, requestID, code string, err error) {
	span.Set("stripe.outcome", outcome)
	span.Set("stripe.request_id", requestID)
	span.Set("stripe.error_code", code)
	if status > 0 {
		span.SetInt("http.response.status_code", int64(status))
	}
	span.End(err)
}

// isClientError reports whether a status is about the request itself, and not about
// who sent it, how often, or when.
func isClientError(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusPaymentRequired, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// outcomeOf classifies an attempt of a POST. seen is nil if nothing was sent.
func outcomeOf(seen *exchange, object bool, intent *stripego.PaymentIntent, err error, inDoubt bool) Outcome {
	var r reply
	o := Outcome{Err: safe(err)}
	if seen != nil {
		r.sent, r.status = seen.sent.Load(), int(seen.status.Load())
		if h := seen.header.Load(); h != nil {
			r.replayed, r.shouldRetry = h.Get("Idempotent-Replayed") == "true", h.Get("Stripe-Should-Retry")
			o.RequestID = validText(h.Get("Request-Id"))
			o.OriginalRequestID = h.Get("Original-Request")
		}
	}
	var refused *stripego.Error
	switch {
	case err == nil:
		r.readable = object
	case errors.As(err, &refused):
		r.readable = refused.Type != ""
		r.errorType, r.code, r.param = string(refused.Type), string(refused.Code), refused.Param
		o.ErrorCode, o.Param = r.code, r.param
		if o.ErrorCode == "" {
			o.ErrorCode = r.errorType
		}
		o.Failure = Failure{Code: o.ErrorCode, DeclineCode: string(refused.DeclineCode), Message: refused.Msg}
		o.Declined = refused.Type == stripego.ErrorTypeCard
		if refused.Type == stripego.ErrorTypeIdempotency {
			o.Failure = Failure{Code: CodeKeyReused, Message: keyReused}
			o.Err = fmt.Errorf("stripe returned %d %s: the key was used with other parameters", r.status, refused.Type)
		}
		intent = refused.PaymentIntent
	}
	if intent != nil {
		o.Intent = intentOf(intent)
	}
	o.HTTPStatus, o.Replayed = r.status, r.replayed
	o.Effect, o.ErrorCached = r.effect(inDoubt), r.errorCached()
	return o
}

func intentOf(pi *stripego.PaymentIntent) Intent {
	i := Intent{
		ID: pi.ID, Status: IntentStatus(pi.Status), AmountMinor: pi.Amount, Currency: string(pi.Currency),
		ReceivedMinor: pi.AmountReceived, TenantID: pi.Metadata["tenant_id"], OrderID: pi.Metadata["order_id"],
		Operation: pi.Metadata[operationKey], CreatedAt: time.Unix(pi.Created, 0).UTC(),
		CanceledReason: string(pi.CancellationReason),
		ManualCapture:  pi.CaptureMethod == stripego.PaymentIntentCaptureMethodManual,
	}
	if pi.PaymentMethod != nil {
		i.PaymentMethod = pi.PaymentMethod.ID
	}
	if pi.LatestCharge != nil {
		i.ChargeID = pi.LatestCharge.ID
		if pi.LatestCharge.Captured { // What was only authorized may be released, and is never given back.
			i.RefundedMinor = pi.LatestCharge.AmountRefunded
		}
		i.RefundedAtMost = pi.LatestCharge.AmountRefunded > 0
		i.CaptureBefore = captureBefore(pi.LatestCharge)
		i.Charged, i.Disputed = chargedOrder(pi.LatestCharge), pi.LatestCharge.Disputed
	}
	if e := pi.LastPaymentError; e != nil {
		i.LastFailure = &Failure{Code: string(e.Code), DeclineCode: string(e.DeclineCode), Message: e.Msg}
		i.LastIsDecline = e.Type == stripego.ErrorTypeCard
		if i.LastFailure.Code == "" {
			i.LastFailure.Code = string(e.Type)
		}
	}
	if pi.Status == stripego.PaymentIntentStatusRequiresAction {
		i.NextAction = nextAction(pi)
	}
	return i
}

func chargedOrder(c *stripego.Charge) Order {
	if c == nil {
		return Order{}
	}
	return Order{TenantID: c.Metadata["tenant_id"], OrderID: c.Metadata["order_id"]}
}

// nextAction is what the customer's browser needs. This is the only place where the
// client secret leaves the service.
func nextAction(pi *stripego.PaymentIntent) []byte {
	action := struct {
		Type         string `json:"type"`
		ClientSecret string `json:"client_secret"`
		RedirectURL  string `json:"redirect_url,omitempty"`
	}{Type: "use_stripe_sdk", ClientSecret: pi.ClientSecret}
	if pi.NextAction != nil {
		action.Type = string(pi.NextAction.Type)
		if pi.NextAction.RedirectToURL != nil {
			action.RedirectURL = pi.NextAction.RedirectToURL.URL
		}
	}
	b, err := json.Marshal(action)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return b
}

// safe reduces an error to what may be logged: stripego.Error prints itself as JSON,
// including the PaymentIntent and its client secret.
func safe(err error) error {
	var refused *stripego.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("stripe returned %d %s %s: %s", refused.HTTPStatusCode, refused.Type, refused.Code,
			refused.Msg)
	}
	return err
}

// validText is a header as a text column can store it.
func validText(s string) string { return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?") }

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// silent is stripe-go's logger; attempt logs what is worth a line.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
