package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestDoctorAsksWhetherThePaymentsAreOfThisAccount: with the key of another account the service starts, and finds nothing of
// what it has begun.
func TestDoctorAsksWhetherThePaymentsAreOfThisAccount(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	env := map[string]string{"DATABASE_URL": w.URL, "STRIPE_API_BASE": w.StripeURL, "STRIPE_SECRET_KEY": stripesim.DefaultKey}
	says := func(id string) doctorCheck {
		t.Helper()
		var d diagnosis
		patient{getenv: func(name string) string { return env[name] }}.together(t.Context(), &d)
		for _, check := range d.checks {
			if check.ID == id {
				return check
			}
		}
		require.Fail(t, "no check", id)
		return doctorCheck{}
	}
	require.Equal(t, "none yet", says("stripe.payments").Detail)
	require.Equal(t, "none have arrived lately", says("stripe.events").Detail)
	require.Equal(t, http.StatusCreated, api.Pay("paid", api.Order(), "pm_card_visa").Status)
	require.Equal(t, healthy, says("stripe.payments").Status)
	env["STRIPE_SECRET_KEY"] = "sk_test_another"
	require.Equal(t, bad, says("stripe.payments").Status)
	require.Contains(t, says("stripe.payments").Detail, "another account")
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	env["STRIPE_API_BASE"] = away.URL
	require.Equal(t, warning, says("stripe.payments").Status, "not asked")

	for id, eventType := range map[string]string{"evt_1": "payment_intent.succeeded", "evt_2": "v1.payment_intent.succeeded"} {
		w.Exec(`INSERT INTO inbox_events (consumer, event_id, status, type, done_at) VALUES ('stripe', $1, 'done', $2, now())`,
			id, eventType)
	}
	require.Equal(t, "both snapshots (1) and thin events (1) arrive", says("stripe.events").Detail)
	w.Exec(`DELETE FROM inbox_events WHERE event_id = 'evt_1'`)
	require.Equal(t, "thin events arrive", says("stripe.events").Detail)
}
