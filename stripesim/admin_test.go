package stripesim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// TestAdmin drives the simulator the way a shell script or a chaos harness in
// another process does.
func TestAdmin(t *testing.T) {
	t.Parallel()
	ok := func(b *bench, method, path, body string, into any) {
		b.t.Helper()
		code, data := b.adminDo(method, path, body)
		require.Equal(b.t, 200, code, "%s", data)
		if into != nil {
			decode(b.t, data, into)
		}
	}
	type id struct {
		ID string `json:"id"`
	}

	t.Run("ScriptsFaults", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		var armed id
		ok(
			b, "POST", "/faults", `{"op":"intent.confirm","kind":"refuse","status":503,"delay":"1.5s","order_id":"o1"}`,
			&armed,
		)
		_, err := b.confirm(pi.ID, "k", "pm_card_visa")
		refused(t, err, 503, "")
		var faults []faultReport
		ok(b, "GET", "/faults", "", &faults)
		require.Len(t, faults, 1)
		require.Equal(t, armed.ID, faults[0].ID)
		require.Equal(t, 1, faults[0].Fired)
		require.Equal(t, 1500*time.Millisecond, faults[0].Fault.Delay)
		require.Equal(
			t,
			Firing{
				At: faults[0].Firings[0].At, Op: "intent.confirm", RequestID: b.header("Request-Id"), Key: "k",
				ObjectID: pi.ID,
			},
			faults[0].Firings[0],
		)
		ok(b, "DELETE", "/faults", "", nil)
		ok(b, "GET", "/faults", "", &faults)
		require.Empty(t, faults)
	})

	t.Run("HoldsAndReleases", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		var hold id
		ok(b, "POST", "/holds", `{"op":"intent.confirm","point":"after_effect"}`, &hold)
		answered := make(chan error, 1)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		var report holdReport
		ok(b, "GET", "/holds/"+hold.ID+"?wait=30s", "", &report)
		require.Len(t, report.Waiting, 1)
		require.Equal(t, "k", report.Waiting[0].Key)
		var all []holdReport
		ok(b, "GET", "/holds", "", &all)
		require.Len(t, all, 1)
		ok(b, "DELETE", "/holds/"+hold.ID, "", nil)
		require.NoError(t, <-answered)
		code, _ := b.adminDo("GET", "/holds/"+hold.ID, "")
		require.Equal(t, 400, code)
		for _, body := range []string{`{"op":"intent.confirm"}`, `{"op":"no.such","point":"after_effect"}`,
			`{"opp":"x","point":"after_effect"}`} {
			code, _ = b.adminDo("POST", "/holds", body)
			require.Equal(t, 400, code, body)
		}
	})

	t.Run("TellsWhatHappened", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.paid("o1")
		b.paid("o2")
		var count struct {
			Count int `json:"count"`
		}
		ok(b, "GET", "/charges?order_id=o1", "", &count)
		require.Equal(t, 1, count.Count)
		ok(b, "GET", "/charges", "", &count)
		require.Equal(t, 2, count.Count)
		var effects []Effect
		ok(b, "GET", "/effects?order_id=o2&kind=charge", "", &effects)
		require.Len(t, effects, 1)
		require.Equal(t, "confirm-o2", effects[0].Key)
		ok(b, "GET", fmt.Sprintf("/effects?since=%d", effects[0].Seq), "", &effects)
		require.Empty(t, effects)
	})

	t.Run("PlaysTheCustomerTheBankAndTheClock", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.confirm(b.create("o1").ID, "k", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		ok(b, "POST", "/authenticate/"+pi.ID, `{"outcome":"success"}`, nil)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status)
		code, _ := b.adminDo("POST", "/authenticate/"+pi.ID, `{"outcome":"maybe"}`)
		require.Equal(t, 400, code)

		re, err := b.refund(pi.ID, "r", 100)
		require.NoError(t, err)
		ok(b, "POST", "/refunds/"+re.ID+"/fail", "", nil)
		var d id
		ok(b, "POST", "/disputes", `{"charge":"`+b.get(pi.ID).LatestCharge.ID+`"}`, &d)
		_, err = b.api.Disputes.Get(d.ID, nil)
		require.NoError(t, err)

		given := b.create("o2")
		_, err = b.confirm(given.ID, "k2", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		ok(b, "POST", "/authenticate/"+given.ID, `{"outcome":"fail"}`, nil)
		code, _ = b.adminDo("POST", "/browser", `{"client_secret":"`+given.ID+`_secret_guessed"}`)
		require.Equal(t, 400, code)
		code, _ = b.adminDo("POST", "/browser",
			`{"client_secret":"`+given.ClientSecret+`","payment_method":"pm_card_chargeDeclined"}`)
		require.Equal(t, 400, code)
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, b.get(given.ID).Status)
		ok(b, "POST", "/browser",
			`{"client_secret":"`+given.ClientSecret+`","payment_method":"pm_card_threeDSecure2Required"}`, nil)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(given.ID).Status)
		require.Equal(t, 1, b.sim.ChargeCount("o2"))
		code, _ = b.adminDo("POST", "/browser", `{"client_secret":"`+given.ClientSecret+`"}`)
		require.Equal(t, 400, code, "it is paid")
		require.Equal(t, 1, b.sim.ChargeCount("o2"))

		var before, after clockReport
		ok(b, "GET", "/clock", "", &before)
		ok(b, "POST", "/clock", `{"advance":"25h"}`, &after)
		require.GreaterOrEqual(t, after.Now.Sub(before.Now), 25*time.Hour)
		var pruned map[string]int
		b.create("o2")
		ok(b, "POST", "/keys/prune", `{"containing":"create-o2"}`, &pruned)
		require.Equal(t, 1, pruned["pruned"])
	})

	t.Run("SetsLagsAndLimits", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ok(
			b, "POST", "/settings",
			`{"search_lag":"1m","list_lag":"1m","lock_wait":"10ms","webhook_retry":"5s","limits":{"per_endpoint":1000}}`,
			nil,
		)
		b.create("o1")
		ids, _ := b.fetch("/v1/payment_intents")
		require.Empty(t, ids)
		code, _ := b.adminDo("POST", "/settings", `{"list_leg":"1m"}`)
		require.Equal(t, 400, code)
	})

	t.Run("BreaksWebhooks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := newReceiver(t)
		var we, fault id
		ok(b, "POST", "/webhook-endpoints", `{"url":"`+r.URL+`","secret":"`+whsec+`"}`, &we)
		ok(b, "POST", "/webhook-faults", `{"kind":"duplicate","delay":"1s","count":2}`, &fault)
		b.create("o1")
		b.settle()
		require.Len(t, r.all(), 2)
		ok(b, "POST", "/webhooks/resend", `{"event_id":"`+r.all()[0].event.ID+`","times":2}`, nil)
		b.settle()
		require.Len(t, r.all(), 4)
		var deliveries []Delivery
		ok(b, "GET", "/webhooks", "", &deliveries)
		require.Len(t, deliveries, 4)
		require.Equal(t, we.ID, deliveries[0].Endpoint)
		var faults []webhookFaultReport
		ok(b, "GET", "/webhook-faults", "", &faults)
		require.Equal(t, 1, faults[0].Fired)
		ok(b, "DELETE", "/webhook-faults", "", nil)
		code, _ := b.adminDo("POST", "/webhook-endpoints", `{"url":"nowhere"}`)
		require.Equal(t, 400, code)
	})

	t.Run("StartsAnew", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.paid("o1")
		ok(b, "POST", "/clock", `{"advance":"1h"}`, nil)
		ok(b, "POST", "/reset", "", nil)
		require.Zero(t, b.sim.ChargeCount(""))
		require.WithinDuration(t, time.Now(), b.sim.Now(), time.Minute)
		require.Empty(t, b.eventTypes())
		b.paid("o1") // the key is new again
		ok(b, "GET", "/healthz", "", nil)
	})
}
