package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

// secret is something that must not turn up, and where it may. What an answer
// may repeat to the very client who sent it is another matter: nothing, of these.
type secret struct {
	what  string
	is    string
	homes []string // table.column
}

// Numbers that a card could have (they pass Luhn's check), each sent on ways of its own.
const (
	cardInAMember   = "4242424242424242"
	cardAsAMethod   = "5555555555554444"
	cardInAnAddress = "6011111111111117"
	cardInAHeader   = "378282246310005"
	cardInAValue    = "4000056655665556"
)

// What a caller's key may be found in: the rows that are looked up by it. Stripe's
// webhooks name it too, and are dropped once they are applied.
var keyColumns = []string{
	"idempotency_keys.key", "payments.idempotency_key", "refunds.idempotency_key", "refunds.stripe_key", "checkouts.idempotency_key",
	"orders.canceling_key", "stripe_calls.stripe_key",
}

// A client secret leaves in next_action, to the customer's browser; so it is where
// payments are shown as they are, and nowhere in what is left of what Stripe tells us.
var clientSecretColumns = []string{"payments.next_action", "outbox_events.data", "webhook_deliveries.body"}

// TestNothingSensitiveIsKept sends card numbers, secrets and raw keys on every way
// there is into the service, valid and not, and then looks for them in all that it
// has said and kept: its log, its metrics, its traces, its answers, and every column
// of every table.
func TestNothingSensitiveIsKept(t *testing.T) {
	t.Parallel()
	w := testbed.New(t)
	var traces collector
	p := w.Process("LOG_LEVEL=debug", "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.start(t))
	_, err := w.Sim.AddWebhookEndpoint(stripesim.DefaultKey, p.Base+"/v1/webhooks/stripe", testbed.WebhookSecret)
	require.NoError(t, err)

	said := &strings.Builder{}
	say := func(a testbed.Answer) testbed.Answer {
		if a.Status >= 400 { // an object shows to its owner what it was made of
			_, _ = fmt.Fprintf(said, "%v %s\n", a.Header, a.Body)
		}
		return a
	}
	everyWayThatWorks(t, w, p, say)
	everyWayThatDoesNot(w, p, say)

	testbed.Eventually(t, time.Minute, "all webhooks and events are applied", func() bool {
		return w.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`)+w.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0
	})
	metrics := fetch(t, p.Admin+"/metrics")
	cmdline := fetch(t, p.Admin+"/debug/pprof/cmdline")
	pages := fetch(t, p.Admin+"/operator")
	for _, order := range strings.Fields(w.Text(`SELECT string_agg(id, ' ') FROM orders`)) {
		pages += fetch(t, p.Admin+"/operator/objects/"+w.Tenant.ID+"/"+order)
	}
	require.Contains(t, pages, "key_hash", "the pages were read")
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait(20*time.Second))

	database, err := url.Parse(w.URL)
	require.NoError(t, err)
	password, _ := database.User.Password()
	secrets := []secret{
		{"a caller's key", "raw-key-of-", keyColumns},
		{"a client secret", "_secret_", clientSecretColumns},
		{"a tenant's API key", w.Tenant.APIKey, nil},
		{"somebody's Stripe key", "sk_live_sent_by_mistake", nil},
		{"our Stripe key", stripesim.DefaultKey, nil},
		{"the webhooks' secret", testbed.WebhookSecret, nil},
		{"a card number in an unknown member", cardInAMember, nil},
		{"a card number as payment method", cardAsAMethod, nil},
		{"a card number in an address", cardInAnAddress, nil},
		{"a card number in a header", cardInAHeader, nil},
		{"a card number in a value of the wrong type", cardInAValue, nil},
	}
	if password != "" {
		secrets = append(secrets, secret{"the database's password", password, nil})
	}
	kept := everyColumn(t, w)
	require.Greater(t, len(kept), 100, "the columns were not found")
	require.Contains(t, traces.received(), "stripe confirm", "the traces were not found")
	var found []string
	for _, s := range secrets {
		for where, text := range map[string]string{"the log": p.Log(), "the metrics": metrics, "the operator's page": pages, "the command line": cmdline, "the traces": traces.received(), "an answer": said.String()} {
			if i := strings.Index(text, s.is); i >= 0 {
				found = append(found, fmt.Sprintf("%s is in %s: …%s…", s.what, where, text[max(0, i-120):min(len(text), i+60)]))
			}
		}
		for _, column := range slices.Sorted(maps.Keys(kept)) {
			if strings.Contains(kept[column], s.is) && !slices.Contains(s.homes, column) {
				found = append(found, fmt.Sprintf("%s is in %s", s.what, column))
			}
		}
	}
	require.Empty(t, found)
	for _, s := range secrets[:2] { // or else nothing was looked for
		require.True(t, slices.ContainsFunc(s.homes, func(column string) bool { return strings.Contains(kept[column], s.is) }), "%s is nowhere at all", s.what)
	}
	require.Empty(t, w.Text(`SELECT string_agg(id, ' ') FROM payments WHERE status NOT IN ('processing', 'requires_action') AND next_action IS NOT NULL`), "a client secret outlives its use")
}

func everyWayThatWorks(t *testing.T, w *testbed.World, p *testbed.Process, say func(testbed.Answer) testbed.Answer) {
	t.Helper()
	paid := p.Order()
	payment := p.Pay("raw-key-of-payment", paid, "pm_card_visa")
	require.Equal(t, http.StatusCreated, payment.Status, payment)
	p.Pay("raw-key-of-payment", paid, "pm_card_visa")
	say(p.Pay("raw-key-of-payment", paid, "pm_card_mastercard"))
	say(p.Pay("raw-key-of-another", paid, "pm_card_visa"))
	require.Equal(t, http.StatusPaymentRequired, say(p.Pay("raw-key-of-decline", p.Order(), "pm_card_chargeDeclined")).Status)
	say(p.Pay("raw-key-of-no-method", p.Order(), "pm_there_is_none"))
	require.Equal(t, http.StatusCreated, p.Post("/v1/payments/"+payment.ID()+"/refunds", "raw-key-of-refund", `{"amount":100}`).Status)

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
	for key, card := range map[string]string{"raw-key-of-checkout": "pm_card_visa", "raw-key-of-failed-checkout": "pm_card_chargeDeclined"} {
		say(p.Post("/v1/checkouts", key, `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"`+card+`"}`))
	}
	p.Get("/v1/events?limit=100")
}

func everyWayThatDoesNot(w *testbed.World, p *testbed.Process, say func(testbed.Answer) testbed.Answer) {
	order := p.Order()
	for n, path := range []string{"/v1/orders", "/v1/payments", "/v1/checkouts", "/v1/orders/" + order + "/cancel", "/v1/payments/" + order + "/refunds"} {
		key := fmt.Sprintf("raw-key-of-mistake-%d", n)
		for _, body := range []string{
			`{"card":{"number":"` + cardInAMember + `","cvc":"123"}}`,
			`{"number":` + cardInAMember + `}`,
			`{"order_id":` + cardInAValue + `,"payment_method":` + cardInAValue + `,"currency":` + cardInAValue + `,"amount":"` + cardInAValue + `","items":"` + cardInAValue + `"}`,
			`{"currency":"` + cardInAValue + `","items":[{"sku":"tea","quantity":1,"unit_amount":` + cardInAValue + `}]}`,
			cardInAMember, `"` + cardInAMember, `{"a":"` + cardInAMember + `"`, `{"a":1}` + cardInAMember,
		} {
			say(p.Post(path, key, body))
		}
		p.Post(path, key, `{"`+cardInAMember+`":1}`) // its answer points at the member by its name, as it must
		say(p.Do("POST", path, "{}", `Idempotency-Key: "`+cardInAHeader))
		say(p.Do("POST", path, "{}", "Idempotency-Key: "+cardInAHeader, "Idempotency-Key: raw-key-of-two"))
		say(p.Do("POST", path, "{}", "Idempotency-Key: raw-key-of-type", "Content-Type: "+cardInAHeader))
		for _, authorization := range []string{"Bearer sk_live_sent_by_mistake", "Basic " + cardInAHeader, w.Tenant.APIKey, "Bearer " + w.Tenant.APIKey + "x", "Bearer payonce_sk_live_sent_by_mistake_x"} {
			say(p.Do("POST", path, "{}", "Idempotency-Key: raw-key-of-stranger", "Authorization: "+authorization, "Prefer: wait="+cardInAHeader, "Traceparent: "+cardInAHeader))
			say(p.Do("POST", path, "{}", "Idempotency-Key: raw-key-of-traced", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate: card="+cardInAHeader, "Baggage: card="+cardInAHeader))
		}
	}
	say(p.Pay("raw-key-of-card", order, cardAsAMethod))
	say(p.Post("/v1/checkouts", "raw-key-of-card-checkout", `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"`+cardAsAMethod+`"}`))
	for _, path := range []string{"/v1/orders/", "/v1/payments/", "/v1/refunds/", "/v1/checkouts/", "/problems/", "/", "/v1/payments?order_id=", "/v1/orders?starting_after=", "/v1/events?after=", "/v1/orders?limit="} {
		say(p.Get(path + cardInAnAddress))
	}
	say(p.Post("/v1/payments/"+cardInAnAddress+"/cancel", "raw-key-of-address", ""))
	say(p.Do(cardInAnAddress, "/v1/orders", ""))
	for _, body := range []string{`{"id":"evt_1","client_secret":"pi_1_secret_1","card":"` + cardInAMember + `"}`, cardInAMember} {
		say(p.Do("POST", "/v1/webhooks/stripe", body, "Stripe-Signature: t=1,v1="+cardInAHeader))
		say(p.Do("POST", "/v1/webhooks/stripe", body, "Stripe-Signature: "+testbed.WebhookSecret))
	}
}

// everyColumn is the content of each column of each table, as text.
func everyColumn(t *testing.T, w *testbed.World) map[string]string {
	t.Helper()
	ctx := context.Background()
	rows, err := w.DB.Raw().Query(ctx, `SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'`)
	require.NoError(t, err)
	expressions := map[string]string{}
	for rows.Next() {
		var table, column, kind string
		require.NoError(t, rows.Scan(&table, &column, &kind))
		expression := fmt.Sprintf("%q::text", column)
		if kind == "bytea" {
			expression = fmt.Sprintf("encode(%q, 'escape')", column)
		}
		expressions[table+"."+column] = fmt.Sprintf(`SELECT coalesce(string_agg(%s, E'\n'), '') FROM %q`, expression, table)
	}
	require.NoError(t, rows.Err())
	kept := map[string]string{}
	for column, query := range expressions {
		var text string
		require.NoError(t, w.DB.Raw().QueryRow(ctx, query).Scan(&text), column)
		kept[column] = text
	}
	return kept
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
