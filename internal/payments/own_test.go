package payments_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestOrderOfAnIntent: metadata leads to an order, and that a payment of the order has the intent decides. Each row
// says what the metadata of the intent names and what that of its charge does, and the statements that it takes.
func TestOrderOfAnIntent(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	order, other := api.Order(), api.Order()
	require.Equal(t, "succeeded", api.Pay("k", order, visa).Get("status"))
	intent := w.IntentOfOrder(order)
	paid, unpaid := stripe.Order{TenantID: w.Tenant.ID, OrderID: order}, stripe.Order{TenantID: w.Tenant.ID, OrderID: other}
	elsewhere := stripe.Order{TenantID: w.NewTenant().ID, OrderID: order}
	named := func(named, charged stripe.Order) stripe.Intent {
		i, err := api.Gateway.GetIntent(t.Context(), stripe.NoTenant, intent)
		require.NoError(t, err)
		i.TenantID, i.OrderID, i.Charged, i.Operation = named.TenantID, named.OrderID, charged, "of_metadata"
		return i
	}
	const reads, looks = "PaymentOfIntent", "PaymentOfIntentElsewhere"
	for name, c := range map[string]struct {
		named, charged stripe.Order
		own, located   stripe.Order
		statements     [2]string // of OwnIntent and of LocateIntent
	}{
		"Alike":             {paid, paid, paid, paid, [2]string{"", reads}},
		"NotCharged":        {paid, stripe.Order{}, paid, paid, [2]string{"", reads}},
		"Edited":            {unpaid, paid, paid, paid, [2]string{reads, reads + " " + reads}},
		"EditedTenant":      {elsewhere, paid, paid, paid, [2]string{reads, reads + " " + reads}},
		"EditedTheCharge":   {paid, unpaid, paid, paid, [2]string{reads, reads + " " + reads}},
		"EditedBoth":        {unpaid, unpaid, unpaid, paid, [2]string{"", reads + " " + looks}},
		"EditedUncharged":   {unpaid, stripe.Order{}, unpaid, paid, [2]string{"", reads + " " + looks}},
		"EditedDifferently": {elsewhere, unpaid, elsewhere, paid, [2]string{reads, reads + " " + reads + " " + looks}},
	} {
		t.Run(name, func(t *testing.T) {
			i := named(c.named, c.charged)
			seen(proxy)
			own, err := payments.OwnIntent(t.Context(), api.Pool.Queries, i)
			require.NoError(t, err)
			require.Equal(t, c.own, stripe.Order{TenantID: own.TenantID, OrderID: own.OrderID})
			require.Equal(t, c.own != c.named, own.Operation == "", "it is of the metadata that named it")
			require.Equal(t, c.statements[0], seen(proxy))
			located, err := payments.LocateIntent(t.Context(), api.Pool.Queries, i)
			require.NoError(t, err)
			require.Equal(t, c.located, stripe.Order{TenantID: located.TenantID, OrderID: located.OrderID})
			require.Equal(t, c.statements[1], seen(proxy))
			r, err := payments.OwnRefund(t.Context(), api.Pool.Queries,
				stripe.Refund{IntentID: intent, TenantID: c.named.TenantID, OrderID: c.named.OrderID, Charged: c.charged})
			require.NoError(t, err)
			require.Equal(t, c.own, stripe.Order{TenantID: r.TenantID, OrderID: r.OrderID})
		})
	}

	t.Run("UnpaidIsNotLookedFor", func(t *testing.T) {
		i := named(unpaid, stripe.Order{})
		i.Status = stripe.IntentRequiresAction
		seen(proxy)
		located, err := payments.LocateIntent(t.Context(), api.Pool.Queries, i)
		require.NoError(t, err)
		require.Equal(t, other, located.OrderID)
		require.Empty(t, seen(proxy))
	})

	for name, c := range map[string]struct {
		statement string
		nth       int
	}{"Charged": {reads, 1}, "Known": {reads, 2}, "Elsewhere": {looks, 1}} {
		t.Run("FailsIfItCannotRead/"+name, func(t *testing.T) {
			cut := proxy.Fail("name: "+c.statement+" ", c.nth)
			_, err := payments.LocateIntent(t.Context(), api.Pool.Queries, named(elsewhere, unpaid))
			require.ErrorContains(t, err, pgproxy.FailureText("name: "+c.statement))
			require.True(t, cut.HasFired())
		})
	}
	t.Run("FailsIfItCannotRead/Refund", func(t *testing.T) {
		cut := proxy.Fail("name: "+reads+" ", 1)
		_, err := payments.OwnRefund(t.Context(), api.Pool.Queries,
			stripe.Refund{IntentID: intent, TenantID: unpaid.TenantID, OrderID: other, Charged: paid})
		require.ErrorContains(t, err, pgproxy.FailureText("name: "+reads))
		require.True(t, cut.HasFired())
	})
}

