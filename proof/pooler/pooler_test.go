package pooler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

const (
	described = "cache_describe"
	prepared  = "cache_statement"
)

// setting is a pooler as docs/operations.md describes it, with as many server connections as the service needs: in session
// mode all that its processes open, in transaction mode a few.
type setting struct {
	name       string
	statements string
	lines      []string
}

func settings(t *testing.T) []setting {
	t.Helper()
	all := []setting{
		{"session", prepared, []string{"pool_mode = session", "default_pool_size = 60"}},
		{"transaction", described, []string{"pool_mode = transaction", "default_pool_size = 6"}},
	}
	if keepsPrepared(t) {
		all = append(all, setting{"transaction with prepared statements", prepared, []string{
			"pool_mode = transaction", "default_pool_size = 6", "max_prepared_statements = 500",
		}})
	} else {
		t.Log("this PgBouncer keeps no prepared statements in transaction mode; one of 1.21 or later can be named in PGBOUNCER")
	}
	return all
}

const (
	orders     = 12 // of each of two tenants
	duplicates = 3  // requests at once for each payment and refund
)

// TestServesBehindPgBouncer: two processes behind a pooler that is killed in the middle. Of several requests at once for
// each order, payment and refund, one has its effect, also where Stripe's response was lost; relay and completers finish all
// of it, and the audit through the pooler finds nothing.
func TestServesBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for _, s := range settings(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			b := newBouncer(t, w, append(s.lines, "ignore_startup_parameters = "+ignored)...)
			setTimeouts(w)
			through := "DATABASE_URL=" + b.url(s.statements)
			processes := []*world.Process{w.Process(world.ShortTimes(through)...), w.Process(world.ShortTimes(through)...)}
			tenants := []world.Tenant{w.Tenant, w.NewTenant()}
			w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop, Times: 5})

			// A kill -9 of the pooler comes when a third is paid.
			var paid sync.WaitGroup
			third, killed := make(chan struct{}, 2*orders), make(chan struct{})
			go func() {
				defer close(killed)
				for range 2 * orders / 3 {
					<-third
				}
				b.kill()
				b.start()
			}()
			for _, tenant := range tenants {
				for i := range orders {
					paid.Go(func() {
						buy(t, processes, tenant, i)
						third <- struct{}{}
					})
				}
			}
			paid.Wait()
			<-killed
			w.Until("the completers have finished every key", func() bool {
				return w.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`) == 0
			})
			w.Until("the relay has published every event", func() bool {
				return w.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0
			})
			require.Empty(t, w.Violations())
			require.Equal(t, 2*orders, w.Count(`SELECT count(*) FROM orders WHERE status IN ('paid', 'partially_refunded')`))
			require.Equal(t, 2*orders/2, w.Count(`SELECT count(*) FROM refunds WHERE status = 'succeeded'`))
			for _, tenant := range tenants {
				require.Equal(t, orders, w.Count(`SELECT count(*) FROM payments WHERE tenant_id = $1
					AND status = 'succeeded'`, tenant.ID))
			}
			for _, p := range processes {
				require.NotContains(t, p.Log(), `"status":500`)
				require.NotContains(t, p.Log(), "prepared statement")
			}
			audit, err := w.Command([]string{"audit"}, through).CombinedOutput()
			require.NoError(t, err, string(audit))
			doctor, _ := w.Command([]string{"doctor"}, through).CombinedOutput() // which misses Stripe's webhooks
			require.Contains(t, string(doctor), "behind a connection pooler, with the timeouts and the kind")
		})
	}
}

// buy makes an order and pays it, by several requests at once at any process; of every second payment a part is
// refunded, likewise. Each request is sent until its response is final, under the same key.
func buy(t *testing.T, processes []*world.Process, tenant world.Tenant, i int) {
	t.Helper()
	client := func() world.Client { return processes[rand.IntN(len(processes))].As(tenant) }
	order := final(t, client, "/v1/orders", fmt.Sprint("order-", i),
		`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`)
	payment := final(t, client, "/v1/payments", fmt.Sprint("pay-", i), world.PayBody(order, "pm_card_visa"))
	if i%2 == 0 {
		final(t, client, "/v1/payments/"+payment+"/refunds", fmt.Sprint("refund-", i), `{"amount":300}`)
	}
}

func final(t *testing.T, client func() world.Client, path, key, body string) string {
	t.Helper()
	ids := world.Together(duplicates, func(int) string {
		for end := time.Now().Add(world.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if a := client().Post(path, key, body); a.Err == nil && a.Status == http.StatusCreated {
				return a.ID()
			}
		}
		return "none"
	})
	for _, id := range ids[1:] {
		if id != ids[0] {
			t.Errorf("the responses under the key %s name %v", key, ids)
		}
	}
	return ids[0]
}

// TestScopesEndWithTheirTransactions: transactions of several tenants share two sessions of the server. Each statement
// sees the rows of its own tenant, and one without a tenant sees none: a scope that outlived its transaction would show
// the next one another tenant's rows. The statement is one that names no tenant itself, so nothing but the policy holds
// them apart.
func TestScopesEndWithTheirTransactions(t *testing.T) {
	t.Parallel()
	for _, s := range settings(t) {
		if s.name != "session" {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				scopesEnd(t, s)
			})
		}
	}
}

func scopesEnd(t *testing.T, s setting) {
	t.Helper()
	w := world.New(t)
	b := newBouncer(t, w, append(s.lines, "default_pool_size = 2", "ignore_startup_parameters = "+ignored)...)
	setTimeouts(w)
	local := w.Local(world.LocalOptions{}) // It has no relay, so that events wait.
	waiting := map[string]int64{}          // by scope
	for n, tenant := range map[int64]world.Tenant{2: w.Tenant, 3: w.NewTenant(), 5: w.NewTenant()} {
		for range n {
			local.As(tenant).Order()
		}
		waiting[tenant.ID] = n
	}
	waiting[""], waiting["*"] = 0, 10
	pool, err := postgres.Open(t.Context(), b.url(s.statements), postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pool.Check(t.Context()))

	sees := func(tenant string) (n int64, err error) {
		ctx := t.Context()
		if tenant != "" {
			ctx = postgres.ForTenant(ctx, tenant)
		}
		read := func(q *db.Queries) error {
			stats, err := q.OutboxStats(ctx)
			n = stats.Waiting
			return err
		}
		switch rand.IntN(3) {
		case 0:
			err = pool.InTx(ctx, read)
		case 1:
			err = pool.InReadTx(ctx, read)
		default:
			err = read(pool.Queries)
		}
		return n, err
	}
	var leaks sync.Map
	world.Together(16, func(int) struct{} {
		for range 40 {
			for tenant, want := range waiting { // in any order
				n, err := sees(tenant)
				if err != nil || n != want {
					leaks.Store(fmt.Sprintf("%q saw %d events, not %d: %v", tenant, n, want, err), true)
				}
			}
		}
		return struct{}{}
	})
	leaks.Range(func(leak, _ any) bool { t.Error(leak); return true })
	// Without this, no session would have been passed on from one tenant to another.
	require.LessOrEqual(t, w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND usename = 'payonce_service' AND application_name <> 'local'`), 2)
}

