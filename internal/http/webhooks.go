package http

import (
	"context"
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

// webhookRetry is for people who read the response: Stripe has its own schedule.
const webhookRetry = time.Minute

// webhooksPart is the only POST without an Idempotency-Key: Stripe sends none, and the id of
// its event, which the inbox stores, serves the same purpose.
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
// of unknown types are stored, too: a 4xx would make Stripe resend them for three days. Of each only what will be read
// is stored: neither a client secret nor who paid.
func (s *Server) stripeWebhook(w http.ResponseWriter, r *http.Request) {
	if len(s.o.WebhookSecrets) == 0 {
		s.refuse(w, r, unavailable(reasonNotConfigured, webhookRetry, "No webhook secret is configured."))
		return
	}
	body, err := s.readSigned(w, r)
	if errors.Is(err, stripe.ErrBadWebhook) {
		s.badSignatures.Inc()
		if s.logs.allow("webhook refused", http.StatusBadRequest, "") {
			s.o.Log.Warn("webhook refused", "request_id", visitOf(r).requestID, "error", err.Error())
		}
		err = &problem{
			code:   codeInvalidSignature,
			detail: "The signature does not match the body, or its time is more than five minutes from now.",
		}
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	visitOf(r).slot.release()
	event, err := stripe.ReadWebhook(body)
	if err != nil {
		s.refuse(w, r, &problem{code: codeInvalidRequest, detail: "The body is not an event."})
		return
	}
	ctx, cancel := s.bounded(postgres.ForAllTenants(r.Context(), "the webhooks of Stripe"), 0)
	defer cancel()
	fresh, err := s.webhooks.Receive(ctx, inbox.Received{
		Consumer: payments.StripeEvents, ID: event.ID, Type: event.Type, ObjectID: event.Intent.ID, Payload: event.Hint(),
		Body: body, Traceparent: tracing.Traceparent(r.Context()),
	})
	if errors.Is(err, postgres.ErrInDoubt) {
		// It is not known whether the event is stored, so Stripe must resend it. A 500
		// would look like a bug.
		err = unavailable(reasonDatabase, webhookRetry, "The service cannot reach its database.")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if fresh { // Otherwise an earlier delivery has already triggered it.
		s.o.WebhookReceived()
	}
	s.countEvent(event)
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"received":true}`)})
}

func (s *Server) countEvent(e stripe.Webhook) {
	kind, object := "snapshot", "named"
	if e.Thin {
		kind = "thin"
	}
	if e.ObjectID == "" && e.Intent.ID == "" {
		object = "none"
	}
	s.stripeEvents.WithLabelValues(kind, object).Inc()
}

// readSigned reads a body and checks its signature. Anybody can send one, so before that is done all of them together
// have a limit, and without a signature that could be of now none is read.
func (s *Server) readSigned(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	header := r.Header.Get("Stripe-Signature")
	if r.ContentLength <= webhookMax { // A larger one is refused unread, as too large.
		if err := stripe.CheckWebhookHeader(header); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	control, unread := http.NewResponseController(w), r.Body // A recorder in a test has no deadlines.
	arriveBy := time.Now().Add(s.o.Clients.Unsigned)
	_ = control.SetReadDeadline(arriveBy)
	unsigned := s.unsigned.add(unread, s.networks.of(r.RemoteAddr).String(), func() {
		cancel()
		_ = control.SetReadDeadline(time.Now())
	})
	r.Body = unsigned
	defer func() {
		r.Body = unread // What the client still sends is dropped (linger), and counts no more.
		s.unsigned.remove(unsigned)
	}()
	body, err := readBody(w, r, webhookMax)
	if errors.Is(err, errTooManyBodies) {
		time.Sleep(time.Until(arriveBy)) // Told at once, a flood would send the next one at once.
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := s.bounded(ctx, 0)
	defer stop()
	if err := s.admit(ctx, r, classWebhook); err != nil {
		return nil, err
	}
	// The signature covers the raw bytes, so it is checked before anything is decoded.
	return body, stripe.VerifyWebhook(body, header, s.o.WebhookSecrets)
}
