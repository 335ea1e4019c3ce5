package stripesim

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// fetch reads one page, without stripe-go's paging.
func (b *bench) fetch(path string) (ids []string, more bool) {
	b.t.Helper()
	require.Equal(b.t, 200, b.getRaw(path), "%s", b.shapes.body)
	var l struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
		HasMore bool   `json:"has_more"`
		URL     string `json:"url"`
	}
	decode(b.t, b.shapes.body, &l)
	for _, o := range l.Data {
		ids = append(ids, o.ID)
	}
	return ids, l.HasMore
}

func (b *bench) getRaw(path string) int {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, b.url+path, nil)
	require.NoError(b.t, err)
	req.SetBasicAuth(DefaultKey, "")
	resp, err := (&http.Client{Transport: b.shapes}).Do(req)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	return resp.StatusCode
}

func TestLists(t *testing.T) {
	t.Parallel()

	t.Run("PageBothWays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var all []string // newest first
		for i := range 25 {
			all = append([]string{b.create(fmt.Sprint(i)).ID}, all...)
		}
		first, more := b.fetch("/v1/payment_intents")
		require.Equal(t, all[:10], first)
		require.True(t, more)
		next, more := b.fetch("/v1/payment_intents?limit=10&starting_after=" + first[9])
		require.Equal(t, all[10:20], next)
		require.True(t, more)
		last, more := b.fetch("/v1/payment_intents?starting_after=" + next[9])
		require.Equal(t, all[20:], last)
		require.False(t, more)
		back, more := b.fetch("/v1/payment_intents?limit=3&ending_before=" + next[0])
		require.Equal(t, all[7:10], back)
		require.True(t, more)
		back, more = b.fetch("/v1/payment_intents?ending_before=" + all[2])
		require.Equal(t, all[:2], back)
		require.False(t, more)
		one, _ := b.fetch("/v1/payment_intents?limit=0")
		require.Len(t, one, 1)
		many, _ := b.fetch("/v1/payment_intents?limit=1000")
		require.Equal(t, all, many)

		require.Equal(t, 400, b.getRaw("/v1/payment_intents?starting_after=pi_none"))
		require.Contains(t, string(b.shapes.body), `"No such payment_intent: 'pi_none'","param":"starting_after"`)
		require.Equal(t, 400, b.getRaw("/v1/payment_intents?starting_after="+all[0]+"&ending_before="+all[1]))
		require.Contains(
			t,
			string(b.shapes.body),
			"Received both starting_after and ending_before parameters. Please pass in only one.",
		)
		require.Equal(t, 400, b.getRaw("/v1/payment_intents?limit=abc"))
		require.Contains(t, string(b.shapes.body), "Invalid integer: abc")
	})

	t.Run("CursorOfAnotherIntentsCharge", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, two := b.paid("o1"), b.paid("o2")
		ids, _ := b.fetch("/v1/charges?payment_intent=" + one.ID + "&starting_after=" + two.LatestCharge.ID)
		require.Equal(t, []string{one.LatestCharge.ID}, ids)
		ids, _ = b.fetch("/v1/charges?payment_intent=" + two.ID + "&ending_before=" + one.LatestCharge.ID)
		require.Equal(t, []string{two.LatestCharge.ID}, ids)
	})

	t.Run("FilterByTime", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		old := b.create("o1")
		b.sim.Advance(time.Hour)
		young := b.create("o2")
		ids, _ := b.fetch(fmt.Sprintf("/v1/payment_intents?created[gte]=%d", young.Created))
		require.Equal(t, []string{young.ID}, ids)
		ids, _ = b.fetch(fmt.Sprintf("/v1/payment_intents?created%%5Blt%%5D=%d", young.Created))
		require.Equal(t, []string{old.ID}, ids)
		ids, _ = b.fetch(fmt.Sprintf("/v1/payment_intents?created=%d", old.Created))
		require.Equal(t, []string{old.ID}, ids)
	})

	t.Run("Expand", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.paid("o1")
		require.Equal(t, 200, b.getRaw("/v1/payment_intents?expand[]=data.latest_charge.balance_transaction"))
		require.Contains(t, string(b.shapes.body), `"object":"balance_transaction"`)
		require.Equal(t, 400, b.getRaw("/v1/payment_intents?expand[]=latest_charge"))
		require.Contains(t, string(b.shapes.body), "You may want to try expanding 'data.latest_charge' instead.")
		require.Equal(t, 400, b.getRaw("/v1/payment_intents?expand[]=data.amount"))
	})

	t.Run("CanLag", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.sim.SetListLag(time.Minute)
		pi := b.create("o1")
		require.Equal(t, pi.ID, b.get(pi.ID).ID)
		ids, _ := b.fetch("/v1/payment_intents")
		require.Empty(t, ids)
		b.sim.Advance(time.Minute)
		ids, _ = b.fetch("/v1/payment_intents")
		require.Equal(t, []string{pi.ID}, ids)
	})
}

