package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/demo"
)

// Whatever those tell the console whom it asks, it shows what it looks for, and
// passes nothing on.
func TestConsole_PassesNothingOn(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	const order = "ord_1"
	all := fmt.Sprintf(`"client_secret":%q,"number":%q,"note":%q,"key":%q`, demo.SomeClientSecret, demo.CardInABody,
		demo.StripeKeyPasted, demo.ForeignRawKey)
	customerMustAct := `{"object":"payment","id":"pay_1","status":"requires_action","order_id":"` + order +
		`","next_action":{` + all + `},"metadata":{` + all + `}}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Debug", demo.CardInAHeader)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, customerMustAct)
	}))
	t.Cleanup(api.Close)
	books := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, []stripesim.Effect{{
			Seq: 1, Kind: stripesim.EffectCharge, Amount: 1250, Currency: "usd",
			Key:      "ten_1:" + demo.ForeignRawKey + ":confirm",
			Metadata: map[string]string{"order_id": order, "card": demo.CardInMetadata, "client_secret": demo.SomeClientSecret},
		}})
	}))
	t.Cleanup(books.Close)
	c.system = &system{a: &endpoint{"A", api.URL}, b: &endpoint{"B", "http://127.0.0.1:1"},
		shop: newShop(demo.StripeKeyPasted), stripe: newStripe(books.URL)}
	c.board.update(func(s *pageState) { s.Processes = []processState{{"A", 1, stateUp}, {"B", 2, stateUp}} })
	c.runs, c.historyRead = map[string]*actionRun{}, map[string]map[string]bool{}
	s := &actionRun{console: c, ctx: t.Context(), order: order, pay: payment("pay-of-the-console", order, visa)}
	c.rememberRun(s)
	c.board.addPurchase(&purchase{Order: order})

	s.sendPayment(c.a)
	s.sendPayment(c.b) // where no process listens
	s.sendPayments(4, "four times")
	c.showEvent(inbox.Message{Type: "payment.requires_action", Subject: "pay_1", Version: 2,
		Body: []byte(`{"data":` + customerMustAct + `}`)})
	c.readEffects(t.Context())
	c.board.add(entry{Kind: kindFault, Text: "the end"})

	var shown strings.Builder
	for line := range demo.Events(t, server.URL, "") {
		if shown.WriteString(line + "\n"); strings.Contains(line, "the end") {
			break
		}
	}
	for _, what := range []string{"202 payment requires_action", "payment.requires_action", "takes 12.50 USD",
		"no response"} {
		require.Contains(t, shown.String(), what)
	}
	for what, secret := range demo.ForbiddenText {
		require.NotContains(t, shown.String(), secret, what)
	}
}

func getPage(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}
