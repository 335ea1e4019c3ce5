package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A script is a Gateway that responds as a table of a test says, one request after the other. A request that the table
// does not expect fails the test. It is for the decisions that follow a response: Stripe's simulator has no state in
// which it gives most of them, and a row of a table takes a few milliseconds.
type script struct {
	responses  []response
	asked      []string        // the requests so far
	keys       []string        // of the calls among them, without their tenant
	windows    []stripe.Window // of the pages so far
	requestIDs []string        // of the responses to calls
	wrong      []string
	intent     string // of the row
	order      stripe.Order
	refund     string // of the row: ours in its lists
}

// ours in a list of refunds, or in a response, is the row's refund.
const ours = "ours"

// response is what the script does next: only for the request that it is for.
type response struct {
	request string
	out     stripe.Outcome
	intent  stripe.Intent
	intents []stripe.Intent // of a search, or of a page
	more    bool            // pages follow
	refunds []stripe.Refund
	err     error
	during  func() // what happens meanwhile
}

const (
	create  = "create"
	confirm = "confirm"
	capture = "capture"
	cancel  = "cancel"
	get     = "get"
	makes   = "refund"
	lists   = "refunds"
	page    = "list"
	search  = "search"
)

func (s *script) next(request string) response {
	s.asked = append(s.asked, request)
	if len(s.responses) == 0 || s.responses[0].request != request {
		s.wrong = append(s.wrong, fmt.Sprintf("%s after %q", request, s.asked[:len(s.asked)-1]))
		return response{err: errors.New("not in the script")}
	}
	r := s.responses[0]
	s.responses = s.responses[1:]
	if r.during != nil {
		r.during()
	}
	r.refunds = slices.Clone(r.refunds)
	for i := range r.refunds {
		s.complete(&r.refunds[i])
	}
	s.complete(&r.out.Refund)
	intents := []*stripe.Intent{&r.intent, &r.out.Intent}
	r.intents = slices.Clone(r.intents)
	for i := range r.intents {
		intents = append(intents, &r.intents[i])
	}
	for _, i := range intents {
		if i.Status == "" {
			continue
		}
		if i.ID == "" {
			i.ID = s.intent
		}
		if i.Status == stripe.IntentSucceeded && i.ChargeID == "" {
			i.ChargeID = "ch_" + i.ID
		}
		if i.OrderID == "" {
			i.TenantID, i.OrderID = s.order.TenantID, s.order.OrderID
		}
	}
	return r
}

// complete fills in what the rows of a table do not know.
func (s *script) complete(r *stripe.Refund) {
	if r.Status == "" {
		return
	}
	r.IntentID = s.intent
	if r.ID == "" {
		r.ID = "re_" + strings.TrimPrefix(s.intent, "pi_")
	}
	if r.RefundID == ours {
		r.RefundID = s.refund
	}
}

func (s *script) call(request string, c stripe.Call) stripe.Outcome {
	_, key, _ := strings.Cut(c.Key, ":")
	s.keys = append(s.keys, key)
	out := s.next(request).out
	if out.RequestID != "" {
		out.RequestID = fmt.Sprintf("req_%d", len(s.asked))
		s.requestIDs = append(s.requestIDs, out.RequestID)
		if out.OriginalRequestID != "" {
			out.OriginalRequestID = out.RequestID
		}
	}
	return out
}

func (s *script) Ready(context.Context, string) (func(), error) { return func() {}, nil }

func (s *script) CreateIntent(_ context.Context, c stripe.Call, _ stripe.NewIntent) stripe.Outcome {
	return s.call(create, c)
}

func (s *script) ConfirmIntent(_ context.Context, c stripe.Call, _, _ string) stripe.Outcome {
	return s.call(confirm, c)
}

func (s *script) CaptureIntent(_ context.Context, c stripe.Call, _ string, _ int64) stripe.Outcome {
	return s.call(capture, c)
}

func (s *script) CancelIntent(_ context.Context, c stripe.Call, _ string) stripe.Outcome {
	return s.call(cancel, c)
}

func (s *script) GetIntent(_ context.Context, _, id string) (stripe.Intent, error) {
	r := s.next(get)
	if r.err == nil && r.intent.ID != id {
		s.wrong = append(s.wrong, fmt.Sprintf("%s is read, not %s", id, r.intent.ID))
	}
	return r.intent, r.err
}

