package idempotency_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/dbtest"
)

const requestBody = `{"name":"a thing"}`

var sealedAnswer = idempotency.Answer{
	Status: 201, ContentType: "application/json", Location: "/v1/things/1", Body: []byte(`{"name":"Ada"}`),
}

// withKeys is a table of keys on which a process with each DATA_KEY works.
type withKeys struct {
	reaping
	dsn  string
	a, b string // two keys
}

func newWithKeys(t *testing.T) *withKeys {
	key := func(c byte) string {
		return base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{c}, 31), '!'))
	}
	w := &withKeys{dsn: dbtest.URL(t), a: key('a'), b: key('b')}
	w.t = t
	w.reaping = w.with(w.a)
	return w
}

func (w *withKeys) with(dataKey string) reaping {
	w.t.Helper()
	box, err := sealed.New(dataKey)
	require.NoError(w.t, err)
	pool, err := postgres.Open(w.t.Context(), w.dsn, postgres.Options{MaxConn: 4, Box: box})
	require.NoError(w.t, err)
	w.t.Cleanup(pool.Close)
	return reaping{w.t, pool, idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute})}
}

// stored reads a column of a key.
func (r reaping) stored(column, key string) (value []byte) {
	r.t.Helper()
	require.NoError(r.t, r.pool.Raw().QueryRow(r.t.Context(),
		"SELECT "+column+" FROM idempotency_keys WHERE key = $1", key).Scan(&value))
	return value
}

// TestSealed: requests and answers are sealed in each way in which they are stored, and come back byte for byte.
func TestSealed(t *testing.T) {
	t.Parallel()
	w := newWithKeys(t)
	ctx := t.Context()
	finish := func(*db.Queries) (idempotency.Answer, error) { return sealedAnswer, nil }
	_, err := w.store.BeginFinished(ctx, request("at_once"), "thing_1", finish)
	require.NoError(t, err)
	require.NoError(t, w.claim("in_phases").Finish(ctx, finish))
	require.NoError(t, w.store.Enqueue(ctx, w.pool.Queries, request("enqueued"), "thing_2", "thing_recorded"))
	w.claim("plain_request")

	for _, key := range []string{"at_once", "in_phases", "enqueued", "plain_request"} {
		request, err := w.store.OpenRequest(ctx, w.pool.Queries, "ten_a", key, time.Now(), w.stored("request", key))
		require.NoError(t, err)
		require.Equal(t, requestBody, string(request))
		require.Equal(t, w.pool.Box().SealedBy(), sealed.KeyID(w.stored("request", key)), key)
	}
	for _, key := range []string{"at_once", "in_phases"} {
		require.Equal(t, w.pool.Box().SealedBy(), sealed.KeyID(w.stored("answer_body", key)), key)
		require.Equal(t, sealedAnswer, w.state(key).Answer)
		require.Equal(t, sealedAnswer, w.with(w.b+","+w.a).state(key).Answer, "with another key first")
		require.Equal(t, sealedAnswer, w.with("none,"+w.a).state(key).Answer, "with no key to seal with")
	}

	w.exec("UPDATE idempotency_keys SET leased_until = '-infinity' WHERE finished_at IS NULL")
	require.Equal(t, requestBody, string(w.takeOver("plain_request").Request))
	var ran []string
	completer := idempotency.NewCompleter(w.store, map[string]idempotency.Operation{thing: {
		Run: func(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
			ran = append(ran, string(c.Request))
			return sealedAnswer, c.Finish(ctx, finish)
		},
	}}, time.Minute)
	_, err = completer.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{requestBody}, ran)
	require.Equal(t, w.pool.Box().SealedBy(), sealed.KeyID(w.stored("answer_body", "enqueued")))
}

// TestSealedBefore: what was stored before there was a key is read as it is.
func TestSealedBefore(t *testing.T) {
	t.Parallel()
	w := newWithKeys(t)
	without := w.with("")
	require.NoError(t, without.claim("k").Finish(t.Context(),
		func(*db.Queries) (idempotency.Answer, error) { return sealedAnswer, nil }))
	require.Equal(t, string(sealedAnswer.Body), string(w.stored("answer_body", "k")))
	require.Equal(t, sealedAnswer, w.state("k").Answer)
}

