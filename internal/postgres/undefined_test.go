package postgres_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

func TestIsUndefined(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for sql, undefined := range map[string]bool{
		"SELECT FROM no_such_table": true, "SELECT no_such_column FROM orders": true, "SELECT no_such_function()": true,
		"SELECT NULL::no_such_type": true, "SELECT 1/0": false, "SELECT FROM": false,
	} {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.Equal(t, undefined, postgres.IsUndefined(err), "%s: %v", sql, err)
	}
	require.False(t, postgres.IsUndefined(errors.New("no server responds")))
	require.False(t, postgres.IsUndefined(nil))
}