func TestSearch(t *testing.T) {
	t.Parallel()
	search := func(b *bench, query string) []string {
		b.t.Helper()
		var out []string
		params := stripe.SearchParams{Query: query, Limit: stripe.Int64(2)}
		found := b.api.PaymentIntents.Search(&stripe.PaymentIntentSearchParams{SearchParams: params})
		for found.Next() {
			out = append(out, found.PaymentIntent().ID)
		}
		return out
	}

	t.Run("FindsByMetadataAndStatus", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, two := b.paid("o1"), b.create("o2")
		require.Empty(t, search(b, `metadata["order_id"]:"o1"`), "not yet")
		b.sim.Advance(defaultSearchLag)
		require.Equal(t, []string{one.ID}, search(b, `metadata["order_id"]:"o1"`))
		require.Equal(t, []string{one.ID}, search(b, `status:'succeeded' AND amount>=1000`))
		require.Equal(t, []string{two.ID, one.ID}, search(b, `status:"succeeded" OR metadata['order_id']:'o2'`))
		require.Equal(t, []string{two.ID}, search(b, `-status:"succeeded"`))
		three := b.create("o3")
		b.sim.Advance(defaultSearchLag)
		require.Equal(t, []string{three.ID, two.ID, one.ID}, search(b, `currency:"usd"`)) // over two pages
		_, err := b.api.PaymentIntents.New(&stripe.PaymentIntentParams{})                 // the client works
		require.Error(t, err)
		require.Equal(t, 400, b.getRaw("/v1/payment_intents/search?query=nonsense"))
	})

	t.Run("LagsBehind", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		b.sim.Advance(time.Hour)
		b.sim.SetSearchLag(time.Minute)
		b.paid("o1")
		require.Equal(t, []string{pi.ID}, search(b, `status:"requires_payment_method"`)) // as it was
		require.Empty(t, search(b, `status:"succeeded"`))
		b.sim.Advance(time.Minute)
		require.Equal(t, []string{pi.ID}, search(b, `status:"succeeded"`))
		b.sim.SetSearchLag(-1)
		require.Empty(t, search(b, `currency:"usd"`))
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetLimits(Limits{PerEndpoint: 0.001}) // one now, the next in a quarter of an hour
	require.Equal(t, 200, b.getRaw("/v1/payment_intents"))
	require.Equal(t, 429, b.getRaw("/v1/payment_intents"))
	require.Equal(t, "endpoint-rate", b.header("Stripe-Rate-Limited-Reason"))
	require.Empty(t, b.header("Retry-After"))
	require.Equal(t, 200, b.getRaw("/v1/charges"), "another endpoint has a bucket of its own")
	b.sim.SetLimits(Limits{Global: 0.001})
	require.Equal(t, 200, b.getRaw("/v1/charges"))
	require.Equal(t, 429, b.getRaw("/v1/payment_intents"))
	require.Equal(t, "global-rate", b.header("Stripe-Rate-Limited-Reason"))
	b.sim.SetLimits(Limits{})
	require.Equal(t, 200, b.getRaw("/v1/payment_intents"))
}

// TestLimiter is the bucket alone, on a clock of its own.
func TestLimiter(t *testing.T) {
	t.Parallel()
	l := limiter{set: Limits{PerEndpoint: 5}, buckets: map[string]*bucket{}}
	now := time.Now()
	passed := 0
	for i := range 40 { // four seconds at twice the rate
		if l.exceeded("intent.create", now.Add(time.Duration(i)*100*time.Millisecond)) == "" {
			passed++
		}
	}
	require.InDelta(t, 5+4*5, passed, 1, "a full bucket and what runs in")
}