// TestWithoutTheKey: a process that lacks the key of a request gives the claim back, and another one does the work. It
// never takes a sealed answer for one that is not.
func TestWithoutTheKey(t *testing.T) {
	t.Parallel()
	w := newWithKeys(t)
	ctx := t.Context()
	require.NoError(t, w.claim("finished").Finish(ctx,
		func(*db.Queries) (idempotency.Answer, error) { return sealedAnswer, nil }))
	w.claim("begun")
	for _, other := range []reaping{w.with(""), w.with(w.b)} {
		_, err := other.store.Lookup(ctx, request("finished"))
		var missing *sealed.MissingKeyError
		require.ErrorAs(t, err, &missing)

		w.exec("UPDATE idempotency_keys SET leased_until = '-infinity', next_attempt_at = now() WHERE key = 'begun'")
		found, err := other.store.Lookup(ctx, request("begun"))
		require.NoError(t, err)
		_, err = other.store.TakeOver(ctx, request("begun"), found)
		require.ErrorAs(t, err, &missing)
		require.Equal(t, 1, w.count("key = 'begun' AND leased_until = '-infinity' AND parked_at IS NULL "+
			"AND next_attempt_at > now() + interval '30 s' AND last_error LIKE '%DATA_KEY has no key%'"))

		w.exec("UPDATE idempotency_keys SET next_attempt_at = now() WHERE key = 'begun'")
		completer := idempotency.NewCompleter(other.store, map[string]idempotency.Operation{thing: {
			Run: func(context.Context, *idempotency.Claim) (idempotency.Answer, error) {
				panic("it has no request")
			},
		}}, time.Minute)
		n, err := completer.RunOnce(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 1, w.count("key = 'begun' AND leased_until = '-infinity' AND parked_at IS NULL "+
			"AND next_attempt_at > now() + interval '30 s'"))
	}
	require.Equal(t, requestBody, string(w.takeOver("begun").Request))
}

// TestChangedRequestIsParked: no process can do what was asked, so an operator must look at it.
func TestChangedRequestIsParked(t *testing.T) {
	t.Parallel()
	w := newWithKeys(t)
	w.claim("one")
	w.claim("two")
	w.unguarded("UPDATE idempotency_keys SET request = (SELECT request FROM idempotency_keys WHERE key = 'one'), " +
		"leased_until = '-infinity' WHERE key = 'two'")
	found, err := w.store.Lookup(t.Context(), request("two"))
	require.NoError(t, err)
	_, err = w.store.TakeOver(t.Context(), request("two"), found)
	require.ErrorIs(t, err, sealed.ErrChanged)
	require.Equal(t, 1, w.count("key = 'two' AND parked_at IS NOT NULL AND last_error LIKE '%was changed%'"))
}

// TestPlainIsRefused: where all values are sealed, whoever can write rows cannot pass a plain one off as ours. An answer is
// not replayed, a request is not worked on, and neither is sealed by the loop that encrypts anew.
func TestPlainIsRefused(t *testing.T) {
	t.Parallel()
	w := newWithKeys(t)
	ctx := t.Context()
	without := w.with("")
	for _, key := range []string{"before", "after"} {
		require.NoError(t, without.claim(key).Finish(ctx, func(*db.Queries) (idempotency.Answer, error) { return sealedAnswer, nil }))
	}
	without.claim("begun")
	w.exec("INSERT INTO data_keys (id, plain_until) VALUES ($1, now() - interval '1 hour')", w.pool.Box().SealedBy())
	w.unguarded("UPDATE idempotency_keys SET created_at = now() - interval '2 hours' WHERE key = 'before'")
	w.unguarded("UPDATE idempotency_keys SET finished_at = finished_at - interval '10 minutes' WHERE finished_at IS NOT NULL")
	w.exec("UPDATE idempotency_keys SET leased_until = '-infinity' WHERE key = 'begun'")

	require.Equal(t, sealedAnswer, w.state("before").Answer)
	_, err := w.store.Lookup(ctx, request("after"))
	require.ErrorIs(t, err, sealed.ErrPlain)
	found, err := w.store.Lookup(ctx, request("begun"))
	require.NoError(t, err)
	_, err = w.store.TakeOver(ctx, request("begun"), found)
	require.ErrorIs(t, err, sealed.ErrPlain)
	require.Equal(t, 1, w.count("key = 'begun' AND parked_at IS NOT NULL AND last_error LIKE '%is not encrypted%'"))

	resealer := postgres.NewResealer(w.pool, slog.New(slog.DiscardHandler))
	for n := 1; n > 0; {
		n, err = resealer.RunOnce(ctx)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, resealer.Unreadable())
	require.NotNil(t, sealed.KeyID(w.stored("answer_body", "before")))
	require.Nil(t, sealed.KeyID(w.stored("answer_body", "after")))
	require.Nil(t, sealed.KeyID(w.stored("request", "begun")))

	require.Equal(t, sealedAnswer, w.with("none,"+w.a).state("after").Answer, "with no key to seal with, plain is what is stored")
}