// TestStartsOnlyWithWhatItNeeds: PgBouncer takes things away, and the service says at the start which.
func TestStartsOnlyWithWhatItNeeds(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, dsn string) error {
		t.Helper()
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		return pool.Check(t.Context())
	}
	for mode, lines := range map[string][]string{
		"session":     {"pool_mode = session"},
		"transaction": {"pool_mode = transaction"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if keepsPrepared(t) {
				lines = append(lines, "max_prepared_statements = 0")
			}
			w := world.New(t)
			asDelivered := newBouncer(t, w, lines...)
			require.ErrorContains(t, check(t, asDelivered.url(described)), "ignore_startup_parameters")
			b := newBouncer(t, w, append(lines, "ignore_startup_parameters = "+ignored)...)
			require.ErrorContains(t, check(t, b.url(described)),
				"sessions have no statement_timeout, lock_timeout, idle_in_transaction_session_timeout,")
			setTimeouts(w)
			b.kill() // A session that is open keeps the timeouts that it began with.
			b.start()
			require.NoError(t, check(t, b.url(described)))
			require.ErrorContains(t, check(t, b.url("")), "this is a connection pooler")
			for range 2 { // the second time with what the first has left
				if err := check(t, b.url(prepared)); mode == "session" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "this connection pooler loses prepared statements")
				}
			}

			pool, err := postgres.Open(t.Context(), b.url(described), postgres.Options{})
			require.NoError(t, err)
			defer pool.Close()
			_, err = pool.Migrate(t.Context())
			require.ErrorContains(t, err, "migrate with one that connects to PostgreSQL directly")
		})
	}
}
