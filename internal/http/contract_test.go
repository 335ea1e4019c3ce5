package http_test

import (
	"cmp" // part: docs
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/openapi"
	"example.com/payonce/testkit/world"
)

// TestContract provokes each documented response of each operation, and the validator in
// the client compares it with the document. A response that is added to the document must
// be provoked here, too.
func TestContract(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const newOrder = `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`
	// part: checkouts {
	const newCheckout = `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],` +
		`"payment_method":"pm_card_visa"}`
	// part: checkouts }

	t.Run("ReadOnlyKeyIsForbiddenToWrite", func(t *testing.T) {
		readOnly := "Bearer " + b.newKey(db.APIKeyCreateParams{ReadOnly: true})
		for _, op := range operations(t) {
			if op.item.Security == nil && op.method != http.MethodGet {
				a := b.send(op.method, strings.NewReplacer("{id}", "none", "{sku}", "tea").Replace(op.path), "{}",
					"Idempotency-Key", "k", "Authorization", readOnly)
				require.Equal(t, "forbidden", a.code(), op.path)
			}
		}
	})

	// Every POST refuses in the same ways before it looks at its key.
	t.Run("RefusedBeforeTheKey", func(t *testing.T) {
		order := b.order("refused-order")
		payment := b.pay("refused-payment", order, "pm_card_visa").id()
		for path, body := range map[string]string{
			"/v1/orders":                           newOrder,
			"/v1/orders/" + order + "/cancel":      `{}`,
			"/v1/payments":                         `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`,
			"/v1/payments/" + payment + "/cancel":  `{}`,
			"/v1/payments/" + payment + "/refunds": `{"amount":1}`,
			"/v1/payments/" + payment + "/capture": `{"amount":1}`,
			"/v1/checkouts":                        newCheckout, // part: checkouts
		} {
			refusedBeforeTheKey(t, b, path, strings.Replace(body, "tea", "cup", 1))
		}
		missing := "ord_00000000000000000000000000"
		require.Equal(t, "not-found", b.post("/v1/orders/"+missing+"/cancel", "k", "").code())
		require.Equal(t, "not-found", b.pay("k", missing, "pm_card_visa").code())
		require.Equal(t, "not-found", b.post("/v1/payments/pay_"+missing[4:]+"/cancel", "k", "").code())
		require.Equal(t, "not-found", b.post("/v1/payments/pay_"+missing[4:]+"/refunds", "k", "{}").code())
		require.Equal(t, "not-found", b.post("/v1/payments/pay_"+missing[4:]+"/capture", "k", "{}").code())
		require.Equal(t, "not-found", b.post("/v1/payments/nonsense/capture", "k", "").code())
	})

	t.Run("Reads", func(t *testing.T) {
		order := b.order("read-order")
		payment := b.pay("read-payment", order, "pm_card_visa").id()
		refund := b.post("/v1/payments/"+payment+"/refunds", "read-refund", `{"amount":100,"reason":"duplicate"}`).id()
		for _, path := range []string{"/v1/orders/" + order, "/v1/payments/" + payment, "/v1/refunds/" + refund} {
			require.Equal(t, http.StatusOK, b.get(path).status, path)
			wrong := b.send("GET", path, "", "Authorization", "Bearer wrong")
			require.Equal(t, "unauthenticated", wrong.code())
			require.Contains(t, wrong.body, "Bearer <key>", "readable in a log")
			require.Equal(t, "not-found", b.get(path[:len(path)-1]+"z").code())
			require.Equal(t, "method-not-allowed", b.send("DELETE", path, "").code())
		}
		for _, list := range []string{"/v1/orders?limit=1", "/v1/payments?order_id=" + order, "/v1/refunds?limit=1",
			"/v1/checkouts?limit=1", // part: checkouts
			"/v1/events?limit=2",    // part: events
		} {
			require.Equal(t, http.StatusOK, b.get(list).status, list)
			path, _, _ := strings.Cut(list, "?")
			require.Equal(t, "invalid-request", b.get(path+"?limit=0").code())
			require.Equal(t, "unauthenticated", b.send("GET", path, "", "Authorization", "Basic dGVhOnRlYQ==").code())
			for _, cursor := range []string{"starting_after", "after"} {
				if (path == "/v1/events") == (cursor == "after") {
					require.Equal(t, "invalid-request", b.get(path+"?"+cursor+"=nonsense").code())
				}
			}
		}
		for _, path := range []string{
			"/healthz", "/readyz",
			// part: docs {
			"/", "/openapi.json", "/docs", "/docs/idempotency", "/docs/retries", "/docs/test-cards", "/docs/assets/page.css",
			"/problems", "/problems/internal",
			// part: docs }
		} {
			require.Equal(t, http.StatusOK, b.send("GET", path, "", "Authorization", "").status, path)
		}
		// part: docs {
		require.Equal(t, http.StatusOK, b.send("GET", "/", "", "Accept", "application/json").status)
		require.Equal(t, "not-found", b.get("/problems/none").code())
		require.Equal(t, "not-found", b.get("/docs/assets/none").code())
		etag := b.get("/docs").header.Get("ETag")
		require.Equal(t, http.StatusNotModified, b.send("GET", "/docs", "", "If-None-Match", etag).status)
		// part: docs }
	})

	t.Run("Payments", func(t *testing.T) {
		order := b.order("order")
		declined := b.pay("declined", order, "pm_card_visa_chargeDeclinedInsufficientFunds")
		require.Equal(t, "payment-declined", declined.code())
		require.Equal(t, "insufficient_funds", declined.object["decline_code"])
		require.Equal(t, "payment-failed", b.pay("failed", order, "pm_nobody").code())

		waiting := b.pay("3ds", order, "pm_card_authenticationRequired")
		require.Equal(t, http.StatusAccepted, waiting.status)
		require.Equal(t, "payment-in-progress", b.pay("other", order, "pm_card_visa").code())
		require.Equal(t, http.StatusOK, b.post("/v1/payments/"+waiting.id()+"/cancel", "give-up", "").status)
		gaveUp := b.pay("3ds", order, "pm_card_authenticationRequired")
		require.Equal(t, "payment-failed", gaveUp.code())
		require.Empty(t, gaveUp.header.Get("Idempotent-Replayed"), "it is the first to be told")
		require.Equal(t, gaveUp.body, b.pay("3ds", order, "pm_card_authenticationRequired").body)

		paid := b.pay("paid", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.status, paid.body)
		replay := b.pay("paid", order, "pm_card_visa")
		require.Equal(t, paid.body, replay.body)
		require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
		require.Equal(t, "order-already-paid", b.pay("again", order, "pm_card_visa").code())
		require.Equal(t, "payment-not-cancelable", b.post("/v1/payments/"+paid.id()+"/cancel", "too-late", "{}").code())
		require.Equal(t, "order-not-cancelable", b.post("/v1/orders/"+order+"/cancel", "too-late-2", "").code())

		canceled := b.order("to-cancel")
		require.Equal(t, http.StatusOK, b.post("/v1/orders/"+canceled+"/cancel", "cancel", "").status)
		require.Equal(t, "order-not-payable", b.pay("pay-canceled", canceled, "pm_card_visa").code())
	})

	// part: docs {
	t.Run("TestCards", func(t *testing.T) {
		for i, card := range httpapi.TestCards {
			paid := b.pay(fmt.Sprint("card-", i), b.order(fmt.Sprint("card-order-", i)), card.Method)
			says := map[int]string{http.StatusCreated: "The payment succeeds", http.StatusAccepted: "202, requires_action",
				http.StatusPaymentRequired: "The issuer declines: 402"}[paid.status]
			require.True(t, says != "" && strings.Contains(card.Outcome, says), "%s: %d", card.Method, paid.status)
			if i := strings.Index(card.Outcome, "402, "); i > 0 && !strings.Contains(card.Outcome, "without a reason") {
				object, _ := paid.object["payment"].(map[string]any)
				failure, _ := object["failure"].(map[string]any)
				require.Contains(t, card.Outcome, cmp.Or(paid.object["decline_code"], failure["code"]), card.Method)
			}
		}
	})
	// part: docs }

	t.Run("Captures", func(t *testing.T) {
		order := b.order("capture-order")
		held := b.authorize("authorize", order)
		require.Equal(t, http.StatusCreated, held.status, held.body)
		require.Equal(t, "authorized", held.object["status"])
		require.Equal(t, "invalid-request", b.post("/v1/payments", "k",
			`{"order_id":"`+order+`","payment_method":"pm_card_visa","capture":"later"}`).code())
		path := "/v1/payments/" + held.id() + "/capture"
		for _, body := range []string{`{"amount":0}`, `{"amount":-1}`, `{"amount":"1"}`, `{"amount":100000000}`, `[]`,
			`{"amount":1,"amount":2}`, `{"reason":"duplicate"}`} {
			require.Equal(t, "invalid-request", b.post(path, "k", body).code(), body)
		}
		require.Equal(t, "payment-in-progress", b.pay("capture-other", order, "pm_card_visa").code())
		require.Equal(t, "capture-exceeds-authorization", b.post(path, "capture-more", `{"amount":2501}`).code())
		captured := b.post(path, "capture", `{"amount":1800}`)
		require.Equal(t, http.StatusOK, captured.status, captured.body)
		require.InDelta(t, 1800, captured.object["amount_captured"], 0)
		require.Equal(t, captured.body, b.post(path, "capture", ` { "amount" : 1800 } `).body)
		require.Equal(t, "idempotency-key-mismatch", b.post(path, "capture", `{"amount":1801}`).code())
		require.Equal(t, "payment-not-capturable", b.post(path, "capture-again", "").code())
		require.Equal(t, "payment-not-cancelable", b.post("/v1/payments/"+held.id()+"/cancel", "capture-late", "").code())

		lapsed := b.authorize("authorize-lapsed", b.order("capture-order-2"))
		intent := lapsed.object["stripe"].(map[string]any)["payment_intent"].(string)
		require.NoError(t, b.sim.LapseAuthorization(intent, ""))
		failed := b.post("/v1/payments/"+lapsed.id()+"/capture", "capture-lapsed", "")
		require.Equal(t, "payment-failed", failed.code())
		require.Equal(t, "canceled", failed.object["payment"].(map[string]any)["status"])

		released := b.authorize("authorize-released", b.order("capture-order-3"))
		require.Equal(t, http.StatusOK, b.post("/v1/payments/"+released.id()+"/cancel", "release", "").status)
	})

	t.Run("Refunds", func(t *testing.T) {
		order := b.order("refund-order")
		failed := b.pay("refund-failed", order,
			"pm_card_chargeDeclined").object["payment"].(map[string]any)["id"].(string)
		require.Equal(t, "payment-not-refundable", b.post("/v1/payments/"+failed+"/refunds", "r0", "{}").code())
		payment := b.pay("refund-paid", order, "pm_card_visa").id()
		require.Equal(t, "refund-exceeds-payment",
			b.post("/v1/payments/"+payment+"/refunds", "r1", `{"amount":2501}`).code())
		require.Equal(t, http.StatusCreated, b.post("/v1/payments/"+payment+"/refunds", "r2",
			`{"amount":1000,"reason":"requested_by_customer"}`).status)
		require.Equal(t, http.StatusCreated, b.post("/v1/payments/"+payment+"/refunds", "r3", `{}`).status)

		pending := b.pay("refund-pending", b.order("refund-order-2"), "pm_card_pendingRefund").id()
		require.Equal(t, http.StatusAccepted, b.post("/v1/payments/"+pending+"/refunds", "r4", `{}`).status)

		disputed := b.pay("refund-disputed", b.order("refund-order-3"), "pm_card_createDispute").id()
		require.Equal(t, "payment-disputed", b.post("/v1/payments/"+disputed+"/refunds", "r5", `{}`).code())
	})

	// part: disputes {
	t.Run("Disputes", func(t *testing.T) {
		_, err := b.disputes.RunOnce(t.Context())
		require.NoError(t, err)
		list := b.get("/v1/disputes?status=needs_response")
		require.Equal(t, http.StatusOK, list.status, list.body)
		dispute := list.object["data"].([]any)[0].(map[string]any)["id"].(string)
		require.Equal(t, http.StatusOK, b.get("/v1/disputes/"+dispute).status)
		require.Equal(t, "not-found", b.get("/v1/disputes/dsp_00000000000000000000000000").code())
		for _, query := range []string{"limit=0", "payment_id=", "order_id=&limit=1", "status=",
			"status=%00", "status=%ff", "payment_id=pay_%00", "starting_after=%00"} {
			require.Equal(t, "invalid-request", b.get("/v1/disputes?"+query).code(), query)
		}
		for _, path := range []string{"/v1/disputes", "/v1/disputes/" + dispute} {
			require.Equal(t, "unauthenticated", b.send("GET", path, "", "Authorization", "").code())
		}
	})
	// part: disputes }

	// part: checkouts {
	t.Run("Stock", func(t *testing.T) {
		const path = "/v1/stock/tea%2Fgreen"
		require.Equal(t, `{"sku":"tea/green","available":0,"reserved":0}`, b.get(path).body, "never set")
		set := b.send("PUT", path, `{"available":7}`, "Idempotency-Key", "refused-order")
		require.Equal(t, `{"sku":"tea/green","available":7,"reserved":0}`, set.body,
			"a key is ignored, also a used one")
		require.Equal(t, set.body, b.get(path).body)
		require.Equal(t, "invalid-request", b.get("/v1/stock/"+strings.Repeat("x", 65)).code())
		require.Equal(t, "unauthenticated", b.send("GET", path, "", "Authorization", "").code())
		require.Equal(t, "unauthenticated", b.send("PUT", path, `{"available":1}`, "Authorization", "").code())
		require.Equal(t, "payload-too-large", b.send("PUT", path, `{"x":"`+strings.Repeat("x", 64<<10)+`"}`).code())
		require.Equal(t, "unsupported-media-type",
			b.send("PUT", path, `{"available":1}`, "Content-Type", "text/plain").code())
		for _, body := range []string{`{}`, `{"available":-1}`, `{"available":1000000001}`, `{"available":"1"}`,
			`{"available":1,"reserved":1}`, `null`} {
			require.Equal(t, "invalid-request", b.send("PUT", path, body).code(), body)
		}
		require.Equal(t, "method-not-allowed", b.send("DELETE", path, "").code())
		require.Equal(t, "GET, HEAD, PUT", b.send("DELETE", path, "").header.Get("Allow"))
	})
	// part: checkouts }

	// part: checkouts {
	t.Run("Checkouts", func(t *testing.T) {
		require.Equal(t, http.StatusOK, b.send("PUT", "/v1/stock/tea", `{"available":100}`).status)
		done := b.post("/v1/checkouts", "checkout", newCheckout)
		require.Equal(t, http.StatusCreated, done.status, done.body)
		require.Equal(t, done.body, b.get("/v1/checkouts/"+done.id()).body)
		require.Equal(t, "unauthenticated", b.send("GET", "/v1/checkouts/"+done.id(), "", "Authorization", "").code())
		require.Equal(t, "not-found", b.get("/v1/checkouts/chk_00000000000000000000000000").code())
		declined := b.post("/v1/checkouts", "checkout-declined",
			strings.Replace(newCheckout, "pm_card_visa", "pm_card_chargeDeclined", 1))
		require.Equal(t, "payment-declined", declined.code())
		require.Equal(t, "out-of-stock", b.post("/v1/checkouts", "checkout-dear", strings.Replace(newCheckout, "tea",
			"gold", 1)).code())
		require.Equal(t, http.StatusAccepted, b.post("/v1/checkouts", "checkout-3ds", strings.Replace(newCheckout,
			"pm_card_visa", "pm_card_authenticationRequired", 1)).status)
		require.Equal(t, "invalid-request", b.post("/v1/checkouts", "k", strings.Replace(newCheckout, "{",
			`{"metadata":{},`, 1)).code())
	})
	// part: checkouts }

	t.Run("InFlight", func(t *testing.T) {
		order := b.order("slow-order")
		paid := b.pay("slow-paid", b.order("slow-order-2"), "pm_card_visa").id()
		waiting := b.pay("slow-3ds", b.order("slow-order-3"), "pm_card_authenticationRequired")
		held := b.authorize("slow-authorized", b.order("slow-order-5"))
		toCancel := b.order("slow-order-4")
		require.Equal(t, "payment-declined", b.pay("slow-declined", toCancel, "pm_card_chargeDeclined").code())
		for path, body := range map[string]string{
			"/v1/payments":                             `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`,
			"/v1/payments/" + paid + "/refunds":        `{"amount":1}`,
			"/v1/payments/" + held.id() + "/capture":   `{"amount":1}`,
			"/v1/payments/" + waiting.id() + "/cancel": "",
			"/v1/orders/" + toCancel + "/cancel":       "",
			"/v1/checkouts":                            newCheckout, // part: checkouts
		} {
			hold := b.sim.Hold(stripesim.Selector{Op: "*.post"}, stripesim.BeforeEffect)
			first := make(chan answer, 1)
			go func() {
				a, err := b.try(t.Context(), "POST", path, body, "Idempotency-Key", "slow"+path)
				if err != nil {
					t.Error(err)
				}
				first <- a
			}()
			world.WaitHeld(t, hold)
			again := b.post(path, "slow"+path, body)
			require.Equal(t, "idempotency-key-in-flight", again.code(), path)
			require.NotEmpty(t, again.header.Get("Retry-After"))
			require.Equal(t, `</docs/idempotency>; rel="describedby"`, again.header.Get("Link")) // part: docs
			hold.Release()
			require.Less(t, (<-first).status, 300, path)
		}
	})

	t.Run("UnknownOutcomeAtStripe", func(t *testing.T) {
		order := b.order("unknown-order")
		b.sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.EffectError, Times: 1})
		require.Contains(t, []int{http.StatusAccepted, http.StatusCreated},
			b.pay("unknown", order, "pm_card_visa").status)

		held := b.authorize("unknown-authorized", b.order("unknown-order-4")).id()
		b.sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.Reset, Times: 1})
		require.Equal(t, http.StatusAccepted, b.post("/v1/payments/"+held+"/capture", "unknown-capture", "").status)

		waiting := b.pay("unknown-3ds", b.order("unknown-order-2"), "pm_card_authenticationRequired").id()
		b.sim.Inject(stripesim.Fault{Op: "intent.*", Kind: stripesim.Refuse, Times: -1})
		require.Equal(t, http.StatusAccepted, b.post("/v1/payments/"+waiting+"/cancel", "unknown-cancel", "").status)
		b.sim.ClearFaults()
		toCancel := b.order("unknown-order-3")
		require.Equal(t, "payment-declined", b.pay("unknown-declined", toCancel, "pm_card_chargeDeclined").code())
		b.sim.Inject(stripesim.Fault{Op: "intent.*", Kind: stripesim.Refuse, Times: -1})
		require.Equal(t, http.StatusAccepted, b.post("/v1/orders/"+toCancel+"/cancel", "unknown-cancel-2", "").status)
		b.sim.ClearFaults()
	})

	// part: webhooks {
	t.Run("WebhookEndpoints", func(t *testing.T) {
		b := b.of(t)
		b.apiKey = b.newTenant("webhooks")
		b.post("/v1/orders", "refused-order", newOrder)
		contractOfWebhookEndpoints(t, b)
	})
	// part: webhooks }

	t.Run("Expired", func(t *testing.T) {
		_, err := b.pool.Raw().Exec(t.Context(),
			`UPDATE idempotency_keys SET answer_version = NULL, answer_status = NULL, answer_headers = NULL,
			answer_body = NULL, answer_dropped_at = clock_timestamp() WHERE finished_at IS NOT NULL
			AND answer_dropped_at IS NULL`)
		require.NoError(t, err)
		expired := b.post("/v1/orders", "order", newOrder)
		require.Equal(t, "idempotency-key-expired", expired.code())
		resource := expired.object["resource"].(map[string]any)
		require.Equal(t, http.StatusOK, b.get(resource["href"].(string)).status)
		order := resource["id"].(string)
		require.Equal(t, "idempotency-key-expired", b.pay("paid", order, "pm_card_visa").code())
		// part: checkouts {
		require.Equal(t, "idempotency-key-expired", b.post("/v1/checkouts", "checkout", newCheckout).code())
		// part: checkouts }
		for _, row := range [][2]string{{"cancel", ""}, {"give-up", ""}, {"capture", `{"amount":1800}`}, {"r3", "{}"}} {
			var operation, resource string
			require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
				`SELECT operation, resource_id FROM idempotency_keys WHERE key = $1`, row[0]).Scan(&operation,
				&resource))
			path := map[string]string{"cancel": "/v1/orders/" + resource + "/cancel",
				"give-up": "/v1/payments/" + resource + "/cancel",
				"capture": "/v1/payments/" + resource + "/capture"}[row[0]]
			if row[0] == "r3" {
				path = "/v1/payments/" + b.get("/v1/refunds/" + resource).object["payment_id"].(string) + "/refunds"
			}
			require.Equal(t, "idempotency-key-expired", b.post(path, row[0], row[1]).code(), operation)
		}
	})

	// part: history {
	t.Run("KeyHistory", func(t *testing.T) {
		order := b.order("history-order")
		require.Equal(t, http.StatusCreated, b.pay(`a/b"c%41?`, order, "pm_card_visa").status)
		const path = "/v1/idempotency-keys/a%2Fb%22c%2541%3F"
		history := b.get(path)
		require.Equal(t, http.StatusOK, history.status, history.body)
		require.Equal(t, `a/b"c%41?`, history.object["key"])
		require.Regexp(t, `^charged once, ch_\w+$`, history.object["verdict"])
		require.Equal(t, "unauthenticated", b.send("GET", path, "", "Authorization", "").code())
		for _, unknown := range []string{"never-used", "refund_order%20" + order, "%C3%A9", "%2522",
			strings.Repeat("k", 201)} {
			require.Equal(t, "not-found", b.get("/v1/idempotency-keys/"+unknown).code(), unknown)
		}
	})
	// part: history }

	t.Run("Webhooks", func(t *testing.T) {
		event := `{"id":"evt_1","object":"event","type":"payment_intent.created","data":{"object":{}}}`
		receive := func(body, signature string) answer {
			return b.send("POST", "/v1/webhooks/stripe", body, "Authorization", "", "Stripe-Signature", signature)
		}
		require.Equal(t, http.StatusOK, receive(event, sign(event, webhookSecret, time.Now())).status)
		require.Equal(t, http.StatusOK, receive(event, sign(event, webhookSecret, time.Now())).status,
			"a second delivery")
		secret := `{"id":"evt_secret","type":"payment_intent.created","data":{"object":{"id":"pi_1","object":` +
			`"payment_intent","client_secret":"pi_1_secret_2","receipt_email":"ada@example.com"}}}`
		require.Equal(t, http.StatusOK, receive(secret, sign(secret, webhookSecret, time.Now())).status)
		var kept string
		var ofAll bool
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(), `SELECT convert_from(payload, 'UTF8'),
			payload_sha256 = sha256($1) FROM inbox_events WHERE event_id = 'evt_secret'`, []byte(secret)).Scan(&kept, &ofAll))
		require.JSONEq(t, `{"id":"evt_secret","type":"payment_intent.created","data":{"object":{"id":"pi_1","metadata":{},`+
			`"payment_intent":"pi_1"}}}`, kept, "what is read of it")
		require.True(t, ofAll, "the digest of all of it")
		require.Equal(t, "invalid-signature", receive(event, sign(event, "whsec_other", time.Now())).code())
		require.Equal(t, "invalid-signature", receive(event, sign(event, webhookSecret,
			time.Now().Add(-10*time.Minute))).code())
		for _, none := range []string{"[]", `{"id":"evt_\u0000"}`, `{"id":"evt_1","type":"a\u0000"}`,
			`{"id":"evt_` + strings.Repeat("1", 252) + `"}`} {
			require.Equal(t, "invalid-request", receive(none, sign(none, webhookSecret, time.Now())).code(), none)
		}
		// a name that no payment can have is no reason to refuse an event
		for i, id := range []string{`pi_\u0000`, "pi_" + strings.Repeat("1", 253)} {
			strange := fmt.Sprintf(`{"id":"evt_strange_%d","type":"charge.updated",`+
				`"data":{"object":{"payment_intent":"%s"}}}`, i, id)
			require.Equal(t, http.StatusOK, receive(strange, sign(strange, webhookSecret, time.Now())).status, strange)
		}
		require.Equal(t, "payload-too-large", receive(strings.Repeat("x", 1<<20+1), "t=1,v1=00").code())
	})

	t.Run("UnknownParameter", func(t *testing.T) {
		for _, op := range operations(t) {
			if op.method == http.MethodGet && op.item.Responses.Status(400) != nil {
				path := strings.NewReplacer("{id}", "x", "{key}", "x", "{sku}", "x").Replace(op.path)
				require.Equal(t, "invalid-request", b.get(path+"?colour=red").code(), path)
			}
		}
	})

	t.Run("RateLimited", func(t *testing.T) {
		slow := setup(t, func(o *httpapi.Options) { o.RateLimit = 0.001; o.WebhookSecrets = nil })
		slow.sim, slow.pool = b.sim, b.pool
		order := slow.order("first")
		id := strings.TrimPrefix(order, "ord_")
		for path, body := range map[string]string{
			"/v1/orders":                          newOrder,
			"/v1/payments":                        `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`,
			"/v1/orders/" + order + "/cancel":     "",
			"/v1/payments/pay_" + id + "/cancel":  "",
			"/v1/payments/pay_" + id + "/refunds": "{}",
			"/v1/payments/pay_" + id + "/capture": "{}",
			"/v1/checkouts":                       newCheckout, // part: checkouts
		} {
			limited := slow.post(path, "limited"+path, body)
			require.Equal(t, "rate-limited", limited.code(), path)
			require.Equal(t, true, limited.object["retryable"])
		}
		require.Equal(t, "rate-limited", slow.send("PUT", "/v1/stock/tea", `{"available":1}`).code()) // part: checkouts
		require.Equal(t, order, slow.order("first"), "a replay is free")
		slow.get("/v1/orders") // the one read that is allowed
		for path, item := range b.contract.Document().Paths.Map() {
			if item.Get != nil && item.Get.Responses.Value("429") != nil {
				path = strings.NewReplacer("{id}", order, "{key}", "first", "{sku}", "tea").Replace(path)
				require.Equal(t, "rate-limited", slow.get(path).code(), path)
			}
		}
		require.Equal(t, "unavailable", slow.send("POST", "/v1/webhooks/stripe", "{}", "Stripe-Signature",
			"t=1,v1=00").code())
	})

	t.Run("DatabaseUnavailable", func(t *testing.T) {
		nowhere, err := postgres.Open(t.Context(), "postgres://payonce@127.0.0.1:9/payonce", postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(nowhere.Close)
		away := setup(t, func(o *httpapi.Options) { o.Pool = nowhere })
		for _, op := range operations(t) {
			if op.item.Responses.Status(503) == nil || op.path == "/v1/webhooks/stripe" {
				continue
			}
			path := strings.NewReplacer("/orders/{id}", "/orders/ord_00000000000000000000000000", "/refunds/{id}",
				"/refunds/rfd_00000000000000000000000000", "/disputes/{id}", "/disputes/dsp_00000000000000000000000000",
				"/payments/{id}", "/payments/pay_00000000000000000000000000", "/checkouts/{id}", "/checkouts/"+
					"chk_00000000000000000000000000", "{sku}", "tea").Replace(op.path)
			body := map[string]string{
				"/v1/orders":                newOrder,
				"/v1/checkouts":             newCheckout,       // part: checkouts
				"/v1/stock/{sku}":           `{"available":1}`, // part: checkouts
				"/v1/payments":              `{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`,
				"/v1/payments/{id}/capture": "{}",
				"/v1/payments/{id}/refunds": "{}"}[op.path]
			if op.method == http.MethodGet {
				body = ""
			}
			a := away.send(op.method, path, body, "Idempotency-Key", "k")
			require.Equal(t, "unavailable", a.code(), "%s %s", op.method, path)
		}
	})

	// What was documented and did not come about above is untested prose.
	t.Run("EveryDocumentedStatusIsReturned", func(t *testing.T) {
		for _, op := range operations(t) {
			for status := range op.item.Responses.Map() {
				switch {
				case status == "default": // What any request may get, see the refusals.
				case status == "500": // A bug, by definition; its shape is the catalogue's.
				case status == "304" && op.path != "/docs":
				case b.contract.Seen(op.method, op.path, number(t, status)):
				case op.method == "POST" && strings.HasPrefix(op.path, "/v1/webhook-") && status == "409":
					// What is done to an endpoint is one transaction, as an order is. // part: webhooks
				case op.method == "POST" && op.path == "/v1/orders" && status == "409":
					// An order is created in one transaction, so a duplicate waits for it and gets its response.
				default:
					t.Errorf("%s %s: %s was never answered", op.method, op.path, status)
				}
			}
		}
	})
}

