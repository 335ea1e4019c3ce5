package histories

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/lives"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// history is one history while it is played.
type history struct {
	testing.TB
	*rand.Rand
	b     *world.Books // the present database
	clock *clock
	story []string
	names map[string]string // of ids, in the story

	orders   []string
	payments []string
	requests []*request
	secrets  []string // client secrets that a page has

	backup   string // the copy; empty: none yet
	backupAt time.Time
	since    time.Duration // has passed since the copy

	lostEvents map[string]string // of the life that is lost, by id
	again      bool              // this is the second restore
	copyIn     int               // the copy is made at the so manieth boundary from now on; 0: at none
}

// request is what a client asks for under a key.
type request struct {
	name, path, key, body string
	last                  world.Answer
}

// PlayAll plays the histories of seeds, or that of the seed in HISTORY alone.
func PlayAll(t *testing.T, seeds ...uint64) {
	t.Helper()
	if one := os.Getenv("HISTORY"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			Play(t, seed)
		})
	}
}

// Play plays the history of a seed. It fails the test if something is charged or given twice, or forgotten, and then logs
// what happened.
func Play(t testing.TB, seed uint64) {
	t.Helper()
	h := &history{TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), names: map[string]string{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the history of seed %d:\n%s", seed, strings.Join(h.story, "\n"))
		}
	})
	w := world.New(t)
	h.clock = newClock(t, w)
	h.b = world.BooksWith(w, world.LocalOptions{ActionTimeout: time.Hour, Boundary: h.boundary})
	stocks(h) // part: checkouts
	for range 1 + h.IntN(2) {
		h.order()
	}
	h.steps(h.IntN(7))
	h.lose()
	if seed%4 == 0 {
		h.again = true
		h.lose()
	}
	h.settle()
	h.check()
}

// lose has the database go back: what happens between the copy and the restore is lost.
func (h *history) lose() {
	h.backup, h.since = "", 0
	if h.IntN(2) == 0 {
		h.copyIn = 1 + h.IntN(5)
		h.steps(1 + h.IntN(2))
	}
	if h.backup == "" {
		h.copy("between two requests")
	}
	h.copyIn = 0
	h.tell("---- is lost from here on")
	h.pay()
	h.steps(1 + h.IntN(8))
	h.restore()
	h.steps(2 + h.IntN(8))
}

// tell adds a line to the story.
func (h *history) tell(format string, args ...any) {
	h.story = append(h.story, fmt.Sprintf(format, args...))
}

// name is a short name of an id.
func (h *history) name(id string) string {
	if id == "" {
		return "-"
	}
	if h.names[id] == "" {
		kind, _, _ := strings.Cut(id, "_")
		n := 1
		for other := range h.names {
			if strings.HasPrefix(other, kind+"_") {
				n++
			}
		}
		h.names[id] = fmt.Sprint(kind, n)
	}
	return h.names[id]
}

// act is something that happens in a history.
type act struct {
	weight int
	does   func(*history)
}

// acts are what may happen. Each part of the service that a history needs adds its own.
var acts = []act{
	{1, (*history).order},
	{12, (*history).pay},
	{8, (*history).retry},
	{4, (*history).capture},
	{2, (*history).cancelPayment},
	{2, (*history).cancelOrder},
	{4, (*history).refund},
	{6, (*history).browser},
	{4, (*history).dashboard},
	{5, (*history).time},
	{6, (*history).fault},
	{4, (*history).complete},
	{3, (*history).reconcile},
}

func (h *history) steps(n int) {
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	for range n {
		at := h.IntN(sum)
		for _, a := range acts {
			if at -= a.weight; at < 0 {
				a.does(h)
				break
			}
		}
	}
}

// boundary is called between two commits of an operation.
func (h *history) boundary(operation, point string) {
	if h.copyIn == 0 {
		return
	}
	if h.copyIn--; h.copyIn == 0 {
		h.copy(operation + " is at " + point)
	}
}

func (h *history) copy(when string) {
	h.tell("---- the backup: %s", when)
	h.backup, h.backupAt = h.b.CopyDatabase(), time.Now()
}

