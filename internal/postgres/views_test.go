package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// TestCallsOfPayments: the conditions of a view are in no query, so no mutant leaves them out. What the views of calls
// show is compared whole: a payment shows what it has sent, unless a row of its own tenant says more.
func TestCallsOfPayments(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, sql := range []string{
		`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method, intent_number,
			intent_id, create_sent_at, create_request_id, confirm_sent_at, confirm_request_id, created_at)
		SELECT 'a:b', name, 'o_' || name, 'k_' || name, 1000, 'usd', 'pm', 1, intent, created, created_req, confirmed,
			confirmed_req, now()
		FROM (VALUES ('adopted', 'pi', NULL::timestamptz, NULL, NULL::timestamptz, NULL),
			('begun', NULL, now(), NULL, NULL, NULL), ('first', 'pi', now(), 'req', now(), NULL),
			('paid', 'pi', now(), 'req', now(), 'req'), ('quiet', 'pi', now(), '', now(), ''),
			('repeated', 'pi', now(), 'req', now(), NULL))
			p(name, intent, created, created_req, confirmed, confirmed_req)`,
		`INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256, attempts, outcome) VALUES
			('a:b', 'a:b:o_repeated:intent:1', 'create_intent', 'o_repeated', '', 2, 'done'),
			('a:b', 'a:b:k_repeated:confirm', 'confirm', 'repeated', '', 2, 'unknown'),
			('a', 'a:b:o_begun:intent:1', 'create_intent', 'o_begun', '', 9, 'refused'),
			('a', 'a:b:k_first:confirm', 'confirm', 'first', '', 9, 'refused')`,
	} {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	type call struct{ Says string }
	said := func(sql string) (list []string) {
		for _, c := range all[call](t, pool, sql) {
			list = append(list, c.Says)
		}
		return list
	}
	require.Equal(t, []string{
		"k_first:confirm 1 sent {}", "k_paid:confirm 1 done {req}", "k_quiet:confirm 1 done {}",
		"k_repeated:confirm 2 unknown {}",
		"o_begun:intent:1 1 sent {}", "o_first:intent:1 1 done {req}", "o_paid:intent:1 1 done {req}",
		"o_quiet:intent:1 1 done {}", "o_repeated:intent:1 2 done {}",
	}, said(`SELECT concat_ws(' ', substr(stripe_key, 5), attempts, outcome, request_ids) AS says FROM stripe_calls
		WHERE tenant_id = 'a:b' ORDER BY 1`))
	require.Equal(t, []string{"a:b k_first"},
		said(`SELECT concat_ws(' ', tenant_id, key) AS says FROM confirms_without_outcome ORDER BY 1`))
}