type operation struct {
	method, path string
	item         *openapi3.Operation
}

// refusedBeforeTheKey sends a POST that is refused in each way in which all are refused. The key refused-order is used.
func refusedBeforeTheKey(t *testing.T, b *bundle, path, body string) {
	t.Helper()
	require.Equal(t, "unauthenticated", b.post(path, "k", body, "Authorization", "").code(), path)
	require.Equal(t, "payload-too-large", b.post(path, "k", `{"x":"`+strings.Repeat("x", 64<<10)+`"}`).code(), path)
	require.Equal(t, "unsupported-media-type", b.post(path, "k", body, "Content-Type", "text/plain").code(), path)
	require.Equal(t, "idempotency-key-missing", b.post(path, "", body).code(), path)
	require.Equal(t, "idempotency-key-invalid", b.post(path, `"no end`, body).code(), path)
	invalid := b.post(path, "k", `{"colour":"red"}`)
	require.Equal(t, "invalid-request", invalid.code(), path)
	require.Equal(t, "/colour", invalid.object["errors"].([]any)[0].(map[string]any)["pointer"], path)
	require.Equal(t, "idempotency-key-mismatch", b.post(path, "refused-order", body).code(), path)
}

func operations(t *testing.T) []operation {
	t.Helper()
	doc := openapi.New(t, httpapi.OpenAPI()).Document()
	var all []operation
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, operation{method, path, op})
		}
	}
	return all
}

