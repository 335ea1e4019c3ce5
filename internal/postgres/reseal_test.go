package postgres_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/logs"
)

// TestResealer: values that are plain, or sealed with another key, are sealed with the first one, and the other key can
// be dropped. What they say stays the same, byte for byte.
func TestResealer(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	open := func(dataKey string) *postgres.Pool {
		box, err := sealed.New(dataKey)
		require.NoError(t, err)
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 4, Box: box})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	a, b := dataKeyOf('a'), dataKeyOf('b')
	old := open(a)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := old.Raw().Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	exec("INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('old', 'old', $1), ('plain', 'plain', $2)",
		old.Box().Seal(sealed.FingerprintSecret("old"), secret), secret)
	exec("INSERT INTO inbox_events (consumer, event_id, status, type, payload) VALUES ('stripe', 'evt', 'pending', 't', '{}')")
	key := func(name string, request, answer []byte) {
		t.Helper()
		exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, resource_id, request, request_id,
			fingerprint_version, claim_token, leased_until, next_attempt_at, recovery_point, finished_at, answer_version,
			answer_status, answer_headers, answer_body)
			SELECT 'old', $1, 'create_order', repeat('f', 32)::bytea, 'ord', $2, 'req', 1, gen_random_uuid(), now(), now(),
			CASE WHEN $3::bytea IS NULL THEN 'started' ELSE 'finished' END,
			CASE WHEN $3 IS NULL THEN NULL ELSE now() - interval '1 hour' END,
			CASE WHEN $3 IS NULL THEN NULL ELSE 1 END, CASE WHEN $3 IS NULL THEN NULL ELSE 201 END,
			CASE WHEN $3 IS NULL THEN NULL ELSE ''::bytea END, $3`, name, request, answer)
	}
	text := []byte(`{"name":"Ada"}`)
	for i := range 1100 { // more than two pages, of one time
		key(fmt.Sprint("plain_", i), text, text)
	}
	key("sealed", old.Box().Seal(sealed.Request("old", "sealed"), text), old.Box().Seal(sealed.Answer("old", "sealed"), text))
	key("half", text, old.Box().Seal(sealed.Answer("old", "half"), text))
	key("unfinished", text, nil)
	key("copied", nil, old.Box().Seal(sealed.Answer("old", "another"), text))

	both := open(b + "," + a)
	r := postgres.NewResealer(both, slog.New(slog.DiscardHandler))
	require.Zero(t, r.Settled())
	left := func() (n int) {
		t.Helper()
		require.NoError(t, old.Raw().QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE by <> $1) FROM (
			SELECT sealed_by(fingerprint_secret) AS by FROM tenants UNION ALL SELECT sealed_by(payload) FROM inbox_events
			UNION ALL SELECT sealed_by(request) FROM idempotency_keys
			UNION ALL SELECT sealed_by(answer_body) FROM idempotency_keys) v`, both.Box().SealedBy()).Scan(&n))
		return n
	}
	pass := func(r *postgres.Resealer) {
		t.Helper()
		for range 20 {
			n, err := r.RunOnce(t.Context())
			require.NoError(t, err)
			if n == 0 {
				return
			}
		}
	}
	pass(r)
	require.Equal(t, 1, left(), "all but the response of another key")
	require.EqualValues(t, 1, r.Unreadable())
	require.EqualValues(t, 3+1100+2+1, r.Resealed())
	require.Zero(t, r.Settled(), "one cannot be opened")
	n, err := r.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it looks at nothing twice")

	_, err = old.Raw().Exec(t.Context(), `UPDATE idempotency_keys SET answer_dropped_at = now(), request = NULL,
		answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL WHERE key = 'copied'`)
	require.NoError(t, err)
	r.Again()
	pass(r)
	require.Zero(t, r.Unreadable())
	require.NotZero(t, r.Settled())
	pass(postgres.NewResealer(open(a+","+b), slog.New(slog.DiscardHandler))) // a process from before the change
	require.NotZero(t, left())
	pass(r)
	require.NotZero(t, left(), "behind the place to which it has come")
	r.Again()
	pass(r)
	require.Zero(t, left())

	last := open(b)
	rows, err := last.Raw().Query(t.Context(), "SELECT key, request, answer_body FROM idempotency_keys WHERE key <> 'copied'")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var request, answer []byte
		require.NoError(t, rows.Scan(&name, &request, &answer))
		opened, err := last.Box().Open(sealed.Request("old", name), request)
		require.NoError(t, err)
		require.Equal(t, text, opened)
		if answer != nil {
			opened, err = last.Box().Open(sealed.Answer("old", name), answer)
			require.NoError(t, err)
			require.Equal(t, text, opened)
		}
	}
	require.NoError(t, rows.Err())

	n, err = postgres.NewResealer(open("none,"+b), slog.New(slog.DiscardHandler)).RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "without a key that seals there is nothing to do")
}

