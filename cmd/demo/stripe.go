package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

// stripe is a client of the simulator's admin port, where the demo breaks things
// and counts charges. The counts do not depend on the API, so they also show a
// charge that the API does not know about.
type stripe struct {
	api   string // the Stripe API that the API processes use; empty with -against
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
		return fmt.Errorf("simulator: %s %s failed: %s", method, path, bytes.TrimSpace(got))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(got, out)
}

// charges counts the charges of an order.
func (s *stripe) charges(ctx context.Context, order string) (int, error) {
	var got struct{ Count int }
	err := s.call(ctx, http.MethodGet, "/charges?order_id="+url.QueryEscape(order), nil, &got)
	return got.Count, err
}

// effects returns every charge and refund, in order.
func (s *stripe) effects(ctx context.Context) (all []stripesim.Effect, err error) {
	err = s.call(ctx, http.MethodGet, "/effects", nil, &all)
	return all, err
}

// injectFault makes the next call that matches fail in some way.
func (s *stripe) injectFault(ctx context.Context, f stripesim.Fault) error {
	return s.call(ctx, http.MethodPost, "/faults", f, nil)
}

// hold stops Stripe at a point of its work on an order, until release. It makes a
// moment of a few microseconds last as long as a scene needs it.
func (s *stripe) hold(ctx context.Context, operation, order string, at stripesim.Point) (hold string, err error) {
	var got struct{ ID string }
	in := struct {
		stripesim.Selector
		Point stripesim.Point `json:"point"`
	}{stripesim.Selector{Op: operation, OrderID: order}, at}
	err = s.call(ctx, http.MethodPost, "/holds", in, &got)
	return got.ID, err
}

// waitForHold waits until a call is stopped at the hold.
func (s *stripe) waitForHold(ctx context.Context, hold string) error {
	var got struct{ Waiting []stripesim.Held }
	if err := s.call(ctx, http.MethodGet, "/holds/"+hold+"?wait=5s", nil, &got); err != nil {
		return err
	}
	if len(got.Waiting) == 0 {
		return fmt.Errorf("no call reached the hold %s within five seconds", hold)
	}
	return nil
}

func (s *stripe) release(ctx context.Context, hold string) error {
	return s.call(ctx, http.MethodDelete, "/holds/"+hold, nil, nil)
}

// registerWebhook sets where Stripe sends webhooks.
func (s *stripe) registerWebhook(ctx context.Context, url, secret string) error {
	return s.call(ctx, http.MethodPost, "/webhook-endpoints",
		map[string]any{"url": url, "secret": secret, "key": stripesim.DefaultKey}, nil)
}

// injectWebhookFault delays or repeats the next webhook that matches.
func (s *stripe) injectWebhookFault(ctx context.Context, f stripesim.WebhookFault) error {
	return s.call(ctx, http.MethodPost, "/webhook-faults", f, nil)
}

// deliveriesSince returns the webhooks that were sent since an instant, in order.
func (s *stripe) deliveriesSince(ctx context.Context, since time.Time) (out []stripesim.Delivery, err error) {
	var all []stripesim.Delivery
	err = s.call(ctx, http.MethodGet, "/webhooks", nil, &all)
	for _, d := range all {
		if !d.At.Before(since) {
			out = append(out, d)
		}
	}
	return out, err
}

// authenticate confirms a 3-D Secure payment, as the customer would on the bank's page.
func (s *stripe) authenticate(ctx context.Context, intent string) error {
	return s.call(ctx, http.MethodPost, "/authenticate/"+url.PathEscape(intent),
		map[string]string{"outcome": "success"}, nil)
}

// openDispute is what a bank does when its customer asks for the money of a charge.
func (s *stripe) openDispute(ctx context.Context, charge string) error {
	return s.call(ctx, http.MethodPost, "/disputes", map[string]string{"charge": charge}, nil)
}

// submitEvidence answers a dispute as the shop does, in Stripe's dashboard or API. Test evidence says how it ends.
func (s *stripe) submitEvidence(ctx context.Context, dispute, evidence string) error {
	form := url.Values{"evidence[uncategorized_text]": {evidence}, "submit": {"true"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/v1/disputes/"+url.PathEscape(dispute),
		strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(stripesim.DefaultKey, "")
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("submit evidence of %s: %d %s", dispute, res.StatusCode, bytes.TrimSpace(body))
	}
	return err
}
