package shop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// Shop is somebody who checks out: an API and what there is to sell.
type Shop struct {
	*world.Local
	World *world.World
}

// New makes a world with one shop, which has ten teas.
func New(t testing.TB, o world.LocalOptions) Shop {
	t.Helper()
	w := world.New(t)
	s := Shop{Local: w.Local(o), World: w}
	s.Stock("tea", 10)
	return s
}

// Stock sets what is available of an item.
func (s Shop) Stock(sku string, available int) {
	s.World.T.Helper()
	a := s.Do("PUT", "/v1/stock/"+sku, fmt.Sprintf(`{"available":%d}`, available))
	require.Equal(s.World.T, http.StatusOK, a.Status, a)
}

// RequireStock compares what is available and reserved of an item.
func (s Shop) RequireStock(sku string, available, reserved int) {
	s.World.T.Helper()
	a := s.Get("/v1/stock/" + sku)
	require.JSONEq(s.World.T, fmt.Sprintf(`{"sku":%q,"available":%d,"reserved":%d}`, sku, available, reserved),
		string(a.Body))
}

// TwoTeas is the body of a checkout of ten dollars: two teas, paid with the payment method.
func TwoTeas(method string) string {
	return fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],"payment_method":%q}`,
		method)
}

// TeasLater is TwoTeas with manual capture: the money is reserved first.
func TeasLater(method string) string {
	return strings.TrimSuffix(TwoTeas(method), "}") + `,"capture":"manual"}`
}

// Checkout asks for a checkout under a key.
func (s Shop) Checkout(key, body string, headers ...string) world.Answer {
	s.World.T.Helper()
	return s.Post("/v1/checkouts", key, body, headers...)
}

// Await asks with the key until the answer is final, and has the completer work meanwhile.
func (s Shop) Await(key, body string) (a world.Answer) {
	s.World.T.Helper()
	return s.AwaitWith(key, body, func() {})
}

// AwaitWith is Await; before each request it calls meanwhile.
func (s Shop) AwaitWith(key, body string, meanwhile func()) (a world.Answer) {
	s.World.T.Helper()
	s.World.Until("the checkout of "+key+" is final", func() bool {
		s.Complete()
		meanwhile()
		a = s.Checkout(key, body)
		return a.Err == nil && a.Status != http.StatusAccepted && !a.Problem().Retryable
	})
	return a
}

// Authenticate is the customer at the 3-D Secure page, if there is one. ok says whether the customer passes.
func (s Shop) Authenticate(ok bool) {
	if intent := s.World.Text(`SELECT intent_id FROM payments WHERE status = 'requires_action'`); intent != "" {
		_ = s.World.Sim.CompleteAuthentication(intent, ok) // or they have already
	}
}

// Saga is what the API shows of a checkout.
type Saga struct {
	ID, Status string
	OrderID    string `json:"order_id"`
	PaymentID  string `json:"payment_id"`
	Steps      []struct {
		Name, Status string
		Attempts     int
	}
	Failure *struct {
		Code, Message string
	}
}

// Course is each step that was or may be, with its status, in one line.
func (g Saga) Course() (line string) {
	for _, s := range g.Steps {
		if s.Status != "skipped" {
			line += s.Name + ":" + s.Status + " "
		}
	}
	return line
}

// SagaOf reads the checkout of an answer: the object, or a problem's member.
func SagaOf(t testing.TB, a world.Answer) (g Saga) {
	t.Helper()
	if a.Code() != "" {
		var p struct{ Checkout Saga }
		require.NoError(t, json.Unmarshal(a.Body, &p), a)
		return p.Checkout
	}
	require.NoError(t, json.Unmarshal(a.Body, &g), a)
	return g
}

// The courses of checkouts that have ended, as Course says them.
const (
	AllDone   = "create_order:done reserve_stock:done pay:done notify:done "
	AllUndone = "create_order:compensated reserve_stock:compensated pay:failed release_stock:done cancel_order:done "
	// Refunded is the course of a checkout whose payment was made and refunded.
	Refunded = "create_order:compensated reserve_stock:compensated pay:compensated notify:failed refund:done " +
		"release_stock:done cancel_order:done "
	// OutOfStock is the course of a checkout without stock; nothing was charged.
	OutOfStock = "create_order:compensated reserve_stock:failed cancel_order:done "
)

// The courses of checkouts with manual capture.
const (
	AllCaptured = "create_order:done authorize:done reserve_stock:done capture:done notify:done "
	// Unauthorized is the course of a payment that was refused: nothing is reserved.
	Unauthorized = "create_order:compensated authorize:failed cancel_order:done "
	// Uncaptured is the course of a capture that took nothing.
	Uncaptured = "create_order:compensated authorize:compensated reserve_stock:compensated capture:failed " +
		"release_stock:done release_payment:done cancel_order:done "
	// Unreserved is the course of an authorized checkout without stock.
	Unreserved = "create_order:compensated authorize:compensated reserve_stock:failed release_payment:done cancel_order:done "
	// CaptureRefunded is the course of a checkout whose money was taken and returned.
	CaptureRefunded = "create_order:compensated authorize:compensated reserve_stock:compensated capture:compensated " +
		"notify:failed refund:done release_stock:done release_payment:done cancel_order:done "
)

// CaptureRefused is the fault of a capture that Stripe refuses for good; it happens times times, -1 is always.
func CaptureRefused(times int) stripesim.Fault {
	return stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "parameter_invalid_integer", Times: times}
}
