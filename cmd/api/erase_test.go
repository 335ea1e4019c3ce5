package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// customer is one of a tenant's, and what must be found of it nowhere, or everywhere.
type customer struct {
	word      string // that each of its keys begins with
	reference string
	street    string // in metadata
}

func (c customer) orderBody() string {
	return fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],
		"customer_reference":%q,"metadata":{"street":%q}}`, c.reference, c.street)
}

// part: checkouts {
func (c customer) checkoutBody(sku, method string) string {
	return fmt.Sprintf(`{"currency":"usd","items":[{"sku":%q,"quantity":1,"unit_amount":500}],"payment_method":%q,
		"customer_reference":%q}`, sku, method, c.reference)
}

// part: checkouts }

// texts are the customer's texts as a search may meet them.
func (c customer) texts() []string {
	return []string{
		c.reference, c.street, hex.EncodeToString([]byte(c.reference)), hex.EncodeToString([]byte(c.street)),
	}
}

// TestEraseCustomer: of a customer who was erased with the real program nothing is found in any column of any table, of
// the tenant's other customer and of the same customer of another tenant everything; money, keys and the feed are as
// they were.
func TestEraseCustomer(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	// The reconciler may look between a charge and its row, and notes a discrepancy, with which no customer is erased.
	w.Exec(`INSERT INTO reconciliation_windows (name, next_at)
		VALUES ('recent', 'infinity'), ('days', 'infinity'), ('month', 'infinity')`)
	// What is stored is searched, so it is not encrypted.
	p := w.Process(
		"LOG_LEVEL=debug", "DATA_KEY=none,"+world.DataKey,
		"NOTIFY_PRIVATE_ADDRESSES=true", // part: webhooks
	)
	_, err := w.Sim.AddWebhookEndpoint(stripesim.DefaultKey, p.Base+"/v1/webhooks/stripe", world.WebhookSecret)
	require.NoError(t, err)
	// part: webhooks {
	var away atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	_, errs, notified := typed(w, []string{"tenant", "notify", w.Tenant.ID, endpoint.URL}, "NOTIFY_PRIVATE_ADDRESSES=true")
	require.Zero(t, notified, errs)
	// part: webhooks }
	erased := customer{"erika", "Erika Mustermann <erika@erased.example>", "Lindenallee 7"}
	kept := customer{"otto", "Otto Normal <otto@kept.example>", "Ulmenweg 8"}
	require.Equal(t, http.StatusOK, p.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status) // part: checkouts

	type sent struct {
		path, body string
		answer     world.Answer
	}
	requests := map[string]sent{} // by key
	orders := map[string][]string{}
	for _, c := range []customer{erased, kept} {
		post := func(name string, status int, path, body string) world.Answer {
			key := c.word + "-" + name
			a := p.Post(path, key, body)
			require.Equal(t, status, a.Status, a)
			requests[key] = sent{path, body, a}
			return a
		}
		order := func(name string) string { return post(name, http.StatusCreated, "/v1/orders", c.orderBody()).ID() }
		paid, canceled, open := order("order-1"), order("order-2"), order("order-3")
		orders[c.word] = []string{paid, canceled, open}
		post("declined", http.StatusPaymentRequired, "/v1/payments", world.PayBody(paid, "pm_card_chargeDeclined"))
		payment := post("pays", http.StatusCreated, "/v1/payments", world.PayBody(paid, "pm_card_visa")).ID()
		post("refund", http.StatusCreated, "/v1/payments/"+payment+"/refunds", `{"amount":300}`)
		post("cancel", http.StatusOK, "/v1/orders/"+canceled+"/cancel", "")
		post("canceled", http.StatusOK, "/v1/orders/"+canceled+"/cancel", "")
		// part: checkouts {
		post("bought", http.StatusCreated, "/v1/checkouts", c.checkoutBody("tea", "pm_card_visa"))
		post("refused", http.StatusPaymentRequired, "/v1/checkouts", c.checkoutBody("tea", "pm_card_chargeDeclined"))
		post("sold-out", http.StatusConflict, "/v1/checkouts", c.checkoutBody("none", "pm_card_visa"))
		orders[c.word] = append(orders[c.word], strings.Fields(w.Text(`SELECT string_agg(order_id, ' ') FROM checkouts
			WHERE starts_with(idempotency_key, $1)`, c.word))...)
		// part: checkouts }
	}
	elsewhere := p.As(w.NewTenant())
	a := elsewhere.Post("/v1/orders", "elsewhere", fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":1,
		"unit_amount":700}],"customer_reference":%q}`, erased.reference))
	require.Equal(t, http.StatusCreated, a.Status, a)
	charged := w.Sim.ChargeCount("")

	// A payment waits for the customer, so nothing is erased.
	waits := p.Post("/v1/orders", "erika-order-4", erased.orderBody()).ID()
	waiting := p.Pay("erika-waits", waits, "pm_card_threeDSecure2Required").ID()
	status, done, said := eraseCustomer(t, w, w.Tenant.ID, erased.reference)
	require.EqualValues(t, eraseUnfinished, status)
	require.Empty(t, done)
	require.Contains(t, said, "api: 0 orders were erased")
	require.Contains(t, said, waiting+" is being worked on")
	require.NotContains(t, said, erased.reference)
	require.NotZero(t, w.Count(`SELECT count(*) FROM orders WHERE customer_reference = $1 AND tenant_id = $2`,
		erased.reference, w.Tenant.ID))
	require.Zero(t, w.Count(`SELECT count(*) FROM erasures`))
	require.Equal(t, http.StatusOK, p.Post("/v1/payments/"+waiting+"/cancel", "erika-cancels", "").Status)
	orders["erika"] = append(orders["erika"], waits)
	away.Store(true)                                                                             // part: webhooks
	require.Equal(t, http.StatusOK, p.Post("/v1/orders/"+waits+"/cancel", "erika-4", "").Status) // its event is pending
	open := []string{
		`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`,
		`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`,
		`SELECT count(*) FROM inbox_events WHERE status <> 'done'`,
		// part: webhooks {
		`SELECT count(*) FROM outbox_events e WHERE NOT EXISTS (SELECT FROM inbox_events i
			WHERE i.consumer = 'notifier' AND i.event_id = e.aggregate_id || '-' || e.version)`,
		`SELECT count(*) FROM webhook_deliveries WHERE attempts = 0`,
		// part: webhooks }
	}
	w.Until("everything is finished", func() bool {
		return !slices.ContainsFunc(open, func(query string) bool { return w.Count(query) > 0 })
	})
	require.NotZero(t, w.Count(`SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'`)) // part: webhooks
	before := w.Columns()
	feed := feedOf(t, p) // part: events
	homes := columnsWith(before, erased.texts())
	require.Subset(t, homes, []string{
		"idempotency_keys.answer_body", "idempotency_keys.request", "orders.customer_reference", "orders.metadata",
		"outbox_events.data",
		"webhook_deliveries.body", // part: webhooks
	}, "it is looked for where it is")

	status, done, said = eraseCustomer(t, w, w.Tenant.ID, "-by", "Ada", erased.reference)
	require.Equal(t, exitOK, status, said)
	require.EqualValues(t, len(orders["erika"]), done["orders"], done)
	require.EqualValues(t, w.Count(`SELECT count(*) FROM outbox_events WHERE aggregate_id = ANY($1)`, orders["erika"]),
		done["events"])
	require.EqualValues(t, len(requests)/2+4, done["keys"], "and those of the order whose payment waited")
	require.EqualValues(t, done["events"], done["deliveries"]) // part: webhooks

	after := w.Columns()
	require.Equal(t, []string{"orders.customer_reference"}, slices.DeleteFunc(columnsWith(after, erased.texts()),
		func(column string) bool { return !strings.HasPrefix(column, "orders.") }), "the other tenant's")
	require.Equal(t, columnsWith(before, kept.texts()), columnsWith(after, kept.texts()))
	for _, column := range columnsWith(before, kept.texts()) {
		for _, text := range kept.texts() {
			require.Equal(t, strings.Count(before[column], text), strings.Count(after[column], text), column)
		}
	}
	p.RequireNotLogged(erased.reference)
	p.RequireNotLogged(erased.street)
	for _, column := range columnsWith(after, erased.texts()) {
		table, name, _ := strings.Cut(column, ".")
		require.Zero(t, w.Count(fmt.Sprintf(`SELECT count(*) FROM %s WHERE tenant_id = $1
			AND (strpos(%s::text, $2) + strpos(%[2]s::text, $3)) > 0`, table, name), w.Tenant.ID, erased.reference,
			hex.EncodeToString([]byte(erased.reference))), column)
	}

	// The orders are there, without the customer.
	for _, order := range orders["erika"] {
		a := p.Get("/v1/orders/" + order)
		require.Equal(t, http.StatusOK, a.Status, a)
		require.Nil(t, a.Get("customer_reference"))
		require.Equal(t, map[string]any{}, a.Get("metadata"))
		require.NotZero(t, a.Get("amount"))
	}
	require.Equal(t, "partially_refunded", p.Get("/v1/orders/"+orders["erika"][0]).Get("status"))
	// part: events {
	blank := feedOf(t, p)
	require.Len(t, blank, len(feed))
	for i, e := range blank {
		data, was := e["data"].(map[string]any), feed[i]["data"].(map[string]any)
		if slices.Contains(orders["erika"], e["subject"].(string)) {
			require.Nil(t, data["customer_reference"])
			require.Equal(t, map[string]any{}, data["metadata"])
			maps.DeleteFunc(was, func(name string, _ any) bool { return name == "customer_reference" || name == "metadata" })
			delete(data, "customer_reference")
			delete(data, "metadata")
		}
		require.Equal(t, feed[i], e, "all else of the feed is as it was")
	}
	// part: events }

	// Keys are not free again: those of the customer are tombstones, the others are replayed.
	for key, r := range requests {
		again := p.Post(r.path, key, r.body)
		if strings.HasPrefix(key, kept.word) {
			require.Equal(t, r.answer.Identity(), again.Identity(), key)
			require.True(t, again.Replayed(), key)
			continue
		}
		require.Equal(t, "idempotency-key-expired", again.Code(), "%s: %s", key, again)
		require.Equal(t, "expired", p.Get("/v1/idempotency-keys/"+key).Get("state"), key) // part: history
	}
	require.Equal(t, charged, w.Sim.ChargeCount(""), "nothing was charged again")

	// What is left can go on, and shows nothing of the customer.
	require.Equal(t, http.StatusCreated, p.Pay("erika-later", orders["erika"][2], "pm_card_visa").Status)
	w.Until("its event is published", func() bool {
		return w.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0
	})
	report, _, audited := typed(w, []string{"audit"})
	require.Zero(t, audited, report)

	// It is recorded, and may be run again.
	require.Equal(t, "payonce_service Ada", w.Text(`SELECT db_role || ' ' || actor FROM erasures WHERE tenant_id = $1`,
		w.Tenant.ID))
	status, again, said := eraseCustomer(t, w, w.Tenant.ID, erased.reference)
	require.Equal(t, exitOK, status, said)
	require.EqualValues(t, 0, again["orders"])
	require.Equal(t, done["erased_at"], again["erased_at"])
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM erasures`))
	for _, args := range [][]string{{}, {w.Tenant.ID}, {w.Tenant.ID, ""}, {w.Tenant.ID, "a", "b"}, {"-for", "x", "y"}} {
		status, _, _ = eraseCustomer(t, w, args...)
		require.Equal(t, exitUsage, status, args)
	}
}

// TestEraseCustomerExits: with a code for each reason, which the usage and the handbook list.
func TestEraseCustomerExits(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Local(world.LocalOptions{}).Post("/v1/orders", "k", customer{"k", "Ada", "Strand 1"}.orderBody()) // not published
	for _, c := range []struct {
		args []string
		env  string
		code int
		says string
	}{
		{args: []string{w.Tenant.ID, "Ada", "more"}, code: 2, says: `unexpected argument "more"`},
		{args: []string{w.Tenant.ID, "Ada", "-by"}, code: 2, says: "flag needs an argument: -by"},
		{args: []string{"ten_none", "Ada"}, code: 3, says: `api: there is no tenant "ten_none"`},
		{args: []string{w.Tenant.ID, "Eve"}, code: 4, says: "api: no order of the tenant has this customer_reference"},
		{args: []string{w.Tenant.ID, "Ada"}, code: 5, says: "is not published"},
		{args: []string{w.Tenant.ID, "Ada"}, env: "DATA_KEY=" + world.OtherDataKey, code: 1, says: "DATA_KEY has no key"},
		{args: []string{w.Tenant.ID, "Ada"}, env: "DATABASE_URL=", code: 1, says: "DATABASE_URL is required"},
	} {
		out, errs, status := typed(w, append([]string{"tenant", "erase-customer"}, c.args...), c.env)
		require.Equal(t, c.code, status, "%v\n%s", c.args, errs)
		require.Contains(t, errs, c.says)
		require.Empty(t, out)
		require.NotContains(t, errs, "Eve", "what a command prints is kept in logs")
	}
	require.Contains(t, usage(), "0 erased, 1 failed, 2 wrong usage, 3 no such tenant, 4 no such customer, 5 something is unfinished")
}

func eraseCustomer(t *testing.T, w *world.World, args ...string) (status int, out map[string]any, said string) {
	t.Helper()
	stdout, said, status := typed(w, append([]string{"tenant", "erase-customer"}, args...))
	if stdout != "" {
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	}
	return status, out, said
}

func columnsWith(columns map[string]string, texts []string) (found []string) {
	for column, text := range columns {
		if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(text, s) }) {
			found = append(found, column)
		}
	}
	slices.Sort(found)
	return found
}

// part: events {
func feedOf(t *testing.T, p *world.Process) (events []map[string]any) {
	t.Helper()
	for after := ""; ; {
		var page struct {
			Data    []map[string]any `json:"data"`
			HasMore bool             `json:"has_more"`
		}
		path := "/v1/events?limit=100"
		if after != "" {
			path += "&after=" + after
		}
		require.NoError(t, json.Unmarshal(p.Get(path).Body, &page))
		events = append(events, page.Data...)
		if !page.HasMore {
			return events
		}
		after = events[len(events)-1]["id"].(string)
	}
}

// part: events }
