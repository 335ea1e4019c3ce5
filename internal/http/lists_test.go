package http_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
)

// listed is the ids of a list, read with pages of any size: each size has the same objects.
func (b *bundle) listed(path, query string) []string {
	b.t.Helper()
	read := func(limit int) (all []string) {
		b.t.Helper()
		for after := ""; ; after = "&starting_after=" + all[len(all)-1] {
			a := b.get(fmt.Sprintf("%s?limit=%d&%s%s", path, limit, query, after))
			require.Equal(b.t, http.StatusOK, a.status, a.body)
			data := a.object["data"].([]any)
			for _, object := range data {
				all = append(all, object.(map[string]any)["id"].(string))
			}
			if a.object["has_more"] != true {
				return all
			}
			require.NotEmpty(b.t, data)
		}
	}
	all := read(100)
	require.Equal(b.t, all, read(1), query)
	require.Equal(b.t, all, read(2), query)
	return all
}

// refused is the parameter that a list is refused for.
func (b *bundle) refused(path, query string) string {
	b.t.Helper()
	a := b.get(path + "?" + query)
	require.Equal(b.t, http.StatusBadRequest, a.status, "%s %s", query, a.body)
	require.Equal(b.t, "invalid-request", a.code())
	e := a.object["errors"].([]any)[0].(map[string]any)
	require.Equal(b.t, "", e["pointer"])
	return e["parameter"].(string)
}

// allRefused holds queries to be refused for the parameter that each begins with.
func (b *bundle) allRefused(path string, queries ...string) {
	b.t.Helper()
	for _, query := range queries {
		name, _, _ := strings.Cut(query, "=")
		require.Equal(b.t, name, b.refused(path, query), query)
	}
}

func TestOrdersAreFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var (
		made []string
		at   []time.Time
	)
	make := func(reference string) string {
		body := `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]`
		if reference != "" {
			body += `,"customer_reference":"` + reference + `"`
		}
		a := b.post("/v1/orders", fmt.Sprint("order", len(made)), body+"}")
		require.Equal(t, http.StatusCreated, a.status, a.body)
		created, err := time.Parse(time.RFC3339, a.object["created_at"].(string))
		require.NoError(t, err)
		require.Equal(t, created.UTC(), ids.Time(a.id()), "so that a filter by time is a range of ids")
		made, at = append(made, a.id()), append(at, created)
		time.Sleep(2 * time.Millisecond) // the next one has another time
		return a.id()
	}
	open, paid, canceled := make("ann"), make("ann & bob"), make("ann")
	partly, refunded, last := make(""), make("ann"), make("")
	require.Equal(t, http.StatusOK, b.post("/v1/orders/"+canceled+"/cancel", "cancel", "").status)
	for _, order := range []string{paid, partly, refunded} {
		payment := b.pay("pay"+order, order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, payment.status, payment.body)
		if order != paid {
			amount := map[string]string{partly: "500", refunded: "2500"}[order]
			require.Equal(t, http.StatusCreated, b.post("/v1/payments/"+payment.id()+"/refunds", "refund"+order,
				`{"amount":`+amount+`}`).status)
		}
	}
	newestFirst := slices.Clone(made)
	slices.Reverse(newestFirst)
	list := func(query string) []string { t.Helper(); return b.of(t).listed("/v1/orders", query) }
	time3 := func(t time.Time) string { return url.QueryEscape(t.Format("2006-01-02T15:04:05.000Z07:00")) }

	require.Equal(t, newestFirst, list(""))
	for status, want := range map[string][]string{
		"open": {last, open}, "paid": {paid}, "canceled": {canceled}, "partially_refunded": {partly},
		"refunded": {refunded}, "authorized": nil,
	} {
		require.Equal(t, want, list("status="+status), status)
	}
	require.Equal(t, []string{refunded, canceled, open}, list("customer_reference=ann"))
	require.Equal(t, []string{paid}, list("customer_reference=ann+%26%20bob"))
	require.Empty(t, list("customer_reference=an"))
	require.Equal(t, []string{canceled}, list("customer_reference=ann&status=canceled"))
	require.Empty(t, list("customer_reference=ann&status=paid"))

	require.Equal(t, newestFirst[:4], list("created_after="+time3(at[2])), "inclusive")
	require.Equal(t, newestFirst[4:], list("created_before="+time3(at[2])), "exclusive")
	require.Equal(t, []string{refunded, partly, canceled},
		list("created_after="+time3(at[2])+"&created_before="+time3(at[5])))
	require.Empty(t, list("created_after="+time3(at[2])+"&created_before="+time3(at[2])))
	require.Equal(t, []string{refunded}, list("status=refunded&created_after="+time3(at[2])))
	require.Empty(t, list("status=refunded&created_before="+time3(at[2])))
	require.Equal(t, []string{open}, list("status=open&created_before="+time3(at[2])))
	require.Equal(t, []string{open}, list("customer_reference=ann&created_before="+time3(at[2])))
	elsewhere := at[2].In(time.FixedZone("", -5*3600-1800))
	require.Equal(t, newestFirst[:4], list("created_after="+time3(elsewhere)))
	require.Equal(t, newestFirst[:4], list("created_after="+strings.ToLower(time3(at[2].UTC()))))
	require.Equal(t, newestFirst[:3], list("created_after="+
		url.QueryEscape(at[2].UTC().Format("2006-01-02T15:04:05.000")+"000001Z")), "finer than created_at")
	require.Empty(t, list("created_after=9999-12-31T23:59:59Z"))
	require.Equal(t, newestFirst, list("created_after=0001-01-01T00:00:00Z"))
	for _, time := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T01:00:00%2B01:00",
		"0001-01-01T00:00:00.5Z", "1970-01-01T00:00:00Z"} {
		require.Empty(t, list("created_before="+time), time)
		require.Empty(t, list("status=open&created_before="+time), time)
	}
	require.Equal(t, newestFirst, list("created_after=1969-12-31T23:59:59Z&created_before=9999-12-31T23:59:59Z"))

	require.Equal(t, []string{open}, b.listed("/v1/orders", "status=open&starting_after="+paid)[:1],
		"an order that left the list still says where the next page begins")
	b.allRefused("/v1/orders", "status=succeeded", "status=", "status=open&status=open", "status=Open", "status=open%00",
		"customer_reference=", "customer_reference=%ff", "created_after=", "created_after=2026-01-01",
		"created_after=2026-01-01T00:00:00", "created_after=2026-01-01T00:00:00+01:00", "created_after=1767225600",
		"created_after=2026-02-30T00:00:00Z", "created_after=2026-01-01T00:00:00%2B25:00", "created_before=now",
		"created_after=2026-11-27T00:00:00,5Z", "created_before=2026-11-27T0:00:00Z",
		"created_before=2026-11-27T00:00:00%2B24:00", "created_before=2026-11-27T00:00:00-01:60",
		"created_before=2026-01-01T00:00:00Z&created_before=2026-01-01T00:00:00Z", "starting_after=", "limit=",
		"order_id="+open, "starting_after=ord_0", "starting_after="+ids.New(ids.Order))

	other := b.of(t)
	other.apiKey = b.newTenant("other")
	for _, query := range []string{"", "status=open", "status=refunded", "customer_reference=ann"} {
		require.Empty(t, other.listed("/v1/orders", query), query)
	}
	other.allRefused("/v1/orders", "starting_after="+open)
}

func TestPaymentsAreFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.order("first"), b.order("second")
	declined := b.pay("declined", first, "pm_card_chargeDeclined").object["payment"].(map[string]any)["id"].(string)
	time.Sleep(2 * time.Millisecond)
	succeeded := b.pay("succeeded", first, "pm_card_visa")
	require.Equal(t, http.StatusCreated, succeeded.status, succeeded.body)
	waits := b.pay("waits", second, "pm_card_authenticationRequired").id()
	list := func(query string) []string { t.Helper(); return b.of(t).listed("/v1/payments", query) }
	require.Equal(t, []string{waits, succeeded.id(), declined}, list(""))
	for status, want := range map[string][]string{
		"succeeded": {succeeded.id()}, "failed": {declined}, "requires_action": {waits}, "processing": nil,
		"canceled": nil, "authorized": nil,
	} {
		require.Equal(t, want, list("status="+status), status)
	}
	require.Equal(t, []string{succeeded.id(), declined}, list("order_id="+first))
	require.Equal(t, []string{declined}, list("order_id="+first+"&status=failed"))
	require.Empty(t, list("order_id="+second+"&status=failed"))
	require.Empty(t, list("order_id="+ids.New(ids.Order)))
	at := succeeded.object["created_at"].(string)
	require.Equal(t, []string{waits, succeeded.id()}, list("created_after="+at))
	require.Equal(t, []string{declined}, list("created_before="+at))
	require.Empty(t, list("created_before=0001-01-01T00:00:00Z"))
	require.Equal(t, []string{declined}, list("order_id="+first+"&created_before="+at))
	require.Empty(t, list("status=failed&created_after="+at))
	require.Equal(t, []string{succeeded.id()}, list("status=succeeded&created_after="+at))
	_, err := b.pool.Raw().Exec(t.Context(), "UPDATE payments SET status = 'processing', next_action = NULL WHERE id = $1",
		waits)
	require.Error(t, err, "what waited for its customer ends")
	b.allRefused("/v1/payments", "status=open", "status=", "order_id=", "order_id=x", "order_id="+waits,
		"order_id=ord_%00", "created_after=x", "created_before=x", "customer_reference=ann", "payment_id="+waits,
		"starting_after="+first, "starting_after="+waits+"&order_id="+first)
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	for _, query := range []string{"status=succeeded", "status=failed", "order_id=" + first} {
		require.Empty(t, other.listed("/v1/payments", query), query)
	}
}

func TestRefundsAreFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.order("first"), b.order("second")
	one, two := b.pay("one", first, "pm_card_visa").id(), b.pay("two", second, "pm_card_visa").id()
	refund := func(key, payment string) string {
		time.Sleep(2 * time.Millisecond) // the next one has another time
		a := b.post("/v1/payments/"+payment+"/refunds", key, `{"amount":100}`)
		require.Equal(t, http.StatusCreated, a.status, a.body)
		return a.id()
	}
	x, y, z := refund("x", one), refund("y", two), refund("z", one)
	_, err := b.pool.Raw().Exec(t.Context(), "UPDATE refunds SET status = 'failed', version = 3 WHERE id = $1", x)
	require.NoError(t, err)
	list := func(query string) []string { t.Helper(); return b.of(t).listed("/v1/refunds", query) }
	require.Equal(t, []string{z, y, x}, list(""))
	require.Equal(t, []string{z, x}, list("payment_id="+one))
	require.Equal(t, []string{y}, list("order_id="+second))
	require.Equal(t, []string{x}, list("status=failed"))
	require.Equal(t, []string{z, y}, list("status=succeeded"))
	require.Empty(t, list("status=pending"))
	require.Empty(t, list("status=canceled"))
	require.Equal(t, []string{z}, list("payment_id="+one+"&status=succeeded"))
	require.Equal(t, []string{x}, list("order_id="+first+"&status=failed"))
	require.Equal(t, []string{z, x}, list("order_id="+first+"&payment_id="+one))
	require.Empty(t, list("order_id="+second+"&payment_id="+one))
	require.Empty(t, list("payment_id="+ids.New(ids.Payment)))
	b.allRefused("/v1/refunds", "status=paid", "status=", "payment_id=", "payment_id="+first, "order_id="+one, "order_id=",
		"created_after=2026-01-01T00:00:00Z", "limit=101", "starting_after="+one, "starting_after=rfd_%00",
		"starting_after="+ids.Keyed(ids.Refund, "ten_1", "k"), "starting_after="+y+"&payment_id="+one,
		"starting_after="+y+"&order_id="+first)
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	for _, query := range []string{"", "status=succeeded", "payment_id=" + one, "order_id=" + first} {
		require.Empty(t, other.listed("/v1/refunds", query), query)
	}
	other.allRefused("/v1/refunds", "starting_after="+x)
}
