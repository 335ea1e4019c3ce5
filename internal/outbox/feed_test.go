package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// readAll pages through the feed from a cursor.
func readAll(t testing.TB, feed *outbox.Feed, after string, limit int) (ids []string) {
	t.Helper()
	for {
		events, hasMore, err := feed.List(t.Context(), tenant, after, limit)
		require.NoError(t, err)
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		if !hasMore {
			return ids
		}
		require.Len(t, events, limit)
		after = ids[len(ids)-1]
	}
}

// TestFeedRendersEventsWithoutData: the feed asks for the data of the events that were stored without.
func TestFeedRendersEventsWithoutData(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	stored := event("ord_1", 1)
	stored.Type, stored.Data = "order.created", nil
	appendEvents(t, pool, stored)
	var rendering error
	feed := outbox.NewFeed(pool, func(_ context.Context, _ *postgres.Pool, events []outbox.Envelope) error {
		for i := range events {
			events[i].Data = []byte(`{"rendered":true}`)
		}
		return rendering
	})
	events, _, err := feed.List(t.Context(), tenant, "", 10)
	require.NoError(t, err)
	require.JSONEq(t, `{"rendered":true}`, string(events[0].Data))
	rendering = errAway
	_, _, err = feed.List(t.Context(), tenant, "", 10)
	require.ErrorIs(t, err, errAway)
}

// TestFeedOfLargeEvents: they are read a few at a time, and a page ends when it is many bytes. The pages together have
// each event once.
func TestFeedOfLargeEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes, limit int
		pages        []int
		renders      int
	}{
		"Small":      {10, 100, []int{50}, 3},
		"SmallPages": {10, 20, []int{20, 20, 10}, 3},
		"Exact":      {10, 50, []int{50}, 3},
		"Large":      {60_000, 100, []int{20, 20, 10}, 3},
		"LargePages": {60_000, 20, []int{20, 20, 10}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			var want []string
			for i := range int64(50) {
				e := event("ord_1", i+1)
				e.Data = nil
				appendEvents(t, pool, e)
				want = append(want, outbox.EventID(e.AggregateID, e.Version))
			}
			renders := 0
			feed := outbox.NewFeed(pool, func(_ context.Context, _ *postgres.Pool, events []outbox.Envelope) error {
				renders++
				for i := range events {
					events[i].Data = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", c.bytes))
				}
				return nil
			})
			_, _, err := feed.List(t.Context(), tenant, "", 1) // which gives all of them their positions
			require.NoError(t, err)
			renders = 0
			var pages []int
			var listed []string
			for after, more := "", true; more; after = listed[len(listed)-1] {
				var events []outbox.Envelope
				events, more, err = feed.List(t.Context(), tenant, after, c.limit)
				require.NoError(t, err)
				for _, e := range events {
					listed = append(listed, e.ID)
				}
				pages = append(pages, len(events))
			}
			require.Equal(t, want, listed)
			require.Equal(t, c.pages, pages)
			require.Equal(t, c.renders, renders)
		})
	}
}

// TestFeedSkipsNothingThatIsRemovedMeanwhile: a page is several statements, and the reaper may come between two of them.
func TestFeedSkipsNothingThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for i := range int64(100) {
		e := event("ord_1", i+1)
		e.Data = nil
		appendEvents(t, pool, e)
	}
	render := func(_ context.Context, _ *postgres.Pool, events []outbox.Envelope) error {
		for i := range events {
			events[i].Data = []byte(`{}`)
		}
		return nil
	}
	drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{Render: render}))
	exec(t, pool, "UPDATE outbox_events SET published_at = published_at - interval '2 hours' WHERE position <= 60")
	exec(t, pool, "UPDATE event_feeds SET reap_at = '-infinity'")
	reads := 0
	feed := outbox.NewFeed(pool, func(ctx context.Context, pool *postgres.Pool, events []outbox.Envelope) error {
		if reads++; reads == 1 {
			n, err := outbox.NewReaper(pool, time.Hour).RunOnce(ctx)
			require.NoError(t, err)
			require.Equal(t, 60, n)
		}
		return render(ctx, pool, events)
	})
	events, more, err := feed.List(t.Context(), tenant, "", 100)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, events, 21)
	_, _, err = feed.List(t.Context(), tenant, events[20].ID, 100)
	require.ErrorIs(t, err, outbox.ErrUnknownCursor, "the next page says that events are missing")
}