func (s *script) IntentOf(context.Context, string, string) (string, error) {
	r := s.next(get)
	return r.intent.ID, r.err
}

func (s *script) CreateRefund(_ context.Context, c stripe.Call, _ stripe.NewRefund) stripe.Outcome {
	return s.call(makes, c)
}

func (s *script) RefundsOf(context.Context, string, string) ([]stripe.Refund, error) {
	r := s.next(lists)
	return r.refunds, r.err
}

func (s *script) ListIntents(_ context.Context, w stripe.Window) (stripe.Page[stripe.Intent], error) {
	s.windows = append(s.windows, w)
	r := s.next(page)
	return stripe.Page[stripe.Intent]{Objects: r.intents, More: r.more}, r.err
}

func (s *script) ListRefunds(context.Context, stripe.Window) (stripe.Page[stripe.Refund], error) {
	r := s.next(page)
	return stripe.Page[stripe.Refund]{Objects: r.refunds}, r.err
}

func (s *script) SearchIntents(context.Context, string, string) ([]stripe.Intent, error) {
	r := s.next(search)
	return r.intents, r.err
}

// Responses.

// done is a call that took effect and shows the intent in a status.
func done(request string, status stripe.IntentStatus, change ...func(*response)) response {
	return changed(response{request: request, out: stripe.Outcome{
		Effect: stripe.Done, HTTPStatus: http.StatusOK, Intent: of1000(status), RequestID: "req_1",
	}}, change)
}

// shows is a read of the intent.
func shows(status stripe.IntentStatus, change ...func(*response)) response {
	return changed(response{request: get, intent: of1000(status)}, change)
}

// absent is a read of an intent that the account does not have.
func absent() response { return response{request: get, err: stripe.ErrNoSuchObject} }

// other is a call with another effect.
func other(request string, effect stripe.Effect, change ...func(*response)) response {
	return changed(response{request: request, out: stripe.Outcome{
		Effect: effect, HTTPStatus: http.StatusBadRequest, ErrorCode: "from_stripe", RequestID: "req_1",
		Failure: stripe.Failure{Code: "from_stripe", Message: "Stripe said so."},
	}}, change)
}

// away is a read that gets no response.
func away(request string) response { return response{request: request, err: errors.New("no response")} }

// notFound is a search for the order's intents that finds none, and then the list that shows none in both its parts.
var notFound = []response{{request: search}, {request: page}, {request: page}}

// refunds is the response to a refund that Stripe has made.
func refunds(status db.RefundStatus, change ...func(*response)) response {
	return changed(response{request: makes, out: stripe.Outcome{
		Effect: stripe.Done, HTTPStatus: http.StatusOK, RequestID: "req_1",
		Refund: stripe.Refund{Status: status, AmountMinor: 300, Currency: "usd", RefundID: ours},
	}}, change)
}

// listing is Stripe's list of the intent's refunds.
func listing(list ...stripe.Refund) response { return response{request: lists, refunds: list} }

// own is the row's refund in a list.
func own(status db.RefundStatus, minor int64) stripe.Refund {
	r := foreign(status, minor)
	r.ID, r.RefundID = "", ours
	return r
}

// foreign is a refund that somebody made in the dashboard.
func foreign(status db.RefundStatus, minor int64) stripe.Refund {
	return stripe.Refund{
		ID: "re_" + uuid.NewString(), Status: status, AmountMinor: minor, Currency: "usd", CreatedAt: time.Now(),
	}
}

func code(code string) func(*response) { return func(r *response) { r.out.ErrorCode = code } }

func param(name string) func(*response) { return func(r *response) { r.out.Param = name } }

func changed(r response, change []func(*response)) response {
	for _, f := range change {
		f(&r)
	}
	return r
}

func of1000(status stripe.IntentStatus) stripe.Intent {
	i := stripe.Intent{Status: status, AmountMinor: 1000, Currency: "usd", CreatedAt: time.Now()}
	if status == stripe.IntentSucceeded {
		i.ReceivedMinor = 1000
	}
	if status == stripe.IntentRequiresAction {
		i.NextAction = []byte(`{"type":"use_stripe_sdk","client_secret":"secret"}`)
	}
	return i
}

// meanwhile is what happens before Stripe responds.
func meanwhile(f func()) func(*response) { return func(r *response) { r.during = f } }

