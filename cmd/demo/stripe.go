package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"example.com/payonce/stripesim"
)

// stripe is what we know of Stripe and do to it, through the simulator's admin
// port. Its books are the witness: they say what happened to the money, and know
// nothing of what the API believes or answered.
type stripe struct {
	api   string // Stripe's own port; empty if others run it
	admin string
	http  *http.Client
}

func newStripe(admin string) *stripe {
	return &stripe{admin: admin, http: &http.Client{Timeout: 15 * time.Second}}
}

func (s *stripe) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.admin+path, body)
	if err != nil {
		return err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the simulator refuses %s %s: %s", method, path, bytes.TrimSpace(got))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(got, out)
}

// charges is how often money was taken for an order.
func (s *stripe) charges(ctx context.Context, order string) (int, error) {
	var got struct{ Count int }
	err := s.call(ctx, http.MethodGet, "/charges?order_id="+url.QueryEscape(order), nil, &got)
	return got.Count, err
}

// effects is everything that happened to anybody's money, in order.
func (s *stripe) effects(ctx context.Context) (all []stripesim.Effect, err error) {
	err = s.call(ctx, http.MethodGet, "/effects", nil, &all)
	return all, err
}

// inject breaks something at Stripe.
func (s *stripe) inject(ctx context.Context, f stripesim.Fault) error {
	return s.call(ctx, http.MethodPost, "/faults", f, nil)
}

// hold stops Stripe at a point of its work on an order, until release.
func (s *stripe) hold(ctx context.Context, operation, order string, at stripesim.Point) (hold string, err error) {
	var got struct{ ID string }
	in := struct {
		stripesim.Selector
		Point stripesim.Point `json:"point"`
	}{stripesim.Selector{Op: operation, OrderID: order}, at}
	err = s.call(ctx, http.MethodPost, "/holds", in, &got)
	return got.ID, err
}

// arrived waits until somebody is held.
func (s *stripe) arrived(ctx context.Context, hold string) error {
	var got struct{ Waiting []stripesim.Held }
	if err := s.call(ctx, http.MethodGet, "/holds/"+hold+"?wait=5s", nil, &got); err != nil {
		return err
	}
	if len(got.Waiting) == 0 {
		return fmt.Errorf("nobody came to %s within five seconds", hold)
	}
	return nil
}

func (s *stripe) release(ctx context.Context, hold string) error {
	return s.call(ctx, http.MethodDelete, "/holds/"+hold, nil, nil)
}

// notify says where Stripe's webhooks go.
func (s *stripe) notify(ctx context.Context, url, secret string) error {
	return s.call(ctx, http.MethodPost, "/webhook-endpoints", map[string]any{"url": url, "secret": secret, "key": stripesim.DefaultKey}, nil)
}

// bend breaks the delivery of webhooks.
func (s *stripe) bend(ctx context.Context, f stripesim.WebhookFault) error {
	return s.call(ctx, http.MethodPost, "/webhook-faults", f, nil)
}

// delivered is every webhook that was sent since, in order.
func (s *stripe) delivered(ctx context.Context, since time.Time) (out []stripesim.Delivery, err error) {
	var all []stripesim.Delivery
	err = s.call(ctx, http.MethodGet, "/webhooks", nil, &all)
	for _, d := range all {
		if !d.At.Before(since) {
			out = append(out, d)
		}
	}
	return out, err
}

// authenticate is the customer, who does what the bank asked for.
func (s *stripe) authenticate(ctx context.Context, intent string) error {
	return s.call(ctx, http.MethodPost, "/authenticate/"+url.PathEscape(intent), map[string]string{"outcome": "success"}, nil)
}
