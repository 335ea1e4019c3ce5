package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

func TestFindTests(t *testing.T) {
	t.Parallel()
	tests, err := inventory.FindTests()
	require.NoError(t, err)

	t.Run("KnowsNamesGivenByLiteral", func(t *testing.T) {
		t.Parallel()
		require.True(t, tests.Has("proof/internal/inventory", "TestFindTests/KnowsNamesGivenByLiteral"))
		require.False(t, tests.Has("proof/internal/inventory", "TestFindTests/WasRenamed"))
		require.False(t, tests.Has("internal/outbox", "TestFindTests"))
		require.True(t, tests.Has("", "TestFindTests"))
		require.False(t, tests.Has("", "TestMain"))
	})

	t.Run("BelievesNamesThatAreComputed", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"one", "two"} {
			t.Run("Word/"+word, func(*testing.T) {})
		}
		require.True(t, tests.Has("proof/internal/inventory", "TestFindTests/BelievesNamesThatAreComputed/Word/one"))
	})

	t.Run("FollowsHelpers", func(t *testing.T) {
		t.Parallel()
		helper(t)
		require.True(t, tests.Has("proof/internal/inventory", "TestFindTests/FollowsHelpers/Inside"))
	})
}

func helper(t *testing.T) {
	t.Run("Inside", func(*testing.T) {})
}

func TestFindMetrics(t *testing.T) {
	t.Parallel()
	metrics, err := inventory.FindMetrics()
	require.NoError(t, err)
	require.Equal(t, []string{"operation", "result"}, metrics["payonce_idempotent_requests_total"].Labels)
	require.True(t, metrics["payonce_stripe_call_seconds"].Histogram)
	require.Contains(t, metrics, "payonce_pool_connections_max")
	require.NotContains(t, metrics, "payonce_demo_")
}
