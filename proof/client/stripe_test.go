package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/client"
	"example.com/payonce/stripesim"
)

// TestStripeProfile sends payments to Stripe directly, through every fault of the simulator that has to do with keys: one
// charge for each that is done, and none that is not known of.
func TestStripeProfile(t *testing.T) {
	t.Parallel()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, sim.Close())
	})
	j, err := client.OpenFile(filepath.Join(t.TempDir(), "journal"))
	require.NoError(t, err)
	c, err := client.New(client.Options{Base: server.URL, Journal: j, Profile: &client.Stripe, Timeout: 20 * time.Second,
		Header: http.Header{"Authorization": {"Bearer " + stripesim.DefaultKey}}})
	require.NoError(t, err)
	charge := func(order, card string) client.Request {
		return client.Request{Intent: order, Path: "/v1/payment_intents", Body: []byte(url.Values{
			"amount": {"1000"}, "currency": {"usd"}, "confirm": {"true"}, "payment_method": {card},
			"payment_method_types[]": {"card"}, "metadata[order_id]": {order}, "metadata[tenant_id]": {"ten_1"},
		}.Encode())}
	}
	var unknown *client.UnknownError
	for _, test := range []struct {
		fault   stripesim.Fault
		unknown bool
		charges int
	}{
		{stripesim.Fault{Kind: stripesim.Reset}, false, 1},
		{stripesim.Fault{Kind: stripesim.RateLimited}, false, 1},
		{stripesim.Fault{Kind: stripesim.LockTimeout}, false, 1},
		{stripesim.Fault{Kind: stripesim.InUse}, false, 1},
		{stripesim.Fault{Kind: stripesim.Refuse, Status: 503, HTML: true}, false, 1},
		{stripesim.Fault{Kind: stripesim.RetryError}, false, 1},
		{stripesim.Fault{Kind: stripesim.Drop}, false, 1},
		{stripesim.Fault{Kind: stripesim.Cut, Bytes: 20}, false, 1},
		{stripesim.Fault{Kind: stripesim.EffectError}, false, 1},
		{stripesim.Fault{Kind: stripesim.EffectError, HTML: true}, false, 1},
		{stripesim.Fault{Kind: stripesim.StoredError}, true, 0},       // a 500 that is repeated, and nothing was done
		{stripesim.Fault{Kind: stripesim.EffectStoredError}, true, 1}, // the same, and it was
	} {
		order := fmt.Sprintf("ord_%s_%t", test.fault.Kind, test.fault.HTML)
		test.fault.Op = "intent.*"
		id := sim.Inject(test.fault)
		res, err := c.Do(t.Context(), charge(order, "pm_card_visa"))
		if test.unknown {
			require.ErrorAs(t, err, &unknown, order)
		} else {
			require.NoError(t, err, order)
			require.True(t, res.OK(), "%s: %d %s", order, res.Status, res.Body)
		}
		require.Equal(t, test.charges, sim.ChargeCount(order), order)
		require.Equal(t, 1, sim.FaultsFired()[id], order)
		sim.ClearFaults()
	}

	t.Run("Declined", func(t *testing.T) {
		res, err := c.Do(t.Context(), charge("ord_declined", "pm_card_visa_chargeDeclined"))
		require.NoError(t, err)
		require.True(t, res.Final)
		require.Equal(t, http.StatusPaymentRequired, res.Status)
	})
	t.Run("Refused", func(t *testing.T) {
		wrong := charge("ord_refused", "pm_card_visa")
		wrong.Body = []byte("amount=x")
		var refused *client.RefusedError
		_, err := c.Do(t.Context(), wrong)
		require.ErrorAs(t, err, &refused)
		_, err = c.Do(t.Context(), charge("ord_refused", "pm_card_visa"))
		require.NoError(t, err, "a refused request may be corrected, under the same name")
		require.Equal(t, 1, sim.ChargeCount("ord_refused"))
	})
	t.Run("OfThemSomeAreOpen", func(t *testing.T) {
		outcomes, err := c.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, outcomes, 2)
		for _, o := range outcomes {
			require.True(t, errors.As(o.Err, &unknown), o.Err)
		}
		require.Equal(t, 1, sim.ChargeCount("ord_effect_stored_error_false"))
	})
}
