package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/notifier"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// secret is something that must not turn up, and where it may. What an answer
// may repeat to the very client who sent it is another matter: nothing, of these.
type secret struct {
	what  string
	is    string
	homes []string // table.column
}

// Numbers that a card could have (they pass Luhn's check), each sent in different ways.
const (
	cardInAMember   = "4242424242424242"
	cardAsAMethod   = "5555555555554444"
	cardInAnAddress = "6011111111111117"
	cardInAHeader   = "378282246310005"
	cardInAValue    = "4000056655665556"
	cardInMetadata  = "5105105105105100" // and in a customer's reference, a SKU, a key
)

// What the operator and a tenant have set up.
const (
	operatorsToken   = "only-for-operators-0123456789abcdef"
	tenantsSecret    = "only-between-us-and-a-tenant-0001"
	passwordInAnURL  = "hunter2-of-a-tenant"
	payonceOperators = "Ada Lovelace"
)

// What a caller's key may be found in: the rows that are looked up by it.
var keyColumns = []string{
	"idempotency_keys.key", "payments.idempotency_key", "refunds.idempotency_key", "refunds.stripe_key",
	"checkouts.idempotency_key",
	"orders.canceling_key", "stripe_call_rows.stripe_key",
}

// A client secret leaves in next_action, to the customer's browser. It is encrypted in payments, and in no event, stored
// response, delivery, call or payload.
var clientSecretColumns []string