// TestFeedFailsIfItIsNotKnownWhetherEventsWereRemoved between two statements of a page.
func TestFeedFailsIfItIsNotKnownWhetherEventsWereRemoved(t *testing.T) {
	t.Parallel()
	pool, proxy := failing(t)
	for i := range int64(30) {
		appendEvents(t, pool, event("ord_1", i+1))
	}
	feed := outbox.NewFeed(pool, nil)
	failOnce(t, proxy, "FeedCursor", func() error {
		_, _, err := feed.List(t.Context(), tenant, "", 100)
		return err
	})
	require.Len(t, readAll(t, feed, "", 100), 30)
}

// TestFeedEndsBeforeAnEventWithoutData, and does not begin with one.
func TestFeedEndsBeforeAnEventWithoutData(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	damaged := event("ord_2", 1)
	damaged.Type, damaged.Data = "order.created", nil
	appendEvents(t, pool, event("ord_1", 1), damaged, event("ord_3", 1))
	feed := outbox.NewFeed(pool, func(context.Context, *postgres.Pool, []outbox.Envelope) error { return nil })
	events, hasMore, err := feed.List(t.Context(), tenant, "", 10)
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.True(t, hasMore, "the reader asks for the next page, which says which event it is")
	_, _, err = feed.List(t.Context(), tenant, "ord_1-1", 10)
	require.ErrorContains(t, err, "ord_2-1")
}

