package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
)

// TestPausedRelayHoldsUpNoOther: a relay that is paused, or whose network is, while it leases a batch holds the lock of
// all relays. The server ends its session before the others give up.
func TestPausedRelayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	appendEvents(t, pool, event("ord_1", 1))
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, pool.WithTx(tx).OutboxLock(t.Context())) // and no more is heard of it

	broker := &brokerLog{}
	relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
	n, err := relay.RunOnce(t.Context())
	require.NoError(t, err, "it gave up")
	require.Equal(t, 1, n)
}
