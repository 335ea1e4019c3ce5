package stores

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// TestCron: the service's reaper is off, and pg_cron runs the jobs of docs/operations.md. They drop what the reaper would
// drop and nothing else; a key never executes twice; and while no job runs, service and doctor say so.
func TestCron(t *testing.T) {
	t.Parallel()
	installed.File(t, filepath.Join("/usr/lib/postgresql", "*", "lib", "pg_cron.so"), "PostgreSQL's package for pg_cron")
	server := dbtest.Server(t, func(o *devpg.Options) {
		o.Only, o.Durable = devpg.FromLocal, false
		o.Settings = map[string]string{
			"shared_preload_libraries": "pg_cron", "cron.use_background_workers": "on", "cron.timezone": "UTC",
		} // and cron.database_name is postgres, which is the world's
	})
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	p := w.Process()

	orders := map[string]string{}
	pay := func(key, method string, status int) world.Answer {
		t.Helper()
		if orders[key] == "" {
			orders[key] = p.Order()
		}
		a := p.Pay(key, orders[key], method)
		require.Equal(t, status, a.Status, "%s: %s", key, a)
		return a
	}
	old := pay("old", "pm_card_visa", http.StatusCreated)
	pay("recent", "pm_card_visa", http.StatusCreated)
	pay("nine-years", "pm_card_visa", http.StatusCreated)
	pay("eleven-years", "pm_card_visa", http.StatusCreated)
	waiting := pay("waiting", "pm_card_threeDSecure2Required", http.StatusAccepted) // for its customer
	age(w, "old", "73 hours 5 minutes")
	age(w, "recent", "71 hours 55 minutes")
	age(w, "waiting", "11 years")
	for key, since := range map[string]string{"nine-years": "9 years", "eleven-years": "11 years"} {
		age(w, key, since)
		inactive(w, `answer_dropped_at = finished_at, request = NULL, traceparent = NULL, answer_version = NULL,
			answer_status = NULL, answer_headers = NULL, answer_body = NULL`, key)
	}

	p.Kill()
	p = w.Process("IDEMPOTENCY_REAPER=false") // whose loops run once at the start

	t.Run("TheServiceDropsNothingAndSaysSo", func(t *testing.T) {
		w.Until("the loop reports it", func() bool {
			return strings.Contains(p.Log(), `"loop":"key reaper","error":"the oldest stored response finished 73h5m0s ago`)
		})
		out, _ := w.Command([]string{"doctor"}, "IDEMPOTENCY_REAPER=false").CombinedOutput() // which misses Stripe's webhooks
		require.Regexp(t, `(?m)^warn +database\.retention .*finished 73h5m0s ago`, string(out))
		require.True(t, pay("old", "pm_card_visa", http.StatusCreated).Replayed())
		require.Zero(t, p.Metric("payonce_keys_reaped_total"))
	})

	set, err := pgx.Connect(t.Context(), w.URL)
	require.NoError(t, err)
	_, err = set.PgConn().Exec(t.Context(), documented(t)).ReadAll()
	require.NoError(t, errors.Join(err, set.Close(t.Context())))
	require.Equal(t, 2, w.Count(`SELECT count(*) FROM cron.job WHERE active AND username = 'payonce_service'`))

	// A job of the next minute would be waited for. One at pg_cron's own start is due at once.
	w.Exec(`UPDATE cron.job SET schedule = '@reboot'`)
	require.NoError(t, server.Restart("fast"))
	w.Until("both jobs have run", func() bool {
		var ended int
		err := w.DB.Raw().QueryRow(t.Context(), `SELECT count(DISTINCT jobid) FROM cron.job_run_details
			WHERE status IN ('succeeded', 'failed')`).Scan(&ended)
		return err == nil && ended == 2 // while the server restarts it refuses connections
	})
	require.Empty(t, w.Text(`SELECT coalesce(string_agg(return_message, '; '), '') FROM cron.job_run_details
		WHERE status <> 'succeeded' OR username <> 'payonce_service'`))

	t.Run("DropsOldResponsesAndKeepsTheirKeys", func(t *testing.T) {
		gone := pay("old", "pm_card_visa", http.StatusGone)
		require.Equal(t, "idempotency-key-expired", gone.Code())
		require.Equal(t, "/v1/payments/"+old.ID(), gone.Problem().Resource.Href)
		w.RequireChargedOnce(orders["old"])
		require.Equal(t, 1, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'old'
			AND num_nonnulls(answer_version, answer_status, answer_headers, answer_body, request, traceparent) = 0`))
	})

	t.Run("KeepsRecentResponses", func(t *testing.T) {
		require.True(t, pay("recent", "pm_card_visa", http.StatusCreated).Replayed())
		w.RequireChargedOnce(orders["recent"])
	})

	t.Run("KeepsTombstonesForTenYears", func(t *testing.T) {
		pay("nine-years", "pm_card_visa", http.StatusGone)
		require.Zero(t, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'eleven-years'`))
		// Even then: the order is paid.
		require.Equal(t, http.StatusConflict, p.Pay("eleven-years", orders["eleven-years"], "pm_card_visa").Status)
		w.RequireChargedOnce(orders["eleven-years"])
	})

	t.Run("NeverTouchesUnfinishedWork", func(t *testing.T) {
		require.Equal(t, 1, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'waiting' AND finished_at IS NULL
			AND answer_dropped_at IS NULL`))
		require.Equal(t, waiting.ID(), pay("waiting", "pm_card_threeDSecure2Required", http.StatusAccepted).ID())
	})
	w.RequireSound()
}

// TestCronJobsAreTheReapers: the text of the documents is the service's own statement, with its parameters filled in.
func TestCronJobsAreTheReapers(t *testing.T) {
	t.Parallel()
	jobs := words(documented(t))
	for query, retention := range map[string]string{db.KeyDropAnswers: "72 hours", db.KeyDeleteTombstones: "3650 days"} {
		_, sql, _ := strings.Cut(query, "\n") // after its name
		sql = words(strings.NewReplacer("$1::interval", "interval '"+retention+"'", "LIMIT $3 OFFSET $2", "LIMIT 10000").Replace(sql))
		require.Contains(t, jobs, "SELECT set_config('payonce.tenants', '*', true); "+sql)
	}
	require.Equal(t, idempotency.TombstoneRetention, 3650*24*time.Hour)
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// documented is the block of docs/operations.md that sets the jobs up.
func documented(t *testing.T) string {
	t.Helper()
	page, err := inventory.Read("docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(page, "### Retention by a job in the database\n")
	require.True(t, found)
	_, block, found := strings.Cut(section, "```postgresql\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	return block
}

// age makes a key older by that much, with all its times.
func age(w *world.World, key, by string) {
	w.T.Helper()
	inactive(w, "created_at = created_at - $2::text::interval, finished_at = finished_at - $2::text::interval", key, by)
}

// inactive changes a key past its triggers, which refuse to rewrite the past.
func inactive(w *world.World, set string, key string, args ...any) {
	w.T.Helper()
	w.Exec(`WITH off AS (SELECT set_config('session_replication_role', 'replica', true))
		UPDATE idempotency_keys SET `+set+` FROM off WHERE key = $1`, append([]any{key}, args...)...)
}