func TestFeed(t *testing.T) {
	t.Parallel()

	t.Run("ListsWhatIsCommittedWithoutRelayOrBroker", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		feed := outbox.NewFeed(pool, nil)
		events, hasMore, err := feed.List(t.Context(), tenant, "", 10)
		require.NoError(t, err)
		require.Empty(t, events)
		require.False(t, hasMore)

		appendEvents(t, pool, event("ord_1", 1), event("pay_1", 1), event("ord_1", 2))
		other := event("ord_other", 1)
		other.TenantID = "tnt_b"
		appendEvents(t, pool, other)
		for _, limit := range []int{1, 2, 3, 100} {
			require.Empty(t, cmp.Diff([]string{"ord_1-1", "pay_1-1", "ord_1-2"}, readAll(t, feed, "", limit)))
		}
		require.Empty(t, cmp.Diff([]string{"ord_1-2"}, readAll(t, feed, "pay_1-1", 10)))
		_, _, err = feed.List(t.Context(), tenant, "ord_other-1", 10)
		require.ErrorIs(t, err, outbox.ErrUnknownCursor, "another tenant's")
	})

	t.Run("MissesNothingThatARelayPlacesMeanwhile", func(t *testing.T) {
		t.Parallel()
		url := dbtest.URL(t)
		pool := dbtest.Migrated(t, url)
		proxy, err := pgproxy.Start(url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		slow, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(slow.Close)

		appendEvents(t, pool, event("ord_1", 1))
		release := make(chan struct{})
		read := proxy.Hold("name: FeedList ", release)
		listed := make(chan []outbox.Envelope, 1)
		go func() {
			events, _, err := outbox.NewFeed(slow, nil).List(t.Context(), tenant, "", 10)
			if err != nil {
				t.Errorf("list: %v", err)
			}
			listed <- events
		}()
		read.Await(t)
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		close(release)
		require.Len(t, <-listed, 1, "it was committed before the call")
	})

	// One relay is slow to publish what came first. The feed has it first all the same.
	t.Run("RunsInTheOrderOfTheChanges", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		appendEvents(t, pool, event("ord_2", 1))
		appendEvents(t, pool, event("ord_3", 1))
		fast := &brokerLog{}
		slow := &brokerLog{Before: func(outbox.Envelope) error {
			require.Equal(t, 2, drain(t, outbox.NewRelay(pool, fast, outbox.RelayOptions{})))
			return nil
		}}
		n, err := outbox.NewRelay(pool, slow, outbox.RelayOptions{HeadsMax: 1}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"ord_2-1", "ord_3-1"}, fast.IDs())
		require.Equal(t, []string{"ord_1-1"}, slow.IDs())
		require.Equal(t, []string{"ord_1-1", "ord_2-1", "ord_3-1"}, readAll(t, outbox.NewFeed(pool, nil), "", 10))
		require.Equal(t, 3, count(t, pool, "SELECT last_position FROM event_feeds"))
	})

	t.Run("RendersCloudEvents", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		exec(
			t, pool, "UPDATE outbox_events SET traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
		)
		events, _, err := outbox.NewFeed(pool, nil).List(t.Context(), tenant, "", 10)
		require.NoError(t, err)
		body, err := json.Marshal(events[0])
		require.NoError(t, err)
		var created time.Time
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT created_at FROM outbox_events").Scan(&created))
		require.JSONEq(
			t,
			fmt.Sprintf(
				`{"specversion":"1.0","id":"ord_1-1","source":"/payonce","type":"order.created","subject":"ord_1",
			"time":%q,"datacontenttype":"application/json","tenantid":"tnt_a","sequence":"1",
			"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","data":{"id":"ord_1","version":1}}`,
				created.UTC().Format(time.RFC3339Nano),
			),
			string(body),
		)

		broker := &brokerLog{}
		drain(t, outbox.NewRelay(pool, broker, outbox.RelayOptions{}))
		published, err := json.Marshal(broker.Events()[0])
		require.NoError(t, err)
		require.Equal(t, string(body), string(published), "the same bytes at the broker")
		var back outbox.Envelope
		require.NoError(t, json.Unmarshal(published, &back))
		require.Empty(t, cmp.Diff(events[0].ID, back.ID))
	})

	t.Run("RefusesCursorsThatAreNone", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		feed := outbox.NewFeed(pool, nil)
		for cursor, asked := range map[string]bool{
			"ord_1-3": true, "ord_2-1": true,
			"x": false, "-": false, "-1": false, "ord_1": false, "ord_1-": false, "ord_1-01": false, "ord_1-+1": false,
			"ord_1-1 ": false, "ord_1-99999999999999999999": false, "' OR 1=1 --": false,
		} {
			proxy.Seen()
			_, _, err := feed.List(t.Context(), tenant, cursor, 10)
			require.ErrorIs(t, err, outbox.ErrUnknownCursor, cursor)
			require.Equal(t, asked, sent(proxy, "FeedCursor") > 0, "%s: what is no id is not looked for", cursor)
		}
	})

	// The first lock of a tenant's feed finds no row. The one that is then inserted may be another transaction's.
	t.Run("LocksTheRowThatItCreates", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		for i, locks := range []int{2, 1} {
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1))
			proxy.Seen()
			require.Len(t, readAll(t, outbox.NewFeed(pool, nil), "", 10), i+1)
			seen := proxy.Seen()
			require.Equal(t, locks, among(seen, "FeedLock"))
			require.Equal(t, locks-1, among(seen, "FeedCreate"))
		}
	})

	t.Run("KnowsACursorThatHasNoPositionYet", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		require.Equal(t, []string{"ord_1-2"}, readAll(t, outbox.NewFeed(pool, nil), "ord_1-1", 10))
	})

	t.Run("ReportsWhatTheDatabaseCouldNotDo", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		for _, query := range []string{
			"FeedIsBehind", "FeedCursor", "FeedList", "FeedLock", "FeedCreate", "FeedAssignPositions",
		} {
			cursor := ""
			if query == "FeedCursor" {
				cursor = "ord_1-1"
			}
			failOnce(t, proxy, query, func() error {
				events, more, err := outbox.NewFeed(pool, nil).List(t.Context(), tenant, cursor, 10)
				require.Empty(t, events)
				require.False(t, more)
				return err
			})
		}
		require.Equal(t, []string{"ord_1-1", "ord_1-2"}, readAll(t, outbox.NewFeed(pool, nil), "", 10))
	})

	t.Run("ReadsWriteNothingOnceTheRelayHasBeenThere", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		before := count(
			t, pool,
			"SELECT max(xmin::text::bigint) FROM (SELECT xmin FROM outbox_events UNION ALL SELECT xmin FROM "+
				"event_feeds) x",
		)
		require.Len(t, readAll(t, outbox.NewFeed(pool, nil), "", 1), 2)
		require.Equal(
			t, before,
			count(
				t, pool,
				"SELECT max(xmin::text::bigint) FROM (SELECT xmin FROM outbox_events UNION ALL SELECT xmin FROM "+
					"event_feeds) x",
			),
		)
	})
}

