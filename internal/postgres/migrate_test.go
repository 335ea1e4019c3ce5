package postgres_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// migrating is a pool whose migrations are the given ones, by name.
func migrating(t *testing.T, dsn string, files map[string]string) *postgres.Pool {
	t.Helper()
	all := fstest.MapFS{}
	for name, sql := range files {
		all[name] = &fstest.MapFile{Data: []byte(sql)}
	}
	pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 4, Statement: time.Second, Migrations: all})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

const widgets = `CREATE TABLE widgets (id integer PRIMARY KEY, name text); INSERT INTO widgets VALUES (1, 'a'), (2, 'a');`

func names(list []postgres.Migration) (names []string) {
	for _, m := range list {
		names = append(names, m.Name)
	}
	return names
}

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("TakesItsTime", func(t *testing.T) { // An index on a table of years takes longer than any request's statement.
		t.Parallel()
		pool := migrating(t, dbtest.Empty(t), map[string]string{"1_slow.sql": `SELECT pg_sleep(1.3)`})
		_, err := pool.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, pool.CheckSchema(t.Context()))
	})

	t.Run("WaitsForALockBrieflyAndAgain", func(t *testing.T) {
		t.Parallel()
		dsn := dbtest.Empty(t)
		first := migrating(t, dsn, map[string]string{"1_widgets.sql": widgets})
		_, err := first.Migrate(t.Context())
		require.NoError(t, err)
		report, err := first.Raw().Begin(t.Context()) // a long transaction that has read the table
		require.NoError(t, err)
		t.Cleanup(func() { _ = report.Rollback(context.Background()) }) // or the pool's Close would wait for it
		_, err = report.Exec(t.Context(), `SELECT count(*) FROM widgets`)
		require.NoError(t, err)
		pool := migrating(t, dsn, map[string]string{
			"1_widgets.sql": widgets, "2_column.sql": `ALTER TABLE widgets ADD COLUMN more text`,
		})
		migrated := make(chan error, 1)
		go func() {
			_, err := pool.Migrate(t.Context())
			migrated <- err
		}()
		waiting := func(is bool) {
			require.Eventually(t, func() bool {
				var n int
				err := first.Raw().QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted
					AND relation = 'widgets'::regclass`).Scan(&n)
				return err == nil && (n > 0) == is
			}, 30*time.Second, 5*time.Millisecond)
		}
		waiting(true)
		waiting(false) // It has let go, although nobody else has.
		waiting(true)  // And tries again.
		require.Empty(t, migrated)
		require.NoError(t, report.Rollback(t.Context()))
		require.NoError(t, <-migrated)
		require.NoError(t, pool.CheckSchema(t.Context()))
	})

	t.Run("BuildsAnIndexConcurrentlyAndAnewIfItIsInvalid", func(t *testing.T) {
		t.Parallel()
		pool := migrating(t, dbtest.Empty(t), map[string]string{
			"1_widgets.sql": widgets,
			"2_index.sql":   "-- +goose Up\n-- Why.\nCREATE UNIQUE INDEX CONCURRENTLY widget_names ON widgets (name);\n-- +goose Down\nDROP INDEX nothing;",
		})
		applied, err := pool.Migrate(t.Context())
		require.ErrorContains(t, err, "2_index.sql")
		require.Equal(t, []string{"1_widgets.sql"}, names(applied))
		valid := func() (is bool) {
			require.NoError(t, pool.Raw().QueryRow(t.Context(),
				`SELECT indisvalid FROM pg_index WHERE indexrelid = 'widget_names'::regclass`).Scan(&is))
			return is
		}
		require.False(t, valid(), "what a failure leaves behind")
		_, err = pool.Raw().Exec(t.Context(), `DELETE FROM widgets WHERE id = 2`)
		require.NoError(t, err)
		applied, err = pool.Migrate(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"2_index.sql"}, names(applied))
		require.True(t, valid())

		// Its process exited after the index was built, and before that was recorded.
		index := func() (id uint32) {
			require.NoError(t, pool.Raw().QueryRow(t.Context(), `SELECT 'widget_names'::regclass::oid`).Scan(&id))
			return id
		}
		built := index()
		_, err = pool.Raw().Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = 2`)
		require.NoError(t, err)
		require.ErrorIs(t, pool.CheckSchema(t.Context()), postgres.ErrSchemaTooOld)
		_, err = pool.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, pool.CheckSchema(t.Context()))
		require.Equal(t, built, index(), "it is kept")
	})

	t.Run("IsAllOrNothing", func(t *testing.T) {
		t.Parallel()
		for _, last := range []string{
			`SELECT 1/0;`,
			`ALTER TABLE goose_db_version ADD CHECK (version_id <> 1);`, // All is done, and that cannot be recorded.
		} {
			pool := migrating(t, dbtest.Empty(t), map[string]string{"1_half.sql": widgets + last})
			_, err := pool.Migrate(t.Context())
			require.ErrorContains(t, err, "1_half.sql")
			var there bool
			require.NoError(t, pool.Raw().QueryRow(t.Context(), `SELECT to_regclass('widgets') IS NOT NULL`).Scan(&there))
			require.False(t, there, last)
		}
	})

	t.Run("OneProcessAtATime", func(t *testing.T) {
		t.Parallel()
		dsn := dbtest.Empty(t)
		files := map[string]string{"1_widgets.sql": widgets + `SELECT pg_sleep(0.5);`}
		type result struct {
			applied []postgres.Migration
			err     error
		}
		results := make(chan result, 3)
		for range cap(results) {
			pool := migrating(t, dsn, files)
			go func() {
				applied, err := pool.Migrate(t.Context())
				results <- result{applied, err}
			}()
		}
		total := 0
		for range cap(results) {
			r := <-results
			require.NoError(t, r.err)
			total += len(r.applied)
		}
		require.Equal(t, 1, total)
	})

	t.Run("LeavesTheRightsOfANewerVersion", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		granted := func() (is bool) {
			_, err := pool.Migrate(t.Context())
			require.NoError(t, err)
			require.NoError(t, pool.Raw().QueryRow(t.Context(),
				`SELECT has_table_privilege('payonce_service', 'of_a_newer_version', 'INSERT')`).Scan(&is))
			return is
		}
		const grant = `GRANT INSERT ON of_a_newer_version TO payonce_service`
		_, err := pool.Raw().Exec(t.Context(), `CREATE TABLE of_a_newer_version (id text); `+grant)
		require.NoError(t, err)
		require.False(t, granted(), "nobody knows it")
		_, err = pool.Raw().Exec(t.Context(), grant+`; INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
		require.NoError(t, err)
		require.True(t, granted())
	})

	// Migrations that a team adds are numbered above all of payonce's, so that a newer one has a lower number.
	t.Run("LeavesTheRightsOfANewerVersionBelowAnAddedMigration", func(t *testing.T) {
		t.Parallel()
		files := map[string]string{"10001_tips.sql": `CREATE TABLE tips (id text)`}
		shipped, err := fs.ReadDir(db.Migrations, "migrations")
		require.NoError(t, err)
		for _, file := range shipped {
			files[file.Name()] = "" // was applied
		}
		pool := migrating(t, dbtest.URL(t), files)
		applied, err := pool.Migrate(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"10001_tips.sql"}, names(applied))
		_, err = pool.Raw().Exec(t.Context(), `CREATE TABLE of_a_newer_version (id text);
			GRANT INSERT ON of_a_newer_version TO payonce_service;
			INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
		require.NoError(t, err)
		_, err = pool.Migrate(t.Context())
		require.NoError(t, err)
		var is bool
		require.NoError(t, pool.Raw().QueryRow(t.Context(),
			`SELECT has_table_privilege('payonce_service', 'of_a_newer_version', 'INSERT')`).Scan(&is))
		require.True(t, is)
	})

	t.Run("RefusesTwoOfOneNumber", func(t *testing.T) {
		t.Parallel()
		pool := migrating(t, dbtest.Empty(t), map[string]string{"1_widgets.sql": widgets, "01_more.sql": `CREATE TABLE more (id integer)`})
		_, err := pool.Migrate(t.Context())
		require.ErrorContains(t, err, "one number")
		require.Error(t, pool.CheckSchema(t.Context()))
	})

	t.Run("TakesOverWhatGooseHasMigrated", func(t *testing.T) {
		t.Parallel()
		dsn := dbtest.Empty(t)
		pool := migrating(t, dsn, map[string]string{"1_widgets.sql": widgets, "2_more.sql": `CREATE TABLE more (id integer)`})
		_, err := pool.Raw().Exec(t.Context(), widgets+`CREATE TABLE goose_db_version (
			id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL,
			is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now());
			INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, true), (1, true)`)
		require.NoError(t, err)
		applied, err := pool.Migrate(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"2_more.sql"}, names(applied))
	})
}