// TestNothingSensitiveIsKept sends card numbers, secrets and raw keys to every input of
// the service, valid and not, and then looks for them in all that it has written: its
// log, its metrics, its traces, its responses, the history of each key, the operator's
// pages, the webhooks to tenants, the broker's events, and every column of every table.
func TestNothingSensitiveIsKept(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	var traces collector
	p := w.Process(
		"LOG_LEVEL=debug", "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.start(t), "ADMIN_TOKEN="+operatorsToken,
		"NOTIFY_PRIVATE_ADDRESSES=true",
	)
	shop := newShopOfATenant(t)
	require.NoError(
		t,
		notifier.SetEndpoint(
			t.Context(),
			w.DB, w.Tenant.ID, shop.url+"/hooks?password="+passwordInAnURL,
			"whsec_"+base64.StdEncoding.EncodeToString([]byte(tenantsSecret)),
		),
	)
	_, err := w.Sim.AddWebhookEndpoint(stripesim.DefaultKey, p.Base+"/v1/webhooks/stripe", world.WebhookSecret)
	require.NoError(t, err)

	said, shown := &strings.Builder{}, []string{}
	say := func(a world.Answer) world.Answer {
		if a.Status >= 400 {
			_, _ = fmt.Fprintf(said, "%v %s\n", a.Header, a.Body)
		} else { // an object shows to its owner what it was made of, and is judged for the rest
			_, _ = fmt.Fprintf(said, "%v\n", a.Header)
			shown = append(shown, string(a.Body))
		}
		return a
	}
	everyWayThatWorks(t, w, p, say)
	everyWayThatDoesNot(w, p, say)
	unknown := somethingStuck(w, p)

	world.Eventually(t, time.Minute, "all webhooks and events are applied", func() bool {
		return w.Count(
			`SELECT count(*) FROM inbox_events WHERE status <> 'done'`,
		)+w.Count(
			`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`,
		) == 0
	})
	world.Eventually(t, time.Minute, "every webhook to the tenant was delivered or has failed", func() bool {
		return w.Count(`SELECT count(*) FROM webhook_deliveries WHERE status = 'pending' AND attempts = 0`) == 0
	})
	require.Positive(
		t,
		w.Count(`SELECT count(*) FROM webhook_deliveries WHERE last_error IS NOT NULL`),
		"nothing went wrong on the way to the tenant",
	)
	for _, key := range strings.Fields(w.Text(`SELECT string_agg(key, ' ') FROM idempotency_keys WHERE key LIKE
		'raw-key-of-%'`)) {
		say(p.Get("/v1/idempotency-keys/" + url.PathEscape(key)))
	}
	say(p.Get("/v1/events?limit=100"))
	say(p.Get("/v1/payments?limit=100"))
	metrics := fetch(t, p.Admin+"/metrics")
	cmdline := fetch(t, strings.Replace(p.Admin, "://", "://operator:"+operatorsToken+"@", 1)+"/debug/pprof/cmdline")
	pages := everyPage(t, w, p, unknown)
	docs := fetch(
		t, p.Base+"/docs",
	) + fetch(
		t, p.Base+"/docs/idempotency",
	) + fetch(
		t, p.Base+"/openapi.json",
	) + fetch(
		t, p.Base+"/problems/payment-declined",
	)
	docs = strings.ReplaceAll(docs, "_secret_example", "") // what its examples show
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait(20*time.Second))

	database, err := url.Parse(w.URL)
	require.NoError(t, err)
	password, _ := database.User.Password()
	secrets := []secret{
		{"a caller's key", "raw-key-of-", keyColumns},
		{"a client secret", "_secret_", clientSecretColumns},
		{"a tenant's API key", w.Tenant.APIKey, nil},
		{"another account's Stripe key", "sk_live_sent_by_mistake", nil},
		{"our Stripe key", stripesim.DefaultKey, nil},
		{"the webhooks' secret", world.WebhookSecret, nil},
		{"a card number in an unknown member", cardInAMember, nil},
		{"a card number as payment method", cardAsAMethod, nil},
		{"a card number in an address", cardInAnAddress, nil},
		{"a card number in a header", cardInAHeader, nil},
		{"a card number in a value of the wrong type", cardInAValue, nil},
		{"a card number in metadata", cardInMetadata, nil},
		{"the operators' token", operatorsToken, nil},
		{"a tenant's webhook secret", tenantsSecret, nil},
		{"a tenant's fingerprint secret", world.FingerprintSecret, nil},
		{"the data key", world.DataKey, nil},
		{"a tenant's webhook secret, encoded", base64.StdEncoding.EncodeToString([]byte(tenantsSecret)), nil},
		{"a password in a tenant's URL", passwordInAnURL, []string{"webhook_endpoints.url"}},
	}
	if password != "" {
		secrets = append(secrets, secret{"the database's password", password, nil})
	}
	kept := w.Columns()
	for _, column := range []string{
		"idempotency_keys.request", "idempotency_keys.answer_body", "tenants.fingerprint_secret", "webhook_secrets.secret",
	} {
		table, name, _ := strings.Cut(column, ".")
		require.Zero(t, w.Count("SELECT count(*) FROM "+table+" WHERE sealed_by("+name+") = ''"), "%s is not sealed", column)
		require.Positive(t, w.Count("SELECT count("+name+") FROM "+table), "%s is empty", column)
	}
	for _, a := range shown { // what is stored under a key is nowhere as it was sent
		require.False(t, len(a) > 2 && strings.Contains(kept["idempotency_keys.answer_body"], a))
	}
	require.Greater(t, len(kept), 100, "the columns were not found")
	require.Contains(t, traces.received(), "stripe confirm", "the traces were not found")
	var found []string
	for _, s := range secrets {
		for where, text := range map[string]string{
			"the log": p.Log(), "the metrics": metrics, "the operator's page": pages, "the command line": cmdline,
			"the traces": traces.received(), "an answer": said.String(),
			"the documentation": docs, "the headers of a webhook": shop.headers(),
		} {
			if i := strings.Index(text, s.is); i >= 0 {
				found = append(
					found,
					fmt.Sprintf("%s is in %s: …%s…", s.what, where, text[max(0, i-120):min(len(text), i+60)]),
				)
			}
		}
		for _, column := range slices.Sorted(maps.Keys(kept)) {
			if strings.Contains(kept[column], s.is) && !slices.Contains(s.homes, column) {
				found = append(found, fmt.Sprintf("%s is in %s", s.what, column))
			}
		}
	}
	// Of what is said, only a response to the tenant that created the payment has a client secret, in next_action.
	told := shop.bodies()
	require.NotEmpty(t, told)
	events := lines(w.Text(`SELECT string_agg(convert_from(data, 'UTF8'), E'\n') FROM outbox_events`))
	inNextAction := 0
	for where, bodies := range map[string][]string{
		"an answer": shown, "a webhook to the tenant": told, "an event": events,
	} {
		for _, body := range bodies {
			outside, inside := clientSecrets(body)
			if where != "an answer" && inside > 0 {
				outside = append(outside, "next_action")
			}
			inNextAction += inside
			for _, member := range outside {
				found = append(found, fmt.Sprintf("a client secret is in %s at %s", where, member))
			}
			for _, s := range secrets {
				if s.is != "raw-key-of-" && s.is != "_secret_" && strings.Contains(body, s.is) {
					found = append(found, fmt.Sprintf("%s is in %s: %s", s.what, where, body))
				}
			}
		}
	}
	require.Empty(t, found)
	require.Greater(t, inNextAction, 2, "no client secret was where it belongs, so none was looked for")
	for _, body := range told {
		require.NotContains(t, body, "raw-key-of-", "a caller's key is no one else's")
	}
	for _, s := range secrets[:1] { // or else nothing was looked for
		require.True(
			t,
			slices.ContainsFunc(s.homes, func(column string) bool { return strings.Contains(kept[column], s.is) }),
			"%s is nowhere at all", s.what,
		)
	}
	require.Empty(
		t,
		w.Text(
			`SELECT string_agg(id, ' ') FROM payments WHERE status NOT IN ('processing', 'requires_action') AND
				next_action IS NOT NULL`,
		),
		"a client secret outlives its use",
	)
}

