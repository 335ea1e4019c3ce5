package inbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/dbtest"
)

// sealedBundle is a bundle on a database, with a DATA_KEY.
func sealedBundle(t *testing.T, dsn, dataKey string) *bundle {
	t.Helper()
	box, err := sealed.New(dataKey)
	require.NoError(t, err)
	pool, err := postgres.Open(t.Context(), dsn, postgres.Options{Box: box})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return (&bundle{T: t, pool: pool}).start()
}

// TestPayloadsAreSealed: what waits is sealed, and its digest is that of what the sender has sent.
func TestPayloadsAreSealed(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	a := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte("a"), 31), '!'))
	b := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte("b"), 31), '!'))
	with := sealedBundle(t, dsn, a)
	stored := func(event string) (payload, digest []byte) {
		require.NoError(t, with.pool.Raw().QueryRow(t.Context(),
			"SELECT payload, payload_sha256 FROM inbox_events WHERE event_id = $1", event).Scan(&payload, &digest))
		return payload, digest
	}
	for _, event := range []string{"evt_1", "evt_2", "evt_3"} {
		require.True(t, receive(with, event))
	}
	payload, digest := stored("evt_1")
	require.Equal(t, with.pool.Box().SealedBy(), sealed.KeyID(payload))
	sum := sha256.Sum256([]byte(`{"id":"evt_1"}`))
	require.Equal(t, sum[:], digest)
	_, err := with.pool.Raw().Exec(t.Context(),
		"UPDATE inbox_events SET payload = $1, leased_until = 'infinity' WHERE event_id = 'evt_2'", payload)
	require.NoError(t, err)

	// Without the key they wait; the attempts do not count.
	var mu sync.Mutex
	var seen []string
	see := func(e inbox.Event) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(e.Payload))
	}
	handler := map[string]inbox.Handler{stripe: {
		Prepare: func(_ context.Context, e inbox.Event) (any, error) {
			see(e)
			return nil, nil
		},
		Settled: func(_ context.Context, events []inbox.Event) (ids []string, err error) {
			for _, e := range events {
				see(e)
			}
			return nil, nil
		},
		Apply: with.apply,
	}}
	without := sealedBundle(t, dsn, b)
	without.processor = inbox.NewProcessor(without.pool, handler, inbox.ProcessorOptions{})
	n, err := without.processor.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, map[string]int{"pending": 3}, with.statuses())
	require.Equal(t, 2, with.count("SELECT count(*) FROM inbox_events WHERE attempts = 0 AND last_error LIKE "+
		"'%DATA_KEY has no key%'"))
	require.Empty(t, seen)

	// One that was changed is parked; the others are applied with what was sent.
	_, err = with.pool.Raw().Exec(t.Context(), "UPDATE inbox_events SET leased_until = '-infinity'")
	require.NoError(t, err)
	with.processor = inbox.NewProcessor(with.pool, handler, inbox.ProcessorOptions{})
	n, err = with.processor.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, map[string]int{"done": 2, "parked": 1}, with.statuses())
	require.ElementsMatch(t, []string{
		`{"id":"evt_1"}`, `{"id":"evt_1"}`, `{"id":"evt_3"}`, `{"id":"evt_3"}`,
	}, seen)
}
