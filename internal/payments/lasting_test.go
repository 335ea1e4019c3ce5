package payments_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// TestWhatLastsIsListedByTheIndex: what is open or processing for a while is marked, in rounds, and a list of it has the
// same before, while and after that.
func TestWhatLastsIsListedByTheIndex(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	w.Exec(dbtest.WithoutRules)
	old, older := time.Now().Add(-time.Hour), time.Now().Add(-48*time.Hour)
	orders, processing := []string{}, []string{}
	var rows strings.Builder // sent at once
	insert := func(at time.Time, status, payment string) {
		order := ids.At(ids.Order, at)
		if payment != "" {
			id := ids.At(ids.Payment, at)
			fmt.Fprintf(&rows, `INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency,
				payment_method, intent_number, intent_id, created_at, status) VALUES ('%s', '%s', '%s', '%[2]s', 1000, 'usd',
				'pm_1', 1, 'pi_1', now(), '%[4]s');`, w.Tenant.ID, id, order, payment)
			if payment == "processing" {
				processing = append([]string{id}, processing...)
			}
		}
		fmt.Fprintf(&rows, `INSERT INTO orders (tenant_id, id, currency, amount_minor, items, created_at, status, payment_id)
			VALUES ('%s', '%s', 'usd', 1000, '[]', now(), '%s', 'pay');`, w.Tenant.ID, order, status)
		if status == "open" {
			orders = append([]string{order}, orders...)
		}
	}
	const many = 503 // more than one round marks
	for i := range many {
		insert(older.Add(time.Duration(i)*time.Second), "open", "processing")
	}
	insert(old, "paid", "succeeded")
	insert(old.Add(time.Second), "open", "processing")
	insert(old.Add(2*time.Second), "canceled", "failed")
	insert(time.Now(), "open", "processing")
	insert(time.Now(), "paid", "succeeded")
	w.Exec(rows.String())
	listed := func(read func(after string) (ids []string, more bool)) (all []string) {
		for after, more := "", true; more; after = all[len(all)-1] {
			var page []string
			page, more = read(after)
			all = append(all, page...)
		}
		return all
	}
	same := func() {
		t.Helper()
		require.Equal(t, orders, listed(func(after string) (page []string, more bool) {
			list, more, err := api.Payments.ListOrders(t.Context(), w.Tenant.ID, payments.Filter{Status: "open"}, after, 100)
			require.NoError(t, err)
			for _, o := range list {
				page = append(page, o.ID)
			}
			return page, more
		}))
		require.Equal(t, processing, listed(func(after string) (page []string, more bool) {
			f := payments.Filter{Status: "processing"}
			list, more, err := api.Payments.ListPayments(t.Context(), w.Tenant.ID, f, after, 100)
			require.NoError(t, err)
			for _, p := range list {
				page = append(page, p.ID)
			}
			return page, more
		}))
	}
	marked := func() int {
		return w.Count("SELECT count(*) FROM orders WHERE lasting") + w.Count("SELECT count(*) FROM payments WHERE lasting")
	}
	covered := func() int {
		return w.Count("SELECT count(covered_through) FROM reconciliation_windows WHERE name = 'lasting'")
	}
	same()
	n, err := api.Payments.MarkLasting(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1000, n)
	require.Equal(t, 1000, marked())
	require.Zero(t, covered(), "there are more")
	same()
	n, err = api.Payments.MarkLasting(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, n)
	require.Equal(t, 1, covered())
	require.Equal(t, 2*(many+1), marked(), "those that are young are not")
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM reconciliation_windows WHERE name = 'lasting'
		AND covered_through BETWEEN now() - interval '16 minutes' AND now() - interval '14 minutes'`))
	same()
	n, err = api.Payments.MarkLasting(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	same()

	// Only the index says now what is old: had the list looked at the rows, it would have this one.
	w.Exec(fmt.Sprintf("UPDATE orders SET lasting = false WHERE id = '%s'", orders[1]))
	orders = append(orders[:1:1], orders[2:]...)
	same()

	// An order that was authorized and is open again needs no mark.
	w.Exec(fmt.Sprintf("UPDATE orders SET status = 'authorized', version = 2, lasting = false WHERE id = '%s'", orders[3]))
	w.Exec(fmt.Sprintf("UPDATE orders SET status = 'open', version = 3 WHERE id = '%s'", orders[3]))
	same()
	// One that was paid is in no list of open ones.
	w.Exec(fmt.Sprintf("UPDATE orders SET status = 'paid', version = 2 WHERE id = '%s'", orders[2]))
	w.Exec(fmt.Sprintf("UPDATE payments SET status = 'succeeded', version = 2 WHERE id = '%s'", processing[2]))
	orders = append(orders[:2:2], orders[3:]...)
	processing = append(processing[:2:2], processing[3:]...)
	same()
}

// TestOneProcessMarksWhatLasts: another finds the window locked, and does not wait for it.
func TestOneProcessMarksWhatLasts(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	_, err := api.Payments.MarkLasting(t.Context())
	require.NoError(t, err)
	w.Exec("UPDATE reconciliation_windows SET covered_through = NULL WHERE name = 'lasting'")
	tx, err := api.Pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM reconciliation_windows WHERE name = 'lasting' FOR UPDATE")
	require.NoError(t, err)
	n, err := api.Payments.MarkLasting(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, w.Count("SELECT count(covered_through) FROM reconciliation_windows WHERE name = 'lasting'"))
	require.Equal(t, http.StatusOK, api.Get("/v1/orders?status=open").Status)
}
