package protocol

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// notChanged are the legal changes that the model does not make, with the reason.
var notChanged = map[string]string{
	"refund pending canceled":   "a refund that a person cancels ends as one that fails; the model has the latter",
	"refund succeeded canceled": "the same",
}

// TestLegalTransitions compares the changes of statuses that the model calls legal with those that the database allows.
func TestLegalTransitions(t *testing.T) {
	t.Parallel()
	require.Equal(t, legal(t, "payment", paymentStatuses[:]), names("payment", paymentStatuses[:], legalPayments))
	require.Equal(t, legal(t, "order", orderStatuses[:]), names("order", orderStatuses[:], legalOrders))
	require.Equal(t, legal(t, "refund", refundStatuses[:]), names("refund", refundStatuses[:], legalRefunds))
}

// requireMade: the model has made every legal change but those that are listed.
func requireMade(t *testing.T, made *changes) {
	t.Helper()
	for name, m := range map[string]struct {
		legal map[change]bool
		made  [statusMax][statusMax]bool
		names []string
	}{
		"payment": {legalPayments, made.payment, texts(paymentStatuses[:])},
		"order":   {legalOrders, made.order, texts(orderStatuses[:])},
		"refund":  {legalRefunds, made.refund, texts(refundStatuses[:])},
	} {
		for c := range m.legal {
			pair := name + " " + m.names[c.from] + " " + m.names[c.to]
			require.Equal(t, notChanged[pair] == "", m.made[c.from][c.to], "%s: %s", pair, notChanged[pair])
		}
	}
}

func texts[S ~string](statuses []S) (list []string) {
	for _, s := range statuses {
		list = append(list, string(s))
	}
	return list
}

// names are legal changes by their names.
func names[S ~string](table string, statuses []S, legal map[change]bool) map[string]bool {
	found := map[string]bool{}
	for c := range legal {
		found[fmt.Sprintf("%s %s %s", table, statuses[c.from], statuses[c.to])] = true
	}
	return found
}

// rowsOf insert a row with a status, and change it. Everything but the status is as any status allows.
var rowsOf = map[string]struct{ insert, change string }{
	"payment": {
		`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, intent_id, created_at, status, failure_code, intent_closed, manual_capture, capture_before,
			captured_minor)
		VALUES ('t', 'p', 'o', 'k', 2, 'eur', 'pm', 1, 'pi_1', clock_timestamp(), $1::text::payment_status,
			CASE WHEN $1::text = 'failed' THEN 'x' END, true, true,
			CASE WHEN $1::text = 'authorized' THEN clock_timestamp() END, CASE WHEN $1::text = 'succeeded' THEN 1 END)`,
		`UPDATE payments SET status = $1::text::payment_status, version = version + 1,
			failure_code = CASE WHEN $1::text = 'failed' THEN 'x' END,
			capture_before = CASE WHEN $1::text = 'authorized' THEN clock_timestamp() END,
			captured_minor = CASE WHEN $1::text = 'succeeded' THEN 1 END`,
	},
	"order": {
		`INSERT INTO orders (tenant_id, id, amount_minor, currency, items, payment_id, created_at, status)
		VALUES ('t', 'o', 2, 'eur', '[]', 'p', clock_timestamp(), $1::text::order_status)`,
		`UPDATE orders SET status = $1::text::order_status`,
	},
	"refund": {
		`INSERT INTO refunds (tenant_id, id, origin, payment_id, order_id, idempotency_key, stripe_key,
			stripe_refund_id, amount_minor, currency, created_at, status)
		VALUES ('t', 'r', 'api', 'p', 'o', 'k', 't:k', 're_1', 2, 'eur', clock_timestamp(), $1::text::refund_status)`,
		`UPDATE refunds SET status = $1::text::refund_status, version = version + 1`,
	},
}

// legal are the changes that the triggers of a real database allow: each pair is tried.
func legal[S ~string](t *testing.T, table string, statuses []S) map[string]bool {
	t.Helper()
	pool := dbtest.New(t)
	sql, allowed := rowsOf[table], map[string]bool{}
	for _, from := range statuses[1:] {
		for _, to := range statuses[1:] {
			if from == to {
				continue
			}
			_, err := pool.Raw().Exec(t.Context(), `DELETE FROM `+table+`s`)
			require.NoError(t, err)
			_, err = pool.Raw().Exec(t.Context(), sql.insert, string(from))
			require.NoError(t, err, "%s %s", table, from)
			_, err = pool.Raw().Exec(t.Context(), sql.change, string(to))
			if err == nil {
				allowed[fmt.Sprintf("%s %s %s", table, from, to)] = true
				continue
			}
			var refused *pgconn.PgError
			require.True(t, errors.As(err, &refused), "%v", err)
			require.Equal(t, table+"_transition_is_legal", refused.ConstraintName, "%s %s to %s", table, from, to)
		}
	}
	return allowed
}
