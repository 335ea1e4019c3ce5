package http

import (
	"errors"
	"net/http"
	"time"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/tracing"
)

const (
	webhookMax   = 1 << 20
	webhookRetry = time.Minute // Stripe has its own schedule; this is for people who read the response.
)

func webhooksPart() part {
	return part{routes: func(s *Server) []route {
		return []route{{
			method: "POST", pattern: "/v1/webhooks/stripe", handle: s.stripeWebhook, open: true,
			keyless: "Stripe's event id is its key",
		}}
	}}
}

// stripeWebhook stores an event, and responds 200 when it is durable. It is applied later,
// so that an event that is slow or fails to apply does not make Stripe resend it. Events
// of unknown types are stored, too: a 4xx would make Stripe resend them for three days.
func (s *Server) stripeWebhook(w http.ResponseWriter, r *http.Request) {
	if len(s.o.WebhookSecrets) == 0 {
		s.refuse(w, r, &problem{
			code: codeUnavailable, detail: "No webhook secret is configured.", retryAfter: webhookRetry,
		})
		return
	}
	body, err := readBody(w, r, webhookMax)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if err := stripe.VerifyWebhook(body, r.Header.Get("Stripe-Signature"), s.o.WebhookSecrets); err != nil {
		s.badSignatures.Inc()
		s.o.Log.Warn("webhook refused", "request_id", visitOf(r).requestID, "error", err.Error())
		s.refuse(w, r, &problem{
			code: codeInvalidSignature, detail: "The signature does not match the body, or is older than five minutes.",
		})
		return
	}
	event, err := stripe.ReadWebhook(body)
	if err != nil {
		s.refuse(w, r, &problem{code: codeInvalidRequest, detail: "The body is not an event."})
		return
	}
	ctx, cancel := s.bounded(r.Context(), 0)
	defer cancel()
	fresh, err := s.webhooks.Receive(ctx, inbox.Received{
		Consumer: payments.StripeEvents, ID: event.ID, Type: event.Type, ObjectID: event.Intent.ID, Payload: body,
		Traceparent: tracing.Traceparent(r.Context()),
	})
	if errors.Is(err, postgres.ErrInDoubt) {
		// It is not known whether the event is stored, so Stripe must resend it. A 500
		// would look like a bug.
		err = &problem{
			code: codeUnavailable, detail: "The service cannot reach its database.", retryAfter: webhookRetry,
		}
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if fresh {
		s.o.WebhookReceived()
	}
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"received":true}`)})
}