// seen are the names of the statements since the last call.
func seen(proxy *pgproxy.Proxy) string {
	var names []string
	for _, statement := range proxy.Seen() {
		if m := statementName.FindStringSubmatch(statement); m != nil {
			names = append(names, m[1])
		}
	}
	return strings.Join(names, " ")
}

// TestTextThatIsNoID: a server cannot even compare some texts with an id.
func TestTextThatIsNoID(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	const tail = "_\x00"
	s, tenant := api.Payments, w.Tenant.ID
	_, err := s.GetOrder(t.Context(), tenant, ids.Order+tail)
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, err = s.GetPayment(t.Context(), tenant, ids.Payment+tail)
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, err = s.GetRefund(t.Context(), tenant, ids.Refund+tail)
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, _, err = s.ListOrders(t.Context(), tenant, payments.Filter{}, ids.Order+tail, 1)
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, _, err = s.ListPayments(t.Context(), tenant, payments.Filter{}, ids.Payment+tail, 1)
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, _, err = s.ListRefunds(t.Context(), tenant, payments.Filter{}, ids.Refund+tail, 1)
	require.ErrorIs(t, err, payments.ErrNotFound)
	for _, path := range []string{
		"/v1/orders/ord_%00/cancel", "/v1/payments/pay_%00/cancel", "/v1/payments/pay_%00/refunds",
	} {
		require.Equal(t, 404, api.Post(path, "k"+path, `{}`).Status, path)
	}
}

// TestListsGoOnAfterAnObject: each page begins after the last object of the one before.
func TestListsGoOnAfterAnObject(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	s, tenant := api.Payments, w.Tenant.ID
	first, second, third := api.Order(), api.Order(), api.Order()
	about := api.Post("/v1/orders", "about", `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":100}],
		"metadata":{"table":"7"}}`).ID()
	described, err := s.GetOrder(t.Context(), tenant, about)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"table": "7"}, described.Metadata)
	orders, more, err := s.ListOrders(t.Context(), tenant, payments.Filter{}, third, 1)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, second, orders[0].ID)
	require.Len(t, orders, 1)

	require.Equal(t, "payment-declined", api.Pay("a", first, declining).Code())
	require.Equal(t, "payment-declined", api.Pay("b", second, declining).Code())
	require.Equal(t, "succeeded", api.Pay("c", first, visa).Get("status"))
	all, more, err := s.ListPayments(t.Context(), tenant, payments.Filter{}, "", 9)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, all, 3)
	require.Equal(t, []string{first, second, first}, []string{all[0].OrderID, all[1].OrderID, all[2].OrderID})
	list := func(order, after string) (of []string) {
		page, _, err := s.ListPayments(t.Context(), tenant, payments.Filter{OrderID: order}, after, 9)
		require.NoError(t, err)
		for _, p := range page {
			of = append(of, p.ID)
		}
		return of
	}
	require.Equal(t, []string{all[1].ID, all[2].ID}, list("", all[0].ID))
	require.Equal(t, []string{all[2].ID}, list(first, all[0].ID))
	_, _, err = s.ListPayments(t.Context(), tenant, payments.Filter{OrderID: first}, all[1].ID, 9)
	require.ErrorIs(t, err, payments.ErrNotFound, "it is in another list")

	for order, want := range map[string]int64{first: 1000, third: 0} {
		o, err := s.GetOrder(t.Context(), tenant, order)
		require.NoError(t, err)
		require.Equal(t, want, o.AmountPaid)
		require.Equal(t, int64(1000), o.Amount)
	}
}