// restore goes on with the copy, as the handbook says.
func (h *history) restore() {
	if h.IntN(4) > 0 {
		h.pass([]time.Duration{2 * time.Hour, 11 * time.Hour, 28 * time.Hour}[h.IntN(3)])
	}
	h.tell("---- the restore, %s after the backup", h.since)
	lost := h.b
	h.b.Sim.ClearFaults()
	h.b = world.BooksWith(lost.OnDatabase(h.backup), world.LocalOptions{ActionTimeout: time.Hour, Boundary: h.boundary})
	older(h.b.World, h.since)
	placed(h) // part: events
	h.lostEvents = eventsOf(lost)
	at := h.backupAt.Add(-h.since)
	if h.again && h.IntN(2) == 0 {
		at = time.Time{} // The time of the backup is not known.
	}
	_, err := lives.Begin(h.Context(), h.b.DB, at, h.again)
	require.NoError(h, err)
	requireNoCursor(h) // part: events
	for _, r := range h.requests {
		r.last = world.Answer{} // The client does not know that the answer is lost, and some ask again.
	}
	if h.IntN(2) == 0 {
		h.reconcile()
		h.complete()
	}
	h.Shuffle(len(h.requests), func(i, j int) { h.requests[i], h.requests[j] = h.requests[j], h.requests[i] })
	for _, r := range h.requests {
		if h.IntN(2) == 0 {
			h.send(r)
		}
	}
	for range 2 {
		if h.IntN(2) == 0 {
			h.pay() // a customer who has no answer presses the button again
		}
	}
}

// send sends a request, perhaps again.
func (h *history) send(r *request) world.Answer {
	final := r.last
	r.last = h.b.API.Post(r.path, r.key, r.body)
	a := r.last
	if stored(final) {
		require.Equal(h, final.Identity(), a.Identity(), "another answer to %s", r.name)
	}
	h.learn(a)
	became := any(a.Code())
	if became == "" {
		became = a.Get("status")
	}
	h.tell("%s: %d %v %v", r.name, a.Status, became, orElse(failureOf(a), ""))
	return a
}

// stored reports whether each retry gets the answer.
func stored(a world.Answer) bool {
	return a.Status == http.StatusOK || a.Status == http.StatusCreated || a.Status == http.StatusPaymentRequired
}

func failureOf(a world.Answer) any {
	failure, _ := a.Problem().Payment["failure"].(map[string]any)
	return failure["code"]
}