// clientSecrets finds those of a JSON text: where they are outside of a next_action,
// and how many are in one.
func clientSecrets(body string) (outside []string, inside int) {
	var v any
	if json.Unmarshal([]byte(body), &v) != nil {
		if strings.Contains(body, "_secret_") {
			outside = append(outside, "a text that is no JSON")
		}
		return outside, 0
	}
	var walk func(at string, allowed bool, v any)
	walk = func(at string, allowed bool, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				walk(at+"/"+name, allowed || name == "next_action", member)
			}
		case []any:
			for _, member := range v {
				walk(at+"/-", allowed, member)
			}
		case string:
			if strings.Contains(v, "_secret_") {
				if allowed {
					inside++
				} else {
					outside = append(outside, at)
				}
			}
		}
	}
	walk("", false, v)
	return outside, inside
}

func lines(text string) []string { return strings.Split(text, "\n") }

// shopOfATenant takes a tenant's webhooks in, and refuses some.
type shopOfATenant struct {
	url  string
	mu   sync.Mutex
	got  []string
	head strings.Builder
	seen int
}

func newShopOfATenant(t *testing.T) *shopOfATenant {
	t.Helper()
	s := &shopOfATenant{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = fmt.Fprintln(&s.head, r.Header)
		s.got = append(s.got, string(body))
		s.seen++
		switch s.seen % 4 {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // cut: the error names where it was sent to
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *shopOfATenant) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *shopOfATenant) headers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.String()
}

// somethingStuck leaves a payment unknown, so that the pages show one. It returns
// its order.
func somethingStuck(w *world.World, p *world.Process) string {
	order := p.Order()
	w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, OrderID: order, Times: -1})
	p.Pay("raw-key-of-something-stuck", order, "pm_card_visa")
	return order
}

