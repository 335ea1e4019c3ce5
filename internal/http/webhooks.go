package http

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
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
	unsignedMax  = 32 << 20        // of all bodies whose signature is not checked yet
	unsignedTime = 5 * time.Second // in which such a body must arrive
	webhookRetry = time.Minute     // Stripe has its own schedule; this is for people who read the response.
)

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
// of unknown types are stored, too: a 4xx would make Stripe resend them for three days.
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
			code: codeInvalidSignature, detail: "The signature does not match the body, or is older than five minutes.",
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
		Consumer: payments.StripeEvents, ID: event.ID, Type: event.Type, ObjectID: event.Intent.ID, Payload: body,
		Traceparent: tracing.Traceparent(r.Context()),
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
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"received":true}`)})
}

// errTooManyBodies is for a webhook that would exceed unsignedMax.
var errTooManyBodies = unavailable(reasonAnonymous, webhookRetry,
	"Too many webhooks are being received. This one was not stored.")

// readSigned reads a body and checks its signature. Anybody can send one, so before that is done all of them together
// have a limit, and without a signature that could be of now none is read.
func (s *Server) readSigned(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	header := r.Header.Get("Stripe-Signature")
	if r.ContentLength <= webhookMax { // A larger one is refused unread, as too large.
		if err := stripe.CheckWebhookHeader(header); err != nil {
			return nil, err
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unsignedTime)) // A recorder in a test has none.
	unsigned := &unsignedBody{ReadCloser: r.Body, all: &s.unsigned}
	defer unsigned.release()
	r.Body = unsigned
	body, err := readBody(w, r, webhookMax)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(r.Context(), 0)
	defer cancel()
	if err := s.admit(ctx, r, classWebhook); err != nil {
		return nil, err
	}
	// The signature covers the raw bytes, so it is checked before anything is decoded.
	return body, stripe.VerifyWebhook(body, header, s.o.WebhookSecrets)
}

// unsignedBody counts what it has read in the sum of all.
type unsignedBody struct {
	io.ReadCloser
	all  *atomic.Int64
	mine int64
}

func (b *unsignedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mine += int64(n)
	if b.all.Add(int64(n)) > unsignedMax {
		return 0, errTooManyBodies
	}
	return n, err
}

func (b *unsignedBody) release() { b.all.Add(-b.mine) }
