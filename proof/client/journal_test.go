package client

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/client"
	"example.com/payonce/testkit/dbtest"
)

// TestJournals holds the journal in a file and the one in PostgreSQL to the promises of client.Journal.
func TestJournals(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) func() client.Journal{"File": inFile, "PostgreSQL": inPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testJournal(t, open(t))
		})
	}
}

// inFile returns how to open a journal again, as another process does.
func inFile(t *testing.T) func() client.Journal {
	path := filepath.Join(t.TempDir(), "journal")
	var last *client.File
	return func() client.Journal {
		if last != nil {
			require.NoError(t, last.Close())
		}
		var err error
		last, err = client.OpenFile(path)
		require.NoError(t, err)
		return last
	}
}

func inPostgres(t *testing.T) func() client.Journal {
	dsn := dbtest.Empty(t)
	return func() client.Journal {
		db, err := sql.Open("pgx", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		_, err = db.ExecContext(t.Context(), "SELECT FROM payonce_intents")
		if err != nil {
			_, err = db.ExecContext(t.Context(), client.SQLSchema)
			require.NoError(t, err)
		}
		j, err := client.SQL(t.Context(), db)
		require.NoError(t, err)
		return j
	}
}

func testJournal(t *testing.T, open func() client.Journal) {
	ctx, j := t.Context(), open()
	began := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	record := func(n int) client.Record {
		return client.Record{Intent: fmt.Sprintf("intent %d ✓", n), Key: fmt.Sprint("key ", n), Base: "https://pay.example", State: client.Sent, BegunAt: began.Add(time.Duration(n)),
			Request: client.Request{Method: "POST", Path: "/", Body: []byte{0, 255, '\n'}}}
	}
	same := func(want client.Record, got *client.Record) {
		t.Helper()
		require.NotNil(t, got)
		want.Request.Intent, got.Request.Intent = "", "" // is not stored twice
		require.Equal(t, want, *got)
	}

	// Of many callers with one intent only one is told that it is the first.
	var first atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if stored, err := j.Begin(ctx, record(1)); err != nil {
				t.Error(err)
			} else if stored == nil {
				first.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, first.Load())

	// What is begun is what is stored, whoever asks, and under the same id.
	id := j.ID()
	j = open()
	require.Equal(t, id, j.ID())
	other := record(1)
	other.Request.Path = "/other"
	stored, err := j.Begin(ctx, other)
	require.NoError(t, err)
	same(record(1), stored)

	// One that is refused is replaced, and only one.
	refused := record(2)
	stored, err = j.Begin(ctx, refused)
	require.NoError(t, err)
	require.Nil(t, stored)
	refused.State = client.Refused
	require.NoError(t, j.Note(ctx, refused))
	j = open()
	again := record(2)
	again.Request.Path = "/again"
	stored, err = j.Begin(ctx, again)
	require.NoError(t, err)
	require.Nil(t, stored, "a refused intent may be begun again")
	stored, err = j.Begin(ctx, record(2))
	require.NoError(t, err)
	same(again, stored)

	// What is noted is there, and only what is Sent is open, oldest first.
	final := record(3)
	_, err = j.Begin(ctx, final)
	require.NoError(t, err)
	final.State, final.Response = client.Final, &client.Response{Status: 201, Header: http.Header{"Location": {"/x"}}, Body: []byte("{}")}
	require.NoError(t, j.Note(ctx, final))
	broken := record(4)
	_, err = j.Begin(ctx, broken)
	require.NoError(t, err)
	broken.State, broken.Broken = client.Broken, "it lied"
	require.NoError(t, j.Note(ctx, broken))
	seen := record(0)
	_, err = j.Begin(ctx, seen)
	require.NoError(t, err)
	seen.Seen = client.Seen{Done: true, ID: "pay_1", Location: "/y"}
	require.NoError(t, j.Note(ctx, seen))
	j = open()
	for _, r := range []client.Record{final, broken, seen} {
		stored, err = j.Begin(ctx, client.Record{Intent: r.Intent, State: client.Sent})
		require.NoError(t, err)
		same(r, stored)
	}
	for n, open := range map[int]bool{0: true, 1: true, 3: false, 4: false, 9: false} {
		stored, err = j.Continue(ctx, record(n).Intent)
		require.NoError(t, err)
		require.Equal(t, open, stored != nil, n)
	}
	same(seen, must(j.Continue(ctx, seen.Intent)))
	list, err := j.Open(ctx)
	require.NoError(t, err)
	var names []string
	for _, r := range list {
		names = append(names, r.Intent)
	}
	require.Equal(t, []string{"intent 0 ✓", "intent 1 ✓", "intent 2 ✓"}, names)
}

func must(r *client.Record, err error) *client.Record {
	if err != nil {
		panic(err)
	}
	return r
}

// TestSharedJournal: with two processes at one intent, neither may say that it was refused: the other may have sent it. And
// what is final for one is final for the other.
func TestSharedJournal(t *testing.T) {
	t.Parallel()
	open := inPostgres(t)
	one, two := open(), open()
	require.Equal(t, one.ID(), two.ID())
	r := client.Record{Intent: "a", State: client.Sent}
	stored, err := one.Begin(t.Context(), r)
	require.NoError(t, err)
	require.Nil(t, stored)
	stored, err = two.Begin(t.Context(), r)
	require.NoError(t, err)
	require.NotNil(t, stored)
	r.State = client.Refused
	require.Error(t, one.Note(t.Context(), r))
	list, err := two.Open(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	resumed := client.Record{Intent: "b", State: client.Sent}
	_, err = one.Begin(t.Context(), resumed)
	require.NoError(t, err)
	_, err = two.Continue(t.Context(), "b")
	require.NoError(t, err)
	resumed.State = client.Refused
	require.Error(t, one.Note(t.Context(), resumed), "the other process is sending it")
	resumed.State = client.Final
	require.NoError(t, one.Note(t.Context(), resumed))
	r.State = client.Final
	require.NoError(t, two.Note(t.Context(), r))
	r.State = client.Sent
	require.NoError(t, one.Note(t.Context(), r))
	list, err = one.Open(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "what is final is overwritten")
}

// TestDatabaseAway: a journal that cannot store an intent stops it before anything is sent.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Empty(t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	_, err = client.SQL(t.Context(), db)
	require.ErrorContains(t, err, "payonce_intents", "there is no table")
	_, err = db.ExecContext(t.Context(), client.SQLSchema)
	require.NoError(t, err)
	j, err := client.SQL(t.Context(), db)
	require.NoError(t, err)
	var requests atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(api.Close)
	c, err := client.New(client.Options{Base: api.URL, Journal: j})
	require.NoError(t, err)
	do := func() error {
		_, err := c.Do(context.Background(), client.Request{Intent: "a", Path: "/v1/payments"})
		return err
	}
	db.SetMaxOpenConns(1) // what is set is set for the journal
	set := func(change string) {
		_, err := db.ExecContext(t.Context(), change)
		require.NoError(t, err)
	}
	set("SET default_transaction_read_only = on")
	require.ErrorIs(t, do(), client.ErrNotSent)
	set("SET default_transaction_read_only = off")
	set("DROP TABLE payonce_intents")
	require.ErrorIs(t, do(), client.ErrNotSent)
	require.NoError(t, db.Close())
	require.ErrorIs(t, do(), client.ErrNotSent)
	require.Zero(t, requests.Load())
}