// everyPage is all that the operator's page shows to an operator who is signed in and has
// carried out an action.
func everyPage(t *testing.T, w *world.World, p *world.Process, stuck string) (pages string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	read := func(res *http.Response, err error) string {
		t.Helper()
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		text := fmt.Sprintln(res.Header) + res.Request.URL.String() + string(body)
		pages += text
		return text
	}
	field := func(page, name string) string {
		_, rest, _ := strings.Cut(page, `name="`+name+`" value="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	read(
		client.PostForm(
			p.Admin+"/operator/login", url.Values{"actor": {payonceOperators}, "token": {operatorsToken + "x"}},
		),
	)
	overview := read(
		client.PostForm(p.Admin+"/operator/login", url.Values{"actor": {payonceOperators}, "token": {operatorsToken}}),
	)
	csrf := field(overview, "csrf")
	require.NotEmpty(t, csrf, "signing in failed")
	for _, order := range strings.Fields(w.Text(`SELECT string_agg(id, ' ') FROM orders`)) {
		read(client.Get(p.Admin + "/operator/objects/" + w.Tenant.ID + "/" + order))
	}
	for _, intent := range strings.Fields(w.Text(`SELECT string_agg(intent_id, ' ') FROM payments`)) {
		read(client.Get(p.Admin + "/operator/intents/" + intent))
	}
	require.Contains(
		t,
		read(client.Get(p.Admin+"/operator/objects/"+w.Tenant.ID+"/"+stuck)),
		"Hash of the key", "the pages were read",
	)
	for _, key := range strings.Fields(w.Text(`SELECT string_agg(key, ' ') FROM idempotency_keys WHERE key LIKE
		'raw-key-of-%'`)) {
		read(client.PostForm(p.Admin+"/operator/find", url.Values{"csrf": {csrf}, "what": {key}}))
	}
	for _, nothing := range []string{cardInAnAddress, "sk_live_sent_by_mistake", "raw-key-never-used"} {
		read(client.PostForm(p.Admin+"/operator/find", url.Values{"csrf": {csrf}, "what": {nothing}}))
	}
	payment := w.Text(`SELECT id FROM payments WHERE status = 'succeeded' AND amount_refunding_minor = 0 LIMIT 1`)
	form := read(client.Get(p.Admin + "/operator/act?kind=refund&id=" + payment + "&tenant=" + w.Tenant.ID))
	done := read(client.PostForm(p.Admin+"/operator/act", url.Values{
		"csrf": {
			csrf,
		}, "kind": {"refund"}, "id": {payment}, "tenant": {w.Tenant.ID}, "action": {field(form, "action")},
		"reason": {"the customer called"},
	}))
	require.Contains(t, done, "Done.")
	read(client.Get(p.Admin + "/operator/actions"))
	read(client.PostForm(p.Admin+"/operator/invariants", url.Values{"csrf": {csrf}}))
	read(client.Get(p.Admin + "/operator"))
	require.Contains(t, pages, payonceOperators)
	return pages
}

func everyWayThatWorks(t *testing.T, w *world.World, p *world.Process, say func(world.Answer) world.Answer) {
	t.Helper()
	paid := p.Order()
	payment := p.Pay("raw-key-of-payment", paid, "pm_card_visa")
	require.Equal(t, http.StatusCreated, payment.Status, payment)
	p.Pay("raw-key-of-payment", paid, "pm_card_visa")
	say(p.Pay("raw-key-of-payment", paid, "pm_card_mastercard"))
	say(p.Pay("raw-key-of-another", paid, "pm_card_visa"))
	require.Equal(
		t, http.StatusPaymentRequired, say(p.Pay("raw-key-of-decline", p.Order(), "pm_card_chargeDeclined")).Status,
	)
	say(p.Pay("raw-key-of-no-method", p.Order(), "pm_there_is_none"))
	require.Equal(
		t, http.StatusCreated,
		p.Post("/v1/payments/"+payment.ID()+"/refunds", "raw-key-of-refund", `{"amount":100}`).Status,
	)

	waits := p.Pay("raw-key-of-3ds", p.Order(), "pm_card_threeDSecure2Required")
	require.NotEmpty(t, waits.Get("next_action", "client_secret"), waits)
	canceled := p.Pay("raw-key-of-3ds-canceled", p.Order(), "pm_card_threeDSecure2Required")
	require.Equal(t, http.StatusOK, p.Post("/v1/payments/"+canceled.ID()+"/cancel", "raw-key-of-cancel", "").Status)
	require.Equal(t, http.StatusOK, p.Post("/v1/orders/"+p.Order()+"/cancel", "raw-key-of-order-cancel", "").Status)

	for _, f := range []stripesim.Fault{
		{Op: "intent.confirm", Kind: stripesim.Cut, Bytes: 900}, // a good part of the intent, its client secret too
		{Op: "intent.confirm", Kind: stripesim.InvalidJSON},
		{Op: "intent.confirm", Kind: stripesim.EffectStoredError},
		{Op: "intent.create", Kind: stripesim.Unauthorized},
	} {
		w.Sim.Inject(f)
		order, key := p.Order(), "raw-key-of-"+string(f.Kind)
		say(p.Pay(key, order, "pm_card_visa"))
		p.PayUntilFinal(key, order, "pm_card_visa")
	}
	require.Equal(t, http.StatusOK, p.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
	for key, card := range map[string]string{"raw-key-of-checkout": "pm_card_visa",
		"raw-key-of-failed-checkout": "pm_card_chargeDeclined"} {
		say(
			p.Post(
				"/v1/checkouts", key,
				`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"`+card+`"}`,
			),
		)
	}
	order := p.Order()
	say(p.Pay("raw-key-of-shown", order, "pm_card_threeDSecure2Required"))
	say(p.Get("/v1/orders/" + order))
	say(p.Get("/v1/payments?order_id=" + order))
}

func everyWayThatDoesNot(w *world.World, p *world.Process, say func(world.Answer) world.Answer) {
	order := p.Order()
	for n, path := range []string{"/v1/orders", "/v1/payments", "/v1/checkouts", "/v1/orders/" + order + "/cancel",
		"/v1/payments/" + order + "/refunds"} {
		key := fmt.Sprintf("raw-key-of-mistake-%d", n)
		for _, body := range []string{
			`{"card":{"number":"` + cardInAMember + `","cvc":"123"}}`,
			`{"number":` + cardInAMember + `}`,
			`{"order_id":` + cardInAValue + `,"payment_method":` + cardInAValue + `,"currency":` + cardInAValue +
				`,"amount":"` + cardInAValue + `","items":"` + cardInAValue + `"}`,
			`{"currency":"` + cardInAValue + `","items":[{"sku":"tea","quantity":1,"unit_amount":` + cardInAValue +
				`}]}`,
			cardInAMember, `"` + cardInAMember, `{"a":"` + cardInAMember + `"`, `{"a":1}` + cardInAMember,
		} {
			say(p.Post(path, key, body))
		}
		say(p.Post(path, key, `{"`+cardInAMember+`":1}`))
		say(p.Do("POST", path, "{}", `Idempotency-Key: "`+cardInAHeader))
		say(p.Do("POST", path, "{}", "Idempotency-Key: "+cardInAHeader, "Idempotency-Key: raw-key-of-two"))
		say(p.Do("POST", path, "{}", "Idempotency-Key: raw-key-of-type", "Content-Type: "+cardInAHeader))
		for _, authorization := range []string{"Bearer sk_live_sent_by_mistake", "Basic " + cardInAHeader,
			w.Tenant.APIKey, "Bearer " + w.Tenant.APIKey + "x", "Bearer payonce_sk_live_sent_by_mistake_x"} {
			say(
				p.Do(
					"POST", path, "{}", "Idempotency-Key: raw-key-of-stranger", "Authorization: "+authorization,
					"Prefer: wait="+cardInAHeader, "Traceparent: "+cardInAHeader,
				),
			)
			say(
				p.Do(
					"POST", path, "{}", "Idempotency-Key: raw-key-of-traced",
					"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
					"Tracestate: card="+cardInAHeader, "Baggage: card="+cardInAHeader,
				),
			)
		}
	}
	for n, members := range []string{
		`"items":[{"sku":"tea","quantity":1,"unit_amount":500}],"customer_reference":"` + cardInMetadata + `"`,
		`"items":[{"sku":"tea","quantity":1,"unit_amount":500}],"metadata":{"note":"card ` + cardInMetadata + `"}`,
		`"items":[{"sku":"tea","quantity":1,"unit_amount":500}],"metadata":{"` + cardInMetadata + `":"note"}`,
		`"items":[{"sku":"` + cardInMetadata + `","quantity":1,"unit_amount":500}]`,
	} {
		say(p.Post("/v1/orders", fmt.Sprintf("raw-key-of-text-%d", n), `{"currency":"usd",`+members+`}`))
	}
	say(p.Do("PUT", "/v1/stock/"+cardInMetadata, `{"available":10}`))
	say(p.Get("/v1/stock/" + cardInMetadata))
	say(p.Get("/v1/idempotency-keys/" + cardInMetadata))
	say(p.Post("/v1/orders", cardInMetadata, `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}]}`))
	say(p.Pay("raw-key-of-card", order, cardAsAMethod))
	say(p.Pay("raw-key-of-card-in-an-id", order, "pm_"+cardAsAMethod))
	say(
		p.Post(
			"/v1/checkouts", "raw-key-of-card-checkout",
			`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"`+cardAsAMethod+`"}`,
		),
	)
	for _, path := range []string{"/v1/orders/", "/v1/payments/", "/v1/refunds/", "/v1/checkouts/", "/problems/", "/",
		"/v1/payments?order_id=", "/v1/orders?starting_after=", "/v1/events?after=", "/v1/orders?limit="} {
		say(p.Get(path + cardInAnAddress))
	}
	say(p.Post("/v1/payments/"+cardInAnAddress+"/cancel", "raw-key-of-address", ""))
	say(p.Do(cardInAnAddress, "/v1/orders", ""))
	for _, body := range []string{`{"id":"evt_1","client_secret":"pi_1_secret_1","card":"` + cardInAMember + `"}`,
		cardInAMember} {
		say(p.Do("POST", "/v1/webhooks/stripe", body, "Stripe-Signature: t=1,v1="+cardInAHeader))
		say(p.Do("POST", "/v1/webhooks/stripe", body, "Stripe-Signature: "+world.WebhookSecret))
	}
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}
