package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
)

func TestNullable(t *testing.T) {
	t.Parallel()
	require.Nil(t, postgres.Nullable(""))
	require.Equal(t, "ord_1", *postgres.Nullable("ord_1"))
	for _, s := range []string{"", "ord_1"} {
		require.Equal(t, s, postgres.Deref(postgres.Nullable(s)))
	}
}
