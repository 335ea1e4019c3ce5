package disputes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/dbtest"
)

// A list reads its page from an index, in order, and not all disputes of the tenant.
func TestDisputeListsReadOneIndex(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	conn, err := pool.Raw().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, setting := range []string{"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off",
		"SET ROLE payonce_service", "SET payonce.tenants = 'ten_1'"} {
		_, err = conn.Exec(t.Context(), setting)
		require.NoError(t, err)
	}
	for name, list := range map[string]struct {
		sql        string
		parameters int
	}{
		"disputes_by_time":    {db.DisputeList, 4},
		"disputes_by_status":  {db.DisputeListOfStatus, 5},
		"disputes_of_payment": {db.DisputeListOfPayment, 6},
		"disputes_of_order":   {db.DisputeListOfOrder, 6},
	} {
		_, err := conn.Exec(t.Context(), "PREPARE "+name+" AS "+list.sql)
		require.NoError(t, err)
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE "+name+"("+
			strings.TrimSuffix(strings.Repeat("NULL,", list.parameters), ",")+")")
		require.NoError(t, err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		require.NoError(t, rows.Err())
		require.Contains(t, plan.String(), "Index Scan Backward using "+name+" ")
		require.NotContains(t, plan.String(), "Sort")
	}
}