func replayed(r *response) { r.out.Replayed = true }

func errorCached(r *response) { r.out.ErrorCached = true }

// ofItsOwn is a response whose key Stripe has first seen in a request that is recorded.
func ofItsOwn(r *response) { r.out.OriginalRequestID = r.out.RequestID }

func missing(r *response) {
	r.out.HTTPStatus, r.out.ErrorCode = http.StatusNotFound, "resource_missing"
}

func declined(r *response) {
	r.out.Declined = true
	r.out.Failure = stripe.Failure{Code: "card_declined", DeclineCode: "insufficient_funds", Message: "No funds."}
}

// lastDeclined is an intent whose last attempt to pay was declined.
func lastDeclined(r *response) {
	r.intent.LastFailure = &stripe.Failure{Code: "card_declined", DeclineCode: "lost_card", Message: "Lost."}
	r.intent.LastIsDecline = true
}

func amount(minor int64) func(*response) {
	return func(r *response) {
		for _, i := range []*stripe.Intent{&r.intent, &r.out.Intent} {
			i.AmountMinor, i.ReceivedMinor = minor, minor
		}
	}
}

// names is an intent whose metadata names something else than its order.
func names(tenant, order string) func(*response) {
	return func(r *response) { r.intent.TenantID, r.intent.OrderID = tenant, order }
}

func currency(code string) func(*response) {
	return func(r *response) { r.intent.Currency, r.out.Intent.Currency = code, code }
}

func refunded(minor int64) func(*response) {
	return func(r *response) { r.intent.RefundedMinor, r.out.Intent.RefundedMinor = minor, minor }
}

// played is a server on a script, for the rows of a table.
type played struct {
	*testing.T
	w      *world.World
	api    *world.Local
	script *script
}

func play(t *testing.T) *played {
	t.Helper()
	p := &played{T: t, w: world.New(t), script: &script{}}
	p.api = p.w.Local(p.options())
	return p
}

func (p *played) options() world.LocalOptions {
	return world.LocalOptions{Gateway: func(payments.Gateway) payments.Gateway { return p.script }}
}

// playProxied is one row, on a server that talks to its database through a proxy.
func playProxied(t *testing.T, change ...func(*world.LocalOptions)) (*played, *pgproxy.Proxy) {
	t.Helper()
	p := &played{T: t, script: &script{}}
	o := p.options()
	for _, f := range change {
		f(&o)
	}
	var proxy *pgproxy.Proxy
	p.w, p.api, proxy = world.Proxied(t, o)
	return p.row(t, nil), proxy
}

// row begins a row of a table.
func (p *played) row(t *testing.T, responses []response) *played {
	*p.script = script{intent: "pi_" + uuid.NewString()}
	p.responds(responses...)
	return &played{t, p.w, p.api, p.script}
}

// responds adds to the script.
func (p *played) responds(responses ...response) {
	p.script.responses = append(p.script.responses, responses...)
}

// played fails the test unless exactly the script's requests have been made.
func (p *played) requirePlayed() {
	p.Helper()
	require.Empty(p.T, p.script.wrong)
	require.Empty(p.T, p.script.responses, "not all of the script was asked for, but %q", p.script.asked)
}

// requireRequests fails the test unless the ids of the responses to the calls of an order are recorded, each once. An
// operation that waits after a refusal may not have recorded that.
func (p *played) requireRequests(order string, waits bool) {
	p.Helper()
	var recorded []string
	require.NoError(p, json.Unmarshal([]byte(p.w.Text(`SELECT coalesce(jsonb_agg(id), '[]')
		FROM stripe_calls c, unnest(c.request_ids) id WHERE c.resource_id = $1
			OR c.resource_id IN (SELECT id FROM payments WHERE order_id = $1 UNION SELECT id FROM refunds WHERE order_id = $1)`,
		order)), &recorded))
	if waits {
		require.Subset(p.T, p.script.requestIDs, recorded)
		slices.Sort(recorded)
		require.Equal(p.T, slices.Compact(slices.Clone(recorded)), recorded, "each once")
		return
	}
	require.ElementsMatch(p.T, p.script.requestIDs, recorded, "the ids of Stripe's responses")
}

// said is an answer in short: its status, or its code if it is a problem.
func said(a world.Answer) string {
	if a.Code() != "" {
		return a.Code()
	}
	return strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Get("status")))
}