func orElse(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// learn notes the ids and the client's secret that an answer has.
func (h *history) learn(a world.Answer) {
	id := a.ID()
	if failed, ok := a.Problem().Payment["id"].(string); ok {
		id = failed
	}
	if made, ok := a.Get("payment_id").(string); ok { // a checkout
		a, id = h.b.API.Get("/v1/payments/"+made), made
	}
	if strings.HasPrefix(id, "pay_") && h.names[id] == "" {
		h.name(id)
		h.payments = append(h.payments, id)
	}
	if secret, ok := a.Get("next_action", "client_secret").(string); ok && h.names[secret] == "" {
		h.name(secret)
		h.secrets = append(h.secrets, secret)
	}
}

// ask sends a new request of a client, and once more at once now and then.
func (h *history) ask(name, path, body string) world.Answer {
	key := fmt.Sprint("key", len(h.requests)+1)
	r := &request{name: key + " " + name, path: path, key: key, body: body}
	h.requests = append(h.requests, r)
	a := h.send(r)
	if h.IntN(4) == 0 {
		a = h.send(r)
	}
	return a
}

func (h *history) order() {
	if len(h.orders) == 3 {
		h.pay()
		return
	}
	a := h.ask("order", "/v1/orders", `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`)
	if a.Status == http.StatusCreated {
		h.orders = append(h.orders, a.ID())
		h.tell("  is %s", h.name(a.ID()))
	}
}

// method is a card: one that pays, one that is declined, one whose customer must act.
func (h *history) method() string {
	return []string{"pm_card_visa", "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_authenticationRequired"}[h.IntN(4)]
}

func (h *history) pay() {
	order, method, capture := one(h, h.orders), h.method(), []string{"automatic", "manual"}[h.IntN(2)]
	h.ask(fmt.Sprintf("pays %s with %s, %s", h.name(order), method, capture), "/v1/payments",
		fmt.Sprintf(`{"order_id":%q,"payment_method":%q,"capture":%q}`, order, method, capture))
}

func (h *history) retry() { h.send(one(h, h.requests)) }

func (h *history) capture() {
	h.ofPayment("captures", "capture", []string{`{}`, `{"amount":400}`, `{"amount":1000}`}[h.IntN(3)])
}

func (h *history) cancelPayment() { h.ofPayment("cancels", "cancel", `{}`) }

func (h *history) refund() {
	h.ofPayment("refunds", "refunds", []string{`{}`, `{"amount":300}`}[h.IntN(2)])
}

// ofPayment asks for something of a payment, mostly of the last.
func (h *history) ofPayment(does, path, body string) {
	if len(h.payments) == 0 {
		return
	}
	payment := h.payments[len(h.payments)-1]
	if h.IntN(2) == 0 {
		payment = one(h, h.payments)
	}
	h.ask(fmt.Sprintf("%s %s %s", does, h.name(payment), body), "/v1/payments/"+payment+"/"+path, body)
}

func (h *history) cancelOrder() {
	order := one(h, h.orders)
	h.ask("cancels "+h.name(order), "/v1/orders/"+order+"/cancel", `{}`)
}

// browser is a customer on a page that is open.
func (h *history) browser() {
	if len(h.secrets) > 0 {
		h.customer(one(h, h.secrets), h.IntN(3))
	}
}

// customer passes 3-D Secure, fails it, or pays with another card.
func (h *history) customer(secret string, does int) {
	intent, _, _ := strings.Cut(secret, "_secret_")
	var err error
	switch does {
	case 0, 1:
		err = h.b.Sim.CompleteAuthentication(intent, does == 0)
	default:
		err = h.b.Sim.PayInBrowser(secret, "pm_card_visa")
	}
	h.tell("the customer of %s does %d: %v", h.name(intent), does, err)
}

// dashboard is a person in Stripe's dashboard.
func (h *history) dashboard() {
	intents := h.atStripe()
	if len(intents) == 0 {
		return
	}
	intent := one(h, intents)
	var err error
	does := h.IntN(4)
	switch does {
	case 0:
		err = h.b.Sim.CancelInDashboard(intent.ID, "")
	case 1:
		err = h.b.Sim.CaptureInDashboard(intent.ID, 0)
	case 2:
		err = h.b.Sim.CaptureInDashboard(intent.ID, 400)
	default:
		err = h.refundInDashboard(intent.ID)
	}
	h.tell("the dashboard does %d with %s (%s): %v", does, h.name(intent.ID), intent.Status, err)
}

func (h *history) time() {
	h.pass([]time.Duration{20 * time.Minute, 2 * time.Hour, 13 * time.Hour, 26 * time.Hour}[h.IntN(4)])
}

func (h *history) pass(d time.Duration) {
	h.tell("%s pass", d)
	h.clock.pass(h.b.World, d)
	if h.backup != "" {
		h.since += d
	}
}

// fault breaks the next calls of a kind.
func (h *history) fault() {
	f := stripesim.Fault{
		Op:    one(h, []string{"intent.create", "intent.confirm", "intent.confirm", "intent.capture", "intent.cancel", "refund.create"}),
		Kind:  one(h, []string{stripesim.Drop, stripesim.Reset, stripesim.EffectStoredError, stripesim.StoredError}),
		Times: one(h, []int{1, 3}),
	}
	h.tell("Stripe breaks %s %d times: %s", f.Op, f.Times, f.Kind)
	h.b.Sim.Inject(f)
}

func (h *history) complete() {
	h.tell("the completer: %d", h.b.API.Complete())
}

func (h *history) reconcile() {
	h.tell("the reconciler")
	h.b.Reconcile()
	expires(h)  // part: checkouts
	disputed(h) // part: disputes
}

func one[T any](h *history, of []T) T { return of[h.IntN(len(of))] }