// TestResealerPassesByWhatItCannotDecrypt: however many values of each kind need a key that is missing, the others are
// reached. The log has a few of them, the metric has all, also while they are counted again.
func TestResealerPassesByWhatItCannotDecrypt(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	box, err := sealed.New(dataKeyOf('b'))
	require.NoError(t, err)
	pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 4, Box: box})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	lost := sealedWith("a", 32) // with a key that is lost
	const each = 150            // of each kind; a page has 100
	kinds := 3
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	insert := func(sql, value string, from, to int) {
		t.Helper()
		exec(fmt.Sprintf(sql, value) + fmt.Sprintf(" FROM generate_series(%d, %d) n", from, to))
	}
	for _, sql := range []string{
		"INSERT INTO tenants (id, name, fingerprint_secret) SELECT 'ten_' || 1000 + n, 'T', %s",
		"INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret) SELECT 'ten_1', 'whe_' || 1000 + n, 1, %s", // part: webhooks
		`INSERT INTO inbox_events (consumer, event_id, status, type, payload)
			SELECT 'stripe', 'evt_' || 1000 + n, 'pending', 't', %s`,
		`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, resource_id, request_id, fingerprint_version,
			claim_token, leased_until, next_attempt_at, recovery_point, request)
			SELECT 'ten_1001', 'k' || 1000 + n, 'create_order', sha256('f'), 'ord', 'req', 1, gen_random_uuid(), now(), now(),
			'started', %s`,
	} {
		insert(sql, lost, 1, each)
		insert(sql, "'plain_plain_plain_plain_plain_32'::bytea", each+1, each+1)
	}
	kinds++ // part: webhooks

	var log logs.Buffer
	r := postgres.NewResealer(pool, log.Logger(slog.LevelWarn))
	pass := func() {
		t.Helper()
		for n, iterations := 1, 0; n > 0; iterations++ {
			require.Less(t, iterations, 20, "it ends")
			n, err = r.RunOnce(t.Context())
			require.NoError(t, err)
		}
	}
	pass()
	require.EqualValues(t, kinds, r.Resealed(), "those behind what cannot be decrypted")
	require.EqualValues(t, kinds*each, r.Unreadable())
	require.Zero(t, r.Settled())
	require.Equal(t, 10, strings.Count(log.Take(), "cannot be decrypted"))
	n, err := r.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it does not count them each minute")

	r.Again()
	for n = 1; n > 0; {
		n, err = r.RunOnce(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, kinds*each, r.Unreadable(), "it does not fall while they are counted again")
	}
	exec("UPDATE inbox_events SET status = 'done', done_at = now(), payload = NULL WHERE status = 'pending'")
	r.Again()
	pass()
	require.EqualValues(t, (kinds-1)*each, r.Unreadable())
}

// TestResealerOfAnOlderKey: a process from before the change of a key seals nothing back.
func TestResealerOfAnOlderKey(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	open := func(dataKey string) *postgres.Pool {
		box, err := sealed.New(dataKey)
		require.NoError(t, err)
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 2, Box: box})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	a, b := dataKeyOf('a'), dataKeyOf('b')
	older, newer := open(a+","+b), open(b+","+a)
	ctx := postgres.ForAllTenants(t.Context(), "test")
	for _, pool := range []*postgres.Pool{older, newer} {
		require.NoError(t, pool.IntroduceKey(ctx))
	}
	stored := newer.Box().Seal(sealed.FingerprintSecret("t"), []byte("0123456789abcdef0123456789abcdef"))
	_, err := newer.Raw().Exec(ctx, "INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('t', 't', $1)", stored)
	require.NoError(t, err)
	resealed := func(pool *postgres.Pool) float64 {
		r := postgres.NewResealer(pool, slog.New(slog.DiscardHandler))
		_, err := r.RunOnce(ctx)
		require.NoError(t, err)
		return r.Resealed()
	}
	require.Zero(t, resealed(older))
	require.NoError(t, older.IntroduceKey(ctx), "the change is taken back")
	require.EqualValues(t, 1, resealed(older))
	require.Zero(t, resealed(newer))
}
