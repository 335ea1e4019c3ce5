package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	stripego "github.com/stripe/stripe-go/v76"
)

// WebhookPath is where the service takes Stripe's events.
const WebhookPath = "/v1/webhooks/stripe"

// WebhookTypes are the types of events that the service uses: without one of them something is noticed minutes later
// than with it. `api setup stripe` subscribes the endpoint to exactly these, the doctor compares it with them, and
// TestEachWebhookTypeIsUsed sends each to the handler of payments. Others that arrive are used or ignored.
//
// Each is a type in every API version that an account may have, so that no version refuses the list. That is why
// refund.failed is not among them: it is newer, and such a refund is in refund.updated or charge.refund.updated, too.
var WebhookTypes = []string{
	"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled",
	"payment_intent.amount_capturable_updated",
	"charge.captured", "charge.expired",
	"charge.refunded", "charge.refund.updated", "refund.created", "refund.updated",
	// part: disputes {
	"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed", "charge.dispute.funds_withdrawn",
	"charge.dispute.funds_reinstated",
	// part: disputes }
}

// WebhookEndpoint is where Stripe sends events to.
type WebhookEndpoint struct {
	ID            string            `json:"id"`
	URL           string            `json:"url"`
	Status        string            `json:"status"` // enabled or disabled
	EnabledEvents []string          `json:"enabled_events"`
	Metadata      map[string]string `json:"metadata"`
	Created       int64             `json:"created"`
	Livemode      bool              `json:"livemode"`
	Secret        string            `json:"secret"` // in the response to its creation only
}

// Enabled reports whether events are sent to it.
func (e WebhookEndpoint) Enabled() bool { return e.Status == "enabled" }

// EndpointChange is what is to be different about an endpoint. What is empty stays.
type EndpointChange struct {
	Types    []string
	Enable   bool
	Metadata map[string]string // one by one; the others stay
}

// endpoint is a WebhookEndpoint as stripe-go reads it.
type endpoint struct {
	stripego.APIResource
	WebhookEndpoint
}

// endpointPages is more than Stripe has of an account's endpoints, and an end for what repeats a page.
const endpointPages = 50

var errTooManyEndpoints = fmt.Errorf("the list of webhook endpoints does not end after %d pages", endpointPages)

// WebhookEndpoints lists every endpoint of the account, newest first.
func (s *Client) WebhookEndpoints(ctx context.Context) (all []WebhookEndpoint, r Reading) {
	path := fmt.Sprintf("/v1/webhook_endpoints?limit=%d", listPage)
	next := path
	for range endpointPages {
		var page struct {
			stripego.APIResource
			Data []WebhookEndpoint `json:"data"`
			More bool              `json:"has_more"`
		}
		r = s.inspect(ctx, next, &page)
		all = append(all, page.Data...)
		if r.Err != nil || !page.More || len(page.Data) == 0 {
			return all, r
		}
		next = path + "&starting_after=" + url.QueryEscape(page.Data[len(page.Data)-1].ID)
	}
	r.Err = errTooManyEndpoints
	return nil, r
}

// WebhookEndpoint reads one endpoint.
func (s *Client) WebhookEndpoint(ctx context.Context, id string) (WebhookEndpoint, Reading) {
	var e endpoint
	r := s.inspect(ctx, endpointPath(id), &e)
	return e.WebhookEndpoint, r
}

// CreateWebhookEndpoint makes an endpoint for WebhookTypes, under a key: the same key makes no other, and its response,
// which alone has the secret, is repeated for a day. The version of its events is the account's, because none of what
// they say is used but ids.
func (s *Client) CreateWebhookEndpoint(
	ctx context.Context, key, target string, metadata map[string]string,
) (WebhookEndpoint, Reading) {
	e, r := s.postEndpoint(ctx, key, "/v1/webhook_endpoints", &stripego.WebhookEndpointParams{
		URL: stripego.String(target), EnabledEvents: stripego.StringSlice(WebhookTypes), Metadata: metadata,
		Description: stripego.String("Made by api setup stripe"),
	})
	if r.Err == nil && (e.ID == "" || !webhookSecret.MatchString(e.Secret)) {
		r.Err = errAnotherObject
	}
	return e, r
}

// webhookSecret is the form in which a secret can be set.
var webhookSecret = regexp.MustCompile(`^whsec_[!-+\--~]+$`) // no comma: it separates secrets

// ChangeWebhookEndpoint changes an endpoint, and returns it as it is then.
func (s *Client) ChangeWebhookEndpoint(
	ctx context.Context, key, id string, c EndpointChange,
) (WebhookEndpoint, Reading) {
	params := &stripego.WebhookEndpointParams{Metadata: c.Metadata}
	if len(c.Types) > 0 {
		params.EnabledEvents = stripego.StringSlice(c.Types)
	}
	if c.Enable {
		params.Disabled = stripego.Bool(false)
	}
	e, r := s.postEndpoint(ctx, key, endpointPath(id), params)
	if r.Err == nil && e.ID != id {
		r.Err = errAnotherObject
	}
	return e, r
}

// DeleteWebhookEndpoint deletes an endpoint. One that is gone already is no error.
func (s *Client) DeleteWebhookEndpoint(ctx context.Context, id string) Reading {
	var any stripego.APIResource
	r, _ := s.call(ctx, http.MethodDelete, endpointPath(id), &stripego.Params{}, &any)
	if r.Status == http.StatusNotFound {
		r.Err = nil
	}
	return r
}

func (s *Client) postEndpoint(
	ctx context.Context, key, path string, params *stripego.WebhookEndpointParams,
) (WebhookEndpoint, Reading) {
	if key == "" {
		panic("bug: a POST to Stripe without an idempotency key")
	}
	params.IdempotencyKey = stripego.String(key)
	var e endpoint
	r, _ := s.call(ctx, http.MethodPost, path, params, &e)
	return e.WebhookEndpoint, r
}

func endpointPath(id string) string { return "/v1/webhook_endpoints/" + url.PathEscape(id) }

// Lost reports whether a call may have taken effect, or may not have, as far as this response says; the same call under
// the same key will tell. A stored response is not lost: it would be repeated.
func (r Reading) Lost() bool {
	switch {
	case r.Err == nil || r.Stored:
		return false
	case errors.Is(r.Err, errAnotherObject):
		return true
	}
	return r.Status == 0 || r.Status < 300 || r.Status == http.StatusConflict ||
		r.Status == http.StatusTooManyRequests || r.Status >= http.StatusInternalServerError
}

// KeySpent reports whether a key cannot be used for a call: it has been, with other parameters, or with an outcome that
// is an error and is repeated.
func (r Reading) KeySpent() bool {
	return r.Err != nil && (r.Stored || r.Type == string(stripego.ErrorTypeIdempotency) && r.Status != http.StatusConflict)
}
