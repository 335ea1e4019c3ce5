package postgres_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestBatches: a statement that takes a batch takes no more than it was asked for,
// whatever the planner makes of it. Where the rows to take are a subquery of the
// UPDATE, a planner that is wrong about the table runs it once for each row that it
// tries, each time past the rows that are taken already, and a relay with a batch of
// ten leases everything there is.
func TestBatches(t *testing.T) {
	t.Parallel()
	const due, batch = 12, 3
	// Every join is a nested loop that remembers nothing: what a planner chooses for
	// a table that it believes to be empty.
	open := func(t *testing.T) *postgres.Pool {
		t.Helper()
		u, err := url.Parse(dbtest.URL(t))
		require.NoError(t, err)
		q := u.Query()
		for _, off := range []string{"enable_hashjoin", "enable_mergejoin", "enable_material", "enable_memoize",
			"enable_hashagg", "enable_sort"} {
			q.Set(off, "off")
		}
		q.Set("jit", "off") // What is off costs so much that the server would compile the plan for a second.
		u.RawQuery = q.Encode()
		pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{MaxConn: 2})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	keys := func(t *testing.T, pool *postgres.Pool) {
		t.Helper()
		for i := range due {
			_, err := pool.KeyEnqueue(t.Context(), db.KeyEnqueueParams{
				TenantID: "ten_a", Key: fmt.Sprintf("sweep %d", i), Operation: "sweep", Fingerprint: make([]byte, 32),
				FingerprintVersion: 1,
				RequestID:          "req", ResourceID: "ord", RecoveryPoint: "begun", ClaimToken: uuid.New(),
			})
			require.NoError(t, err)
		}
	}

	t.Run("OfASubqueryAreWhateverThePlannerMakesOfThem", func(t *testing.T) {
		t.Parallel()
		pool := open(t)
		keys(t, pool)
		tag, err := pool.Raw().
			Exec(t.Context(), `UPDATE idempotency_keys SET lease_token = lease_token + 1 WHERE (tenant_id, key) IN (
			SELECT k.tenant_id, k.key FROM idempotency_keys k WHERE k.finished_at IS NULL ORDER BY k.next_attempt_at
			LIMIT 3 FOR UPDATE SKIP LOCKED)`)
		require.NoError(t, err)
		require.Greater(
			t,
			tag.RowsAffected(),
			int64(batch),
			"the trap is not there: this test would not see who walks into it",
		)
	})

	t.Run("OfKeys", func(t *testing.T) {
		t.Parallel()
		pool := open(t)
		keys(t, pool)
		taken, err := pool.KeyTakeOverDue(
			t.Context(),
			db.KeyTakeOverDueParams{ClaimToken: uuid.New(), Lease: time.Minute, BatchMax: batch, Besides: noTenants},
		)
		require.NoError(t, err)
		require.Len(t, taken, batch)
	})

	t.Run("OfTheOutbox", func(t *testing.T) {
		t.Parallel()
		pool := open(t)
		var p db.OutboxAppendParams
		for i := range due {
			for version := range int64(2) {
				p.TenantIds, p.AggregateIds = append(
					p.TenantIds, "ten_a",
				), append(
					p.AggregateIds,
					fmt.Sprintf("ord_%d", i),
				)
				p.Versions, p.Types, p.Data = append(
					p.Versions, version+1,
				), append(
					p.Types, "order.created",
				), append(
					p.Data, []byte(`{}`),
				)
			}
		}
		require.NoError(t, pool.OutboxAppend(t.Context(), p))
		leased, err := pool.OutboxLease(
			t.Context(),
			db.OutboxLeaseParams{Lease: time.Minute, HeadsMax: batch, RunMax: 2},
		)
		require.NoError(t, err)
		require.Len(t, leased, 2*batch)
	})

	t.Run("OfTheInbox", func(t *testing.T) {
		t.Parallel()
		pool := open(t)
		for i := range due {
			_, err := pool.InboxReceive(
				t.Context(),
				db.InboxReceiveParams{
					Consumers: []string{"stripe"}, EventIds: []string{fmt.Sprintf("evt_%d", i)},
					Types: []string{"refund.updated"}, ObjectIds: []string{""}, Payloads: [][]byte{[]byte(`{}`)},
					Traceparents: []string{""},
				},
			)
			require.NoError(t, err)
		}
		leased, err := pool.InboxLease(
			t.Context(),
			db.InboxLeaseParams{Lease: time.Minute, Consumers: []string{"stripe"}, LimitRows: batch},
		)
		require.NoError(t, err)
		require.Len(t, leased, batch)
	})

	// part: webhooks {
	t.Run("OfDeliveries", func(t *testing.T) {
		t.Parallel()
		pool := open(t)
		endpoint := db.EndpointSetParams{TenantID: "ten_a", ID: "whe_1", Url: "https://tenant.example/hook"}
		require.NoError(t, pool.EndpointSet(t.Context(), endpoint))
		for i := range due {
			require.NoError(t, pool.DeliveryInsert(t.Context(), db.DeliveryInsertParams{
				TenantID: "ten_a", ID: fmt.Sprint("whd_", i), EndpointID: "whe_1", EventID: fmt.Sprintf("ord_%d-1", i),
				EventType: "order.paid", Body: []byte(`{}`),
			}))
		}
		leased, err := pool.DeliveryLease(
			t.Context(),
			db.DeliveryLeaseParams{Lease: time.Minute, Busy: []string{}, Among: []string{}, PerEndpoint: batch, LimitRows: batch},
		)
		require.NoError(t, err)
		require.Len(t, leased, batch)
	})
	// part: webhooks }

	// The others are held to the form that makes it so.
	t.Run("AreTakenOnce", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("../../db/queries/*.sql")
		require.NoError(t, err)
		writes := regexp.MustCompile(
			`(?m)\b(UPDATE \w+( AS)? ?\w* ?SET|UPDATE \w+ \w+$|UPDATE \w+ \w+ SET|DELETE FROM)\b`,
		)
		found := 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, statement := range strings.Split(string(text), "-- name: ")[1:] {
				if !writes.MatchString(statement) {
					continue
				}
				name, _, _ := strings.Cut(statement, " ")
				for _, at := range regexp.MustCompile(`LIMIT @`).FindAllStringIndex(statement, -1) {
					found++
					around := enclosing(statement[:at[0]])
					// looked for once for each row of a part that is itself taken once
					if strings.HasSuffix(around, " CROSS JOIN LATERAL ") {
						around = enclosing(around)
					}
					require.True(
						t,
						strings.HasSuffix(around, " AS MATERIALIZED "),
						"%s: %s limits rows that it may look for twice", file, name,
					)
				}
			}
		}
		require.GreaterOrEqual(t, found, 8, "the statements were not read")
	})
}

// enclosing is what stands before the parenthesis that is open at the end of a text.
func enclosing(text string) string {
	depth := 0
	for i := len(text) - 1; i >= 0; i-- {
		switch text[i] {
		case ')':
			depth++
		case '(':
			if depth == 0 {
				return text[:i]
			}
			depth--
		}
	}
	return ""
}