// TestFeedNeverSkips lets transactions commit in another order than they wrote,
// while readers page on and relays publish. A reader by sequence number runs
// beside, and must be caught, or the test proves nothing: one event waits with its
// commit until that reader has gone past it.
func TestFeedNeverSkips(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const writers, each = 12, 60
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()

	late, err := pool.Raw().Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(t, err)
	require.NoError(t, outbox.Append(ctx, db.New(late), event("ord_late", 1)))
	var lateSeq int64
	require.NoError(t, late.QueryRow(ctx, "SELECT seq FROM outbox_events").Scan(&lateSeq))
	passed := make(chan struct{}) // closed when the reader by sequence number is beyond it

	var writing sync.WaitGroup
	writing.Go(func() {
		select {
		case <-passed:
		case <-ctx.Done():
		}
		if err := late.Commit(ctx); err != nil {
			t.Errorf("commit late: %v", err)
		}
	})
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				aggregate := fmt.Sprintf("ord_%d_%d", w, i)
				for version := int64(1); version <= 2; version++ {
					err := pool.InTx(ctx, func(q *db.Queries) error {
						if err := outbox.Append(ctx, q, event(aggregate, version)); err != nil {
							return err
						}
						time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) // commits late
						return nil
					})
					if err != nil {
						t.Errorf("append: %v", err)
					}
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()

	const pause = 2 * time.Millisecond // of whoever finds nothing to do; spinning takes the time from the writers

	// readUntilDone pages on with a cursor until the writers are done and nothing more comes.
	readUntilDone := func(next func(after string) []string) (ids []string) {
		after := ""
		for last := false; ; {
			page := next(after)
			if len(page) > 0 {
				ids = append(ids, page...)
				after = page[len(page)-1]
				continue
			}
			if last {
				return ids
			}
			select {
			case <-written:
				last = true
			case <-time.After(pause):
			}
		}
	}
	var reading sync.WaitGroup
	read := make([][]string, 3)
	for r := range read {
		reading.Go(func() {
			feed := outbox.NewFeed(pool, nil)
			read[r] = readUntilDone(func(after string) (ids []string) {
				events, _, err := feed.List(ctx, tenant, after, 7)
				if err != nil {
					t.Errorf("list: %v", err)
				}
				for _, e := range events {
					ids = append(ids, e.ID)
				}
				return ids
			})
		})
	}
	var bySequence []string
	reading.Go(func() {
		seq := int64(0)
		var passing sync.Once
		bySequence = readUntilDone(func(string) (ids []string) {
			rows, err := pool.Raw().
				Query(ctx, "SELECT seq, aggregate_id || '-' || version FROM outbox_events WHERE seq > $1 ORDER BY "+
					"seq LIMIT 7", seq)
			if err != nil {
				t.Errorf("read by sequence: %v", err)
				return nil
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				if err := rows.Scan(&seq, &id); err != nil {
					t.Errorf("scan: %v", err)
				}
				ids = append(ids, id)
			}
			if seq > lateSeq {
				passing.Do(func() { close(passed) })
			}
			return ids
		})
	})
	for range 2 {
		reading.Go(func() {
			relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{HeadsMax: 20})
			for {
				if n, err := relay.RunOnce(ctx); err != nil {
					t.Errorf("relay: %v", err)
				} else if n == 0 {
					select {
					case <-written:
						return
					case <-time.After(pause):
					}
				}
			}
		})
	}
	reading.Wait()

	total := writers*each*2 + 1
	whole := readAll(t, outbox.NewFeed(pool, nil), "", 100)
	require.Len(t, whole, total)
	for r, ids := range read {
		require.Empty(t, cmp.Diff(whole, ids), "reader %d saw, while it happened, what the feed says now", r)
	}
	seen := map[string]int64{}
	for _, id := range whole {
		aggregate, version := id[:len(id)-2], int64(id[len(id)-1]-'0')
		require.Equal(t, seen[aggregate]+1, version, id)
		seen[aggregate] = version
	}
	require.Equal(t, total, count(t, pool, "SELECT max(position) FROM outbox_events"), "positions have no gap")
	require.Less(t, len(bySequence), total, "a commit was late, and reading by sequence number has skipped nothing")
	t.Logf(
		"events=%d readers=%d skipped: by position 0, by sequence number %d", total,
		len(read),
		total-len(bySequence),
	)
}

