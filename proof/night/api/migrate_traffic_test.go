package api_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/world"
)

const newOrder = `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`

// morePayments copies the one payment there is, with triggers and references switched off.
const morePayments = `
SET session_replication_role = replica;
DO $$
DECLARE columns text;
BEGIN
	SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO columns FROM pg_attribute
	WHERE attrelid = 'payments'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '';
	EXECUTE format('INSERT INTO payments (%s) SELECT %s FROM (
		SELECT (jsonb_populate_record(p, jsonb_build_object(''id'', p.id || n, ''order_id'', p.order_id || n,
			''idempotency_key'', p.idempotency_key || n, ''intent_id'', p.intent_id || n, ''charge_id'', p.charge_id || n))).*
		FROM payments p, generate_series(1, $payments) n) copies', columns, columns);
END $$;
ANALYZE payments`

// TestMigrationUnderTraffic migrates a large table while it is used, and while a report that takes its time has read it.
// Every request is answered as always. MIGRATION_PAYMENTS is a number of payments; the night has a million.
func TestMigrationUnderTraffic(t *testing.T) {
	payments, _ := strconv.Atoi(os.Getenv("MIGRATION_PAYMENTS"))
	slowest := time.Second
	if payments == 0 {
		payments, slowest = 100_000, 5*time.Second // Others use this machine at the same time.
	}
	w := world.New(t)
	p := w.Process()
	require.Equal(t, http.StatusCreated, p.PayUntilFinal("first", p.Order(), "pm_card_visa").Status)
	report, err := pgx.Connect(t.Context(), w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = report.Close(context.Background()) })
	_, err = report.PgConn().Exec(t.Context(), os.Expand(morePayments, func(name string) string {
		if name == "payments" {
			return strconv.Itoa(payments)
		}
		return "$" + name
	})).ReadAll()
	require.NoError(t, err)

	all := fstest.MapFS{
		"90001_column.sql":     {Data: []byte(`ALTER TABLE payments ADD COLUMN note text`)},
		"90002_constraint.sql": {Data: []byte(`ALTER TABLE payments ADD CONSTRAINT note_is_short CHECK (length(note) < 99) NOT VALID`)},
		"90003_validate.sql":   {Data: []byte(`ALTER TABLE payments VALIDATE CONSTRAINT note_is_short`)},
		"90004_index.sql":      {Data: []byte(`CREATE INDEX CONCURRENTLY payments_by_note ON payments (tenant_id, note, id)`)},
	}
	own, err := fs.Sub(db.Migrations, "migrations")
	require.NoError(t, err)
	names, err := fs.Glob(own, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(own, name)
		require.NoError(t, err)
		all[name] = &fstest.MapFile{Data: text}
	}
	next, err := postgres.Open(t.Context(), w.URL, postgres.Options{Name: "migrator", MaxConn: 4, Migrations: all})
	require.NoError(t, err)
	t.Cleanup(next.Close)

	_, err = report.Exec(t.Context(), `BEGIN`)
	require.NoError(t, err)
	_, err = report.Exec(t.Context(), `SELECT FROM payments LIMIT 1`)
	require.NoError(t, err)

	var traffic sync.WaitGroup
	var mu sync.Mutex
	var bad []string
	took, requests := time.Duration(0), 0
	stop := make(chan struct{})
	note := func(began time.Time, a world.Answer) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		took = max(took, time.Since(began))
		if a.Err != nil || a.Status >= http.StatusInternalServerError {
			bad = append(bad, a.String())
		}
	}
	for client := range 4 {
		traffic.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				a := p.Post("/v1/orders", fmt.Sprint("order-", client, "-", n), newOrder)
				note(began, a)
				if a.Status != http.StatusCreated {
					continue
				}
				began = time.Now()
				note(began, p.Pay(fmt.Sprint("pay-", client, "-", n), a.ID(), "pm_card_visa"))
			}
		})
	}
	end := sync.OnceFunc(func() { close(stop); traffic.Wait() })
	defer end()

	migrated := make(chan error, 1)
	go func() {
		_, err := next.Migrate(t.Context())
		migrated <- err
	}()
	waits := func() bool {
		return w.Count(`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'payments'::regclass
			AND mode = 'AccessExclusiveLock'`) > 0
	}
	for range 2 { // It has let go, and tries again.
		w.Until("the migration waits for its lock", waits)
		w.Until("it lets go", func() bool { return !waits() })
	}
	_, err = report.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	require.NoError(t, <-migrated)
	end()
	t.Logf("%d payments, %d requests, the slowest took %s", payments, requests, took)
	require.Empty(t, bad)
	require.Greater(t, requests, 20)
	require.Less(t, took, slowest)
	require.NoError(t, next.CheckSchema(t.Context()))
}