func number(t *testing.T, status string) int {
	t.Helper()
	n, err := strconv.Atoi(status)
	require.NoError(t, err)
	return n
}

// The samples of the document are pasted into a shell, in the order of a
// reader: each must do what it shows.
func TestDocumentedSamplesRun(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "grep"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skipf("skipped: the samples need %s", tool)
		}
	}
	b := setup(t)
	samples := map[string]string{}
	for _, op := range operations(t) {
		list, _ := op.item.Extensions["x-codeSamples"].([]any)
		for _, sample := range list {
			samples[op.item.OperationID] = sample.(map[string]any)["source"].(string)
		}
	}
	pasted := 0
	paste := func(script string) string {
		t.Helper()
		pasted++
		script = strings.ReplaceAll(script, "$RANDOM", strconv.Itoa(pasted)) // which two samples may have in common
		cmd := exec.CommandContext(t.Context(), "bash", "-u", "-o", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "API="+b.url, "API_KEY="+b.apiKey)
		out, err := cmd.CombinedOutput()
		require.NoErrorf(t, err, "%s\n%s", script, out)
		return string(out)
	}
	order := samples["createOrder"] + "\n"

	require.Regexp(t, `^ord_[0-9a-v]{26}\n$`, paste(order))

	twice := paste(order + samples["createPayment"] + "\n" + samples["createPayment"])
	require.Equal(t, 2, strings.Count(twice, "HTTP/1.1 201"), twice)
	require.Equal(t, 1, strings.Count(twice, "Idempotent-Replayed: true"), twice)

	require.Contains(t, paste(order+samples["createPayment"]+"\n"+samples["createRefund"]),
		`"object":"refund","status":"succeeded"`)
	require.Contains(t, paste(order+strings.Replace(samples["createPayment"], "pm_card_visa",
		"pm_card_authenticationRequired", 1)+"\n"+samples["cancelPayment"]), `"status":"canceled"`)
	require.Contains(t, paste(order+strings.Replace(samples["createPayment"], `"pm_card_visa"`,
		`"pm_card_visa","capture":"manual"`, 1)+"\n"+samples["capturePayment"]), `"amount_captured":1800`)
	require.Contains(t, paste(order+samples["cancelOrder"]), `"object":"order","status":"canceled"`)
	// part: checkouts {
	require.Contains(t, paste(samples["setStock"]+"\n"+samples["createCheckout"]),
		`"object":"checkout","status":"completed"`)
	delete(samples, "setStock")
	delete(samples, "createCheckout")
	// part: checkouts }
	// part: history {
	require.Contains(t, paste(order+samples["createPayment"]+"\n"+samples["getIdempotencyKey"]),
		`"object":"idempotency_key"`)
	delete(samples, "getIdempotencyKey")
	// part: history }
	// part: webhooks {
	require.Contains(t, paste(strings.Replace(samples["createWebhookEndpoint"], "https://shop.example", "http://127.0.0.1:9",
		1)), `"secret":"whsec_`)
	delete(samples, "createWebhookEndpoint")
	// part: webhooks }
	require.Len(t, samples, 6, "a sample that is not pasted here")

	// The introduction.
	introduction := openapi.New(t, httpapi.OpenAPI()).Document().Info.Description
	var blocks []string
	for _, part := range strings.Split(introduction, "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	require.Len(t, blocks, 3)
	require.Contains(t, paste(strings.Join(blocks[1:], "\n")), `"object":"payment","status":"succeeded"`)
	// part: docs {
	// The loop on the page about retries.
	_, page, _ := strings.Cut(b.get("/docs/retries").body, "<pre><code>")
	loop, _, _ := strings.Cut(page, "</code></pre>")
	loop = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#39;", "'", "&#34;", `"`, "&amp;", "&").Replace(loop)
	out := paste("cd " + t.TempDir() + "\n" + order + loop)
	require.Contains(t, out, "\n201\n")
	require.Contains(t, out, `"object":"payment","status":"succeeded"`)
	// part: docs }
}
