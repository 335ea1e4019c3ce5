package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestEncodingOfTheDatabase: text is sent as UTF-8, whatever the database or the role has for its clients. LATIN1 would store
// other letters, and WIN1252 none.
func TestEncodingOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	open := func(url string) *postgres.Pool {
		pool, err := postgres.Open(t.Context(), url, postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	for _, encoding := range []string{"LATIN1", "WIN1252"} {
		_, err := open(url).Raw().Exec(t.Context(), `DO $$ BEGIN EXECUTE
			format('ALTER DATABASE %I SET client_encoding = `+encoding+`', current_database()); END $$`)
		require.NoError(t, err)
		pool := open(url)
		require.NoError(t, pool.Check(t.Context()))
		var letters int
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT length($1::text)", "Ār€").Scan(&letters))
		require.Equal(t, 3, letters)
		// A pooler may keep from the server what is set while connecting.
		require.ErrorContains(t, open(url+"&default_query_exec_mode=cache_describe").Check(t.Context()), "client_encoding")
	}
}