func TestReaper(t *testing.T) {
	t.Parallel()

	setup := func(t *testing.T) (*postgres.Pool, *outbox.Feed, *outbox.Reaper) {
		pool := dbtest.New(t)
		for i := range 10 {
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1))
		}
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		return pool, outbox.NewFeed(pool, nil), outbox.NewReaper(pool, time.Hour)
	}
	age := func(t *testing.T, pool *postgres.Pool, through int) {
		exec(
			t, pool, "UPDATE outbox_events SET published_at = published_at - interval '2 hours' WHERE position <= $1",
			through,
		)
		exec(t, pool, "UPDATE event_feeds SET reap_at = '-infinity'")
	}

	t.Run("RemovesOnlyOldPublishedEvents", func(t *testing.T) {
		t.Parallel()
		pool, _, reaper := setup(t)
		n, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		age(t, pool, 4)
		appendEvents(t, pool, event("ord_waiting", 1))
		exec(
			t, pool,
			"UPDATE outbox_events SET parked_at = now() - interval '1 year' WHERE aggregate_id = 'ord_waiting'",
		)
		n, err = reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, n)
		n, err = reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, 7, count(t, pool, "SELECT count(*) FROM outbox_events"))
	})

	t.Run("IsNotStoppedByATenant", func(t *testing.T) {
		t.Parallel()
		pool, _, reaper := setup(t)
		other := event("ord_other", 1)
		other.TenantID = "ten_other"
		appendEvents(t, pool, other)
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		exec(t, pool, "UPDATE outbox_events SET published_at = published_at - interval '2 hours'")
		exec(t, pool, `UPDATE event_feeds SET reap_at = clock_timestamp() - CASE tenant_id WHEN 'ten_other'
			THEN interval '1 minute' ELSE interval '1 hour' END`)
		exec(t, pool, `CREATE TRIGGER breaks BEFORE DELETE ON outbox_events FOR EACH ROW
			WHEN (OLD.tenant_id <> 'ten_other') EXECUTE FUNCTION refuse_write('this one breaks')`)
		n, err := reaper.RunOnce(t.Context())
		require.ErrorContains(t, err, "this one breaks")
		require.Equal(t, 1, n, "the event of the other tenant")
		exec(t, pool, "DROP TRIGGER breaks ON outbox_events")
		n, err = reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, n)
	})

	t.Run("KeepsEventsForEightDaysByDefault", func(t *testing.T) {
		t.Parallel()
		pool, _, _ := setup(t)
		aged := func(days int) int {
			exec(t, pool, "UPDATE outbox_events SET published_at = now() - make_interval(days => $1)", days)
			exec(t, pool, "UPDATE event_feeds SET reap_at = '-infinity'")
			n, err := outbox.NewReaper(pool, 0).RunOnce(t.Context())
			require.NoError(t, err)
			return n
		}
		require.Zero(t, aged(7))
		require.Equal(t, 10, aged(9))
	})

	t.Run("ReportsWhatTheDatabaseCouldNotDo", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		other := event("ord_other", 1)
		other.TenantID = "ten_other"
		appendEvents(t, pool, event("ord_1", 1), other)
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		exec(t, pool, "UPDATE outbox_events SET published_at = published_at - interval '2 hours'")
		exec(t, pool, "UPDATE event_feeds SET reap_at = '-infinity'")
		reaper := outbox.NewReaper(pool, time.Hour)
		for _, query := range []string{"FeedDue", "FeedReap", "FeedScheduleReap"} {
			failOnce(t, proxy, query, func() error {
				n, err := reaper.RunOnce(t.Context())
				require.Zero(t, n, "%s: nothing was committed", query)
				return err
			})
		}
		require.Equal(t, 2, count(t, pool, "SELECT count(*) FROM outbox_events"), "the other tenant's is not tried either")
	})

	// One batch of one tenant that has any. A tenant whose events cannot be deleted, or that has none, is none.
	t.Run("RemovesABatchOfTheFirstTenantThatHasAny", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		for i := range 5 {
			e := event("ord_1", 1)
			e.TenantID = fmt.Sprint("ten_", i)
			appendEvents(t, pool, e)
		}
		var many []outbox.Event
		for i := range 1000 { // with the one above, more than a batch
			e := event(fmt.Sprint("ord_many_", i), 1)
			e.TenantID = "ten_3"
			many = append(many, e)
		}
		appendEvents(t, pool, many...)
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		exec(t, pool, `UPDATE outbox_events SET published_at = published_at - interval '2 hours'
			WHERE tenant_id <> 'ten_0'`)
		exec(t, pool, `UPDATE event_feeds SET reap_at = clock_timestamp() - interval '1 hour'
			+ make_interval(mins => right(tenant_id, 1)::integer)`)
		reaper := outbox.NewReaper(pool, time.Hour)
		n, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n, "the first has none")
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE tenant_id = 'ten_1'"))

		exec(t, pool, `CREATE TRIGGER breaks BEFORE DELETE ON outbox_events FOR EACH ROW
			WHEN (OLD.tenant_id = 'ten_2') EXECUTE FUNCTION refuse_write('this one breaks')`)
		n, err = reaper.RunOnce(t.Context())
		require.ErrorContains(t, err, "this one breaks")
		require.Equal(t, 1001, n, "a batch of each of the others")
		require.Equal(t, 3, count(t, pool, "SELECT count(*) FROM outbox_events"))
	})

	// A refusal that is about no tenant would recur for ever.
	t.Run("EndsIfItCannotFindATenant", func(t *testing.T) {
		t.Parallel()
		pool, _, reaper := setup(t)
		age(t, pool, 10)
		exec(t, pool, "ALTER TABLE event_feeds RENAME TO feeds")
		exec(t, pool, `CREATE VIEW event_feeds AS
			SELECT tenant_id, reap_at + make_interval(days => 1 / (length(tenant_id) - length(tenant_id))) AS reap_at
			FROM feeds`)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		n, err := reaper.RunOnce(ctx)
		require.ErrorContains(t, err, "division by zero")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, n)
	})

	t.Run("EndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		_, _, reaper := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := reaper.RunOnce(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("RejectsACursorWithRemovedSuccessors", func(t *testing.T) {
		t.Parallel()
		pool, feed, reaper := setup(t)
		age(t, pool, 4)
		_, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		_, _, err = feed.List(t.Context(), tenant, "ord_2-1", 10)
		require.ErrorIs(t, err, outbox.ErrUnknownCursor, "ord_3 is gone and this reader has not seen it")
		require.Equal(
			t, []string{"ord_4-1", "ord_5-1", "ord_6-1", "ord_7-1", "ord_8-1", "ord_9-1"},
			readAll(t, feed, "ord_3-1", 4),
			"nothing missed",
		)
		require.Len(t, readAll(t, feed, "", 4), 6)
	})

	t.Run("KeepsTheCursorOfAQuietTenant", func(t *testing.T) {
		t.Parallel()
		pool, feed, reaper := setup(t)
		age(t, pool, 10)
		n, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, n)
		require.Empty(t, readAll(t, feed, "ord_9-1", 10))
		appendEvents(t, pool, event("ord_new", 1))
		require.Equal(t, []string{"ord_new-1"}, readAll(t, feed, "ord_9-1", 10))
		require.Equal(t, 11, count(t, pool, "SELECT position FROM outbox_events"))
	})

	t.Run("DoesNotLetAParkedEventHideAGap", func(t *testing.T) {
		t.Parallel()
		pool, feed, reaper := setup(t)
		exec(t, pool, "UPDATE outbox_events SET published_at = NULL, parked_at = now() WHERE position = 2")
		age(t, pool, 6)
		n, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5, n)
		_, _, err = feed.List(t.Context(), tenant, "ord_1-1", 10)
		require.ErrorIs(t, err, outbox.ErrUnknownCursor, "it is there, but 3 to 6 are not")
		require.Equal(t, []string{"ord_1-1", "ord_6-1", "ord_7-1", "ord_8-1", "ord_9-1"}, readAll(t, feed, "", 10))
	})

	t.Run("GoesThroughAllTenants", func(t *testing.T) {
		t.Parallel()
		pool, _, reaper := setup(t)
		for i := range 20 {
			e := event("ord_1", 1)
			e.TenantID = fmt.Sprintf("tnt_%d", i)
			appendEvents(t, pool, e)
		}
		drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{}))
		age(t, pool, 10)
		total := 0
		for {
			n, err := reaper.RunOnce(t.Context())
			require.NoError(t, err)
			if total += n; n == 0 {
				break
			}
		}
		require.Equal(t, 30, total)
	})

	t.Run("KeepsTheTableAtItsSize", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Fresh(t) // whose table has no room yet
		relay, reaper := outbox.NewRelay(
			pool, &brokerLog{}, outbox.RelayOptions{},
		), outbox.NewReaper(
			pool, time.Nanosecond,
		)
		const rounds, each = 12, 1500
		var full int // with the events of one round
		var sizes []int
		for round := range rounds {
			var batch []outbox.Event
			for i := range each {
				batch = append(batch, event(fmt.Sprintf("ord_%d_%d", round, i), 1))
			}
			appendEvents(t, pool, batch...)
			require.Equal(t, each, drain(t, relay))
			if round == 0 {
				full = count(t, pool, "SELECT pg_relation_size('outbox_events')")
			}
			exec(t, pool, "UPDATE event_feeds SET reap_at = '-infinity'")
			removed := 0
			for {
				n, err := reaper.RunOnce(t.Context())
				require.NoError(t, err)
				if removed += n; n == 0 {
					break
				}
			}
			require.Equal(t, each, removed)
			require.Eventually(t, func() bool { // an autovacuum that counts rows keeps ours from being removed
				return count(
					t, pool,
					"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS "+
						"NOT NULL AND pid <> pg_backend_pid()",
				) == 0
			}, 30*time.Second, 10*time.Millisecond)
			exec(t, pool, "VACUUM outbox_events") // autovacuum's work, without waiting for it
			// Without the indexes: their emptied pages wait for the oldest transaction of all databases, and other
			// tests have long ones.
			sizes = append(sizes, count(t, pool, "SELECT pg_relation_size('outbox_events')"))
		}
		t.Logf("events=%d, bytes after each %d: %v", rounds*each, each, sizes)
		require.Less(t, sizes[rounds-1], 2*full, "it goes on growing")
	})
}
