package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/relays"
)

var errAway = errors.New("connection refused")

func TestAppend(t *testing.T) {
	t.Parallel()

	t.Run("ExistsOnlyIfTheChangeDoes", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		refused := errors.New("refused")
		err := pool.InTx(t.Context(), func(q *db.Queries) error {
			require.NoError(t, outbox.Append(t.Context(), q, event("ord_1", 1)))
			return refused
		})
		require.ErrorIs(t, err, refused)
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events"))
	})

	t.Run("RefusesASecondEventOfAVersion", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		err := pool.InTx(
			t.Context(),
			func(q *db.Queries) error { return outbox.Append(t.Context(), q, event("ord_2", 1), event("ord_1", 1)) },
		)
		require.True(t, postgres.Violates(err, "outbox_events_pkey"), "%v", err)
		require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM outbox_events"))
	})

	t.Run("SendsNothingForNothing", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, outbox.Append(t.Context(), nil))
	})

	t.Run("NeverChangesOrVanishesUnpublished", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		_, err := pool.Raw().Exec(t.Context(), "UPDATE outbox_events SET data = '{}'")
		require.True(t, postgres.Violates(err, "event_data_is_only_erased"), "%v", err)
		_, err = pool.Raw().Exec(t.Context(), "DELETE FROM outbox_events")
		require.True(t, postgres.Violates(err, "unpublished_is_never_deleted"), "%v", err)
	})
}

// TestRendersEventsWithoutData: the relay asks for the data of the events that were stored without.
func TestRendersEventsWithoutData(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	stored := event("ord_1", 1)
	stored.Type, stored.Data = "order.created", nil
	appendEvents(t, pool, stored)
	var rendering error
	render := func(_ context.Context, _ *postgres.Pool, events []outbox.Envelope) error {
		events[0].Data = []byte(`{"rendered":true}`)
		return rendering
	}
	var published []outbox.Envelope
	relay := outbox.NewRelay(pool, publisher(func(_ context.Context, events []outbox.Envelope) []error {
		published = append(published, events...)
		return make([]error, len(events))
	}), outbox.RelayOptions{Render: render})

	rendering = errAway
	n, err := relay.RunOnce(t.Context())
	require.ErrorIs(t, err, errAway)
	require.Zero(t, n)
	require.Empty(t, published, "it cannot be read")

	rendering = nil
	n, err = relay.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.JSONEq(t, `{"rendered":true}`, string(published[0].Data))
}

func TestRelay(t *testing.T) {
	t.Parallel()

	t.Run("PublishesChainsInOrderInOneBatch", func(t *testing.T) {
		t.Parallel()
		pool, broker := dbtest.New(t), &brokerLog{}
		for v := int64(1); v <= 3; v++ {
			appendEvents(t, pool, event("ord_1", v), event("pay_1", v))
		}
		n, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 6, n)
		require.Empty(
			t,
			cmp.Diff([]string{"ord_1-1", "pay_1-1", "ord_1-2", "pay_1-2", "ord_1-3", "pay_1-3"}, broker.IDs()),
		)
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL"))
	})

	t.Run("SendsASuccessorOnlyAfterTheAcknowledgement", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2), event("ord_2", 1), event("ord_2", 2))
		failed := false
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if e.ID == "ord_1-1" && !failed {
				failed = true
				return errAway
			}
			return nil
		}}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		n, err := relay.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Empty(t, cmp.Diff([]string{"ord_2-1", "ord_2-2"}, broker.IDs()))
		makeDue(t, pool)
		require.Equal(t, 2, drain(t, relay))
		require.Empty(t, cmp.Diff([]string{"ord_2-1", "ord_2-2", "ord_1-1", "ord_1-2"}, broker.IDs()))
	})

	t.Run("LeavesFreshLeasesAlone", func(t *testing.T) {
		t.Parallel()
		pool, broker := dbtest.New(t), &brokerLog{}
		appendEvents(t, pool, event("ord_1", 1))
		require.Len(t, lease(t, pool), 1)
		appendEvents(t, pool, event("ord_1", 2))
		require.Zero(
			t,
			drain(t, outbox.NewRelay(pool, broker, outbox.RelayOptions{})),
			"the second event is nobody's, but its head is leased",
		)
		makeDue(t, pool)
		require.Equal(t, 2, drain(t, outbox.NewRelay(pool, broker, outbox.RelayOptions{})))
	})

	t.Run("ReleasesLeasesOnShutdown", func(t *testing.T) {
		t.Parallel()
		dsn := dbtest.URL(t)
		proxy, err := pgproxy.Start(dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		through, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(through.Close)
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))

		stopping, stop := context.WithCancel(t.Context())
		release, stopped, broker := make(chan struct{}), make(chan error, 1), &brokerLog{}
		held := proxy.Hold("OutboxLease", release)
		go func() {
			_, err := outbox.NewRelay(through, broker, outbox.RelayOptions{Lease: time.Hour}).RunOnce(stopping)
			stopped <- err
		}()
		held.Await(t) // leased, and the answer is on its way
		stop()
		close(release)
		require.NoError(t, <-stopped)
		require.Empty(t, broker.IDs(), "nothing new is begun")
		require.Equal(
			t, 2,
			drain(t, outbox.NewRelay(pool, broker, outbox.RelayOptions{})),
			"the next one need not wait for the lease",
		)
	})

	t.Run("CannotMarkUnderALostLease", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		reg := prometheus.NewRegistry()
		appendEvents(t, pool, event("ord_1", 1))
		broker := &brokerLog{After: func(outbox.Envelope) error {
			makeDue(t, pool)
			require.Len(t, lease(t, pool), 1, "another has taken it meanwhile")
			return nil
		}}
		n, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{Metrics: outbox.NewMetrics(reg)}).
			RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL"))
		require.Equal(t, 1.0, gathered(t, reg, "payonce_outbox_fenced_total"))
	})

	t.Run("CannotRecordFailuresUnderALostLease", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_2", 1))
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if e.Subject == "ord_1" {
				return nil
			}
			makeDue(t, pool)
			require.Len(t, lease(t, pool), 2)
			return fmt.Errorf("%w: so it seems to one who stood still", outbox.ErrPermanent)
		}}
		_, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(
			t, 1,
			count(
				t, pool,
				"SELECT count(*) FROM outbox_events WHERE aggregate_id = 'ord_2' AND next_attempt_at = '-infinity' AND "+
					"attempts = 0 AND parked_at IS NULL AND last_error IS NULL",
			),
		)
	})

	// What is sent later than that, another relay may be sending.
	t.Run("HasHalfOfItsLeaseToPublish", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		var within time.Duration
		relay := outbox.NewRelay(pool, publisher(func(ctx context.Context, events []outbox.Envelope) []error {
			until, bounded := ctx.Deadline()
			require.True(t, bounded)
			within = time.Until(until)
			return make([]error, len(events))
		}), outbox.RelayOptions{Lease: time.Hour})
		_, err := relay.RunOnce(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, within, 30*time.Minute)
		require.Greater(t, within, 25*time.Minute)
	})

	// An event that was parked holds back those behind it, also when one before it is
	// sent once more, and they could be taken together with that.
	t.Run("ParkedEventsBlockLaterOnes", func(t *testing.T) {
		t.Parallel()
		pool, broker := dbtest.New(t), &brokerLog{}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		appendEvents(t, pool, event("ord_1", 1))
		require.Equal(t, 1, drain(t, relay))
		poison := event("ord_1", 2)
		poison.Data = []byte("not JSON")
		appendEvents(t, pool, poison, event("ord_1", 3))
		require.Equal(t, 1, drain(t, relay), "it is parked")
		makeDue(t, pool)
		n := replayOnce(t, pool.Queries)
		require.EqualValues(t, 3, n)
		require.Equal(t, 1, drain(t, relay), "the first, once more")
		require.Equal(t, []string{"ord_1-1", "ord_1-1"}, broker.IDs())
		require.Equal(
			t, 1,
			count(
				t, pool,
				"SELECT count(*) FROM outbox_events WHERE version = 2 AND parked_at IS NOT NULL AND attempts = 0",
			),
			"nobody has tried it",
		)
		require.Equal(
			t, 1,
			count(t, pool, "SELECT count(*) FROM outbox_events WHERE version = 3 AND published_at IS NULL"),
		)
		makeDue(t, pool)
		require.Zero(t, drain(t, relay), "what is parked waits for a person, and not for a time")
	})

	// Between any two of its three steps a relay may die. Another one sends what it
	// held, in its order, and what had been sent goes out again under the same id.
	t.Run("SendsEventsOfACrashedRelay", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			dies string
			at   func(b *brokerLog, die func(outbox.Envelope) error)
			log  []string
		}{
			{"BeforeTheBrokerHasIt", func(b *brokerLog, die func(outbox.Envelope) error) { b.Before = die },
				[]string{"ord_1-1", "ord_1-2"}},
			{"BeforeItIsMarked", func(b *brokerLog, die func(outbox.Envelope) error) { b.After = die },
				[]string{"ord_1-1", "ord_1-1", "ord_1-2"}},
		} {
			t.Run(c.dies, func(t *testing.T) {
				t.Parallel()
				pool, broker := dbtest.New(t), &brokerLog{}
				appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
				c.at(broker, func(outbox.Envelope) error { panic(relays.Killed{}) })
				_, _, died := relays.RunOrDie(t.Context(), outbox.NewRelay(pool, broker, outbox.RelayOptions{}))
				require.True(t, died)
				broker.Before, broker.After = nil, nil
				heir := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
				require.Zero(t, drain(t, heir), "the lease of the dead still runs")
				makeDue(t, pool)
				drain(t, heir)
				require.Equal(t, c.log, broker.IDs(), "every event is published, in its order, whoever dies")
			})
		}
	})

	t.Run("ParksPoisonAndGoesOnElsewhere", func(t *testing.T) {
		t.Parallel()
		pool, broker, reg := dbtest.New(t), &brokerLog{}, prometheus.NewRegistry()
		poison := event("ord_1", 1)
		poison.Data = []byte("not JSON")
		appendEvents(t, pool, poison, event("ord_1", 2), event("ord_2", 1))
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{Metrics: outbox.NewMetrics(reg)})
		require.Equal(t, 2, drain(t, relay))
		require.Empty(t, cmp.Diff([]string{"ord_2-1"}, broker.IDs()))
		require.Equal(
			t, 1,
			count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL AND last_error <> ''"),
		)
		require.Equal(t, 1.0, gathered(t, reg, "payonce_outbox_failures_total"))
		_, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{Metrics: outbox.NewMetrics(nil)}).
			RunOnce(t.Context())
		require.NoError(t, err)

		// A person has mended it.
		dbtest.Unguarded(t, pool, "UPDATE outbox_events SET data = '{}' WHERE parked_at IS NOT NULL")
		unparked, err := outbox.Unpark(t.Context(), pool.Queries, tenant, "ord_1")
		require.NoError(t, err)
		require.True(t, unparked)
		require.Equal(t, 2, drain(t, relay))
		require.Empty(t, cmp.Diff([]string{"ord_2-1", "ord_1-1", "ord_1-2"}, broker.IDs()))
	})

	t.Run("ParksAfterManyFailuresWhileOthersPass", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if e.Subject == "ord_1" {
				return errors.New("what is no text: \x00 \xff")
			}
			return nil
		}}
		appendEvents(t, pool, event("ord_1", 1))
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		for i := 0; count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL") == 0; i++ {
			require.Less(t, i, 100)
			appendEvents(t, pool, event(fmt.Sprintf("ord_ok_%d", i), 1))
			makeDue(t, pool)
			_, err := relay.RunOnce(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, 30, count(t, pool, "SELECT attempts FROM outbox_events WHERE parked_at IS NOT NULL"))
	})

	t.Run("BlamesTheBrokerAndNoEventWhenNothingPasses", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		away, tries := true, map[string]int{}
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if away {
				tries[e.Subject]++
				return errAway
			}
			return nil
		}}
		for i := range 100 {
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1))
		}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		for range 101 {
			n, err := relay.RunOnce(t.Context())
			require.ErrorIs(t, err, errAway)
			require.Zero(t, n)
		}
		require.Zero(t, count(t, pool, "SELECT max(attempts) FROM outbox_events"))
		require.Len(t, tries, 100)
		for subject, n := range tries {
			require.Equal(t, 11, n, "only a few are risked on a broker that is away, and each as often: %s", subject)
		}
		away = false
		require.Equal(t, 100, drain(t, relay), "at once, when it is back")
	})

	// Somebody else has sent a message under the id of an event, and the broker drops the event for a while.
	t.Run("SendsAnEventAgainWhoseIDIsTaken", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		taken := true
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if taken && e.Subject == "ord_1" {
				return fmt.Errorf("%w: %s", outbox.ErrIDTaken, e.ID)
			}
			return nil
		}}
		metrics := prometheus.NewRegistry()
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{Metrics: outbox.NewMetrics(metrics)})
		again := func() {
			exec(t, pool, "UPDATE outbox_events SET next_attempt_at = '-infinity' WHERE published_at IS NULL")
			drain(t, relay)
		}
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		for range 40 {
			again() // It is no failure of the broker, although nothing else is published.
		}
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"), "never parked")
		require.Equal(t, 40, count(t, pool, "SELECT max(attempts) FROM outbox_events"), "with a pause after each")
		appendEvents(t, pool, event("ord_2", 1))
		again()
		require.Equal(t, []string{"ord_2-1"}, broker.IDs())
		families, err := metrics.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "payonce_outbox_ids_taken_total" {
				require.Equal(t, 41.0, f.GetMetric()[0].GetCounter().GetValue())
			}
		}
		taken = false
		again()
		require.Equal(t, []string{"ord_2-1", "ord_1-1", "ord_1-2"}, broker.IDs())
	})

	// A partition has lost its leader, and for a moment there was nothing else to
	// send. What comes then for the others must not wait until it has one again.
	t.Run("GoesOnElsewhereWhileAPartOfTheBrokerIsAway", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if strings.HasPrefix(e.Subject, "ord_away") {
				return errAway
			}
			return nil
		}}
		for i := range 25 {
			appendEvents(t, pool, event(fmt.Sprintf("ord_away_%d", i), 1))
		}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		_, err := relay.RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		appendEvents(t, pool, event("ord_here", 1))
		for i := 0; len(broker.IDs()) == 0; i++ {
			require.Less(t, i, 5, "the same few are tried again and again")
			_, _ = relay.RunOnce(t.Context())
		}
		require.Equal(t, []string{"ord_here-1"}, broker.IDs())
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	})

	t.Run("FindsEventsCommittedLate", func(t *testing.T) {
		t.Parallel()
		pool, broker := dbtest.New(t), &brokerLog{}
		slow, err := pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		_, err = slow.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
		require.NoError(t, err)
		require.NoError(t, outbox.Append(t.Context(), db.New(slow), event("ord_slow", 1)))
		for i := range 30 {
			var batch []outbox.Event
			for j := range 200 {
				batch = append(batch, event(fmt.Sprintf("ord_%d_%d", i, j), 1))
			}
			appendEvents(t, pool, batch...)
		}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		require.Equal(t, 6000, drain(t, relay))
		require.NoError(t, slow.Commit(t.Context()))
		require.Eventually(t, func() bool { return drain(t, relay) == 1 }, 30*time.Second, 10*time.Millisecond)
		require.Equal(t, "ord_slow-1", broker.IDs()[6000])
	})

	t.Run("ReadsAsMuchAsItPublishes", func(t *testing.T) {
		t.Parallel()
		// a fresh table, of which the planner knows nothing
		pool := dbtest.Fresh(t)
		exec(t, pool, "ALTER TABLE outbox_events SET (autovacuum_enabled = off)")
		working, err := postgres.Open(t.Context(), pool.Raw().Config().ConnString(), postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(working.Close)
		const events = 6000
		var batch []outbox.Event
		for i := range events {
			batch = append(batch, event(fmt.Sprintf("ord_%d", i/2), int64(i%2+1)))
		}
		appendEvents(t, working, batch...)
		require.Equal(t, events, drain(t, outbox.NewRelay(working, &brokerLog{}, outbox.RelayOptions{})))
		working.Close() // A session reports what it has read before it ends.
		require.Eventually(t, func() bool {
			return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND backend_type = 'client backend' AND pid <> pg_backend_pid()`) == 0
		}, time.Minute, 10*time.Millisecond, "a session has not ended")
		read := count(
			t, pool,
			`SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'outbox_events')
			+ (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'outbox_events')`,
		)
		require.GreaterOrEqual(t, read, events, "the server has not counted")
		require.Less(t, read, 30*events, "rows read for each event published")
	})

	t.Run("SendsAgainNothingWhoseSuccessorIsOnItsWay", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		require.Equal(t, 1, drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})))
		appendEvents(t, pool, event("ord_1", 2))
		require.Len(t, lease(t, pool), 1)
		again := func() int64 {
			n := replayOnce(t, pool.Queries)
			return n
		}
		require.Zero(t, again(), "a relay is sending the second")
		exec(t, pool, "DELETE FROM outbox_leases")
		require.EqualValues(t, 2, again())
	})

	t.Run("SendsAgainInOrder", func(t *testing.T) {
		t.Parallel()
		pool, broker := dbtest.New(t), &brokerLog{}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		appendEvents(t, pool, event("ord_old", 1))
		drain(t, relay)
		exec(t, pool, "UPDATE outbox_events SET published_at = published_at - interval '1 hour'")
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2), event("ord_2", 1))
		drain(t, relay)
		appendEvents(t, pool, event("ord_1", 3))

		broker.Clear() // the broker has lost it
		n, err := outbox.Replay(t.Context(), pool, time.Now().Add(-30*time.Minute))
		require.NoError(t, err)
		require.EqualValues(t, 4, n, "three published ones, and the one that must wait for them")
		require.Eventually(
			t,
			func() bool { drain(t, relay); return len(broker.IDs()) == 4 },
			30*time.Second, 20*time.Millisecond,
		)
		outOfOrder, repeated := disorder(broker.Events())
		require.Zero(t, outOfOrder+repeated)
	})
}

// TestFailures: if the broker accepts no event, the failures count against none, except those that are permanent.
func TestFailures(t *testing.T) {
	t.Parallel()
	attempts := func(t *testing.T, pool *postgres.Pool, aggregate string) int {
		return count(t, pool, "SELECT sum(attempts) FROM outbox_events WHERE aggregate_id = $1", aggregate)
	}
	poison := func() outbox.Event {
		e := event("ord_poison", 1)
		e.Data = []byte("not JSON")
		return e
	}
	away := func(e outbox.Envelope) error {
		if e.Subject == "ord_poison" {
			return nil
		}
		return errAway
	}

	t.Run("AreNotOfEventsThatWereNotSent", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_1", 2))
		_, err := outbox.NewRelay(pool, &brokerLog{Before: away}, outbox.RelayOptions{}).RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Zero(t, attempts(t, pool, "ord_1"))
	})

	t.Run("ParkPoisonAlsoWhileTheBrokerIsAway", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, poison(), event("ord_1", 1))
		reg := prometheus.NewRegistry()
		_, err := outbox.NewRelay(pool, &brokerLog{Before: away}, outbox.RelayOptions{Metrics: outbox.NewMetrics(reg)}).
			RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Equal(t, 1.0, labelled(t, reg, "payonce_outbox_failures_total", "permanent"))
		require.Equal(t, 1.0, labelled(t, reg, "payonce_outbox_failures_total", "transient"))
		require.Equal(t, 1, attempts(t, pool, "ord_poison"))
		require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
		require.Zero(t, attempts(t, pool, "ord_1"))
	})

	t.Run("DoNotParkAnEventWhileTheBrokerIsAway", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		exec(t, pool, "UPDATE outbox_events SET attempts = 29")
		_, err := outbox.NewRelay(pool, &brokerLog{Before: away}, outbox.RelayOptions{}).RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	})

	t.Run("CountWhileOtherEventsPass", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1), event("ord_2", 1))
		exec(t, pool, "UPDATE outbox_events SET attempts = 20")
		broker := &brokerLog{Before: func(e outbox.Envelope) error {
			if e.Subject == "ord_1" {
				return errAway
			}
			return nil
		}}
		n, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 21, attempts(t, pool, "ord_1"))
		require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM outbox_events WHERE aggregate_id = 'ord_1' AND "+
			"next_attempt_at > clock_timestamp()"), "its pauses grow")
	})

	t.Run("OfPoisonAloneAreNotTheBrokers", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})
		appendEvents(t, pool, poison())
		require.Equal(t, 1, drain(t, relay))
		for i := range 20 {
			appendEvents(t, pool, event(fmt.Sprint("ord_", i), 1))
		}
		n, err := relay.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20, n, "it is not probed with a few")
	})
}

// TestRelayLeases: what a relay reads from the queue.
func TestRelayLeases(t *testing.T) {
	t.Parallel()

	t.Run("SendsOneStatementWhenNothingWaits", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})
		require.Zero(t, drain(t, relay))
		proxy.Seen()
		require.Zero(t, drain(t, relay))
		require.Len(t, proxy.Seen(), 1)
	})

	t.Run("SettlesWithNoStatementForNothing", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		broker := &brokerLog{}
		relay := outbox.NewRelay(pool, broker, outbox.RelayOptions{})
		appendEvents(t, pool, event("ord_1", 1))
		require.Equal(t, 1, drain(t, relay))
		require.Zero(t, sent(proxy, "OutboxFail"), "every event was published")
		broker.Before = func(outbox.Envelope) error { return errAway }
		appendEvents(t, pool, event("ord_2", 1))
		proxy.Seen()
		_, err := relay.RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Zero(t, sent(proxy, "OutboxMark"), "none was")
	})

	t.Run("OnceWhileTheBrokerIsAwayAndNothingIsDue", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		relay := outbox.NewRelay(pool, &brokerLog{Before: func(outbox.Envelope) error { return errAway }},
			outbox.RelayOptions{})
		appendEvents(t, pool, event("ord_1", 1))
		_, err := relay.RunOnce(t.Context())
		require.ErrorIs(t, err, errAway)
		exec(t, pool, "UPDATE outbox_events SET next_attempt_at = 'infinity'")
		proxy.Seen()
		require.Zero(t, drain(t, relay))
		require.Equal(t, 1, sent(proxy, "OutboxLease"))
	})

	// After a batch of which nothing passed: the oldest, then others each time, then the oldest again.
	t.Run("OtherEventsEachTimeWhileTheBrokerIsAway", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		var tried []string
		relay := outbox.NewRelay(pool, publisher(func(_ context.Context, events []outbox.Envelope) []error {
			errs := make([]error, len(events))
			for i, e := range events {
				tried, errs[i] = append(tried, e.Subject), errAway
			}
			return errs
		}), outbox.RelayOptions{HeadsMax: 1})
		appendEvents(t, pool, event("a", 1), event("b", 1), event("c", 1))
		for range 5 {
			_, err := relay.RunOnce(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		require.Equal(t, []string{"a", "a", "b", "c", "a"}, tried)
	})
}

// TestRelayReportsErrors: a statement fails, once. Nothing of what it was part of is kept, and everything is published
// afterwards.
func TestRelayReportsErrors(t *testing.T) {
	t.Parallel()
	t.Run("OfAnyOfItsSteps", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		broker := &brokerLog{}
		for i, query := range []string{
			"OutboxStats", "OutboxLock", "OutboxLease", "FeedLock", "FeedCreate", "OutboxLeaseEnd", "OutboxMark",
		} {
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1))
			failOnce(t, proxy, query, func() error {
				n, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{}).RunOnce(t.Context())
				require.Zero(t, n)
				return err
			})
			require.Equal(t, i+1, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL"), query)
			makeDue(t, pool)
		}
		require.Equal(t, 7, drain(t, outbox.NewRelay(pool, broker, outbox.RelayOptions{})))
	})

	t.Run("OfAFailureThatCannotBeRecorded", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		broker := &brokerLog{Before: func(outbox.Envelope) error { return errAway }}
		appendEvents(t, pool, event("ord_1", 1))
		failOnce(t, proxy, "OutboxFail", func() error {
			_, err := outbox.NewRelay(pool, broker, outbox.RelayOptions{}).RunOnce(t.Context())
			require.NotErrorIs(t, err, errAway)
			return err
		})
		require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM outbox_leases"), "until it expires")
	})

	t.Run("OfTheLookForWhatIsDue", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})
		require.Zero(t, drain(t, relay))
		failOnce(t, proxy, "OutboxDue", func() error {
			_, err := relay.RunOnce(t.Context())
			return err
		})
	})

	t.Run("AlsoWhileTheBrokerIsAway", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		relay := outbox.NewRelay(pool, &brokerLog{Before: func(outbox.Envelope) error { return errAway }},
			outbox.RelayOptions{})
		appendEvents(t, pool, event("ord_1", 1))
		for range 2 {
			_, err := relay.RunOnce(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		failOnce(t, proxy, "OutboxLease", func() error {
			_, err := relay.RunOnce(t.Context())
			return err
		})
	})

	t.Run("LeasesNothingOnceItIsStopped", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})
		require.Zero(t, drain(t, relay))
		appendEvents(t, pool, event("ord_1", 1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := relay.RunOnce(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_leases"))
	})

	t.Run("OfAPublisherThatDoesNotAnswerForEach", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		relay := outbox.NewRelay(pool, publisher(func(context.Context, []outbox.Envelope) []error {
			return make([]error, 2)
		}), outbox.RelayOptions{})
		require.PanicsWithValue(t, "bug: 2 outcomes of 1 messages", func() { _, _ = relay.RunOnce(t.Context()) })
	})
}

// TestRelayLogsWhatItParks, in the log that it was given.
func TestRelayLogsWhatItParks(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	poison := event("ord_1", 1)
	poison.Data = []byte("not JSON")
	appendEvents(t, pool, poison, event("ord_2", 1))
	var log bytes.Buffer
	relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.Equal(t, 2, drain(t, relay))
	require.Equal(t, 1, strings.Count(log.String(), "event parked"))
	require.Contains(t, log.String(), "event_id=ord_1-1")
}

// replayOnce marks what was published in the last hour, but for what is being sent.
func replayOnce(t testing.TB, q *db.Queries) int64 {
	t.Helper()
	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	found, err := q.OutboxReplayFind(t.Context(),
		db.OutboxReplayFindParams{TenantID: tenant, Since: since, Until: until, LimitRows: 10})
	require.NoError(t, err)
	p := db.OutboxReplayParams{Since: since, Until: until}
	for _, a := range found {
		p.TenantIds, p.AggregateIds = append(p.TenantIds, tenant), append(p.AggregateIds, a.AggregateID)
		p.Versions = append(p.Versions, a.Version)
	}
	n, err := q.OutboxReplay(t.Context(), p)
	require.NoError(t, err)
	return n
}

func TestReplay(t *testing.T) {
	t.Parallel()

	t.Run("ReportsWhatTheDatabaseCouldNotDo", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		relay := outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})
		for i, query := range []string{"OutboxNow", "OutboxReplayTenants", "OutboxReplayFind", "OutboxLock", "PlanByIndex", "OutboxReplay"} {
			appendEvents(t, pool, event(fmt.Sprint("ord_", i), 1))
			drain(t, relay)
			failOnce(t, proxy, query, func() error {
				_, err := outbox.Replay(t.Context(), pool, time.Now().Add(-time.Hour))
				return err
			})
		}
		failOnce(t, proxy, "OutboxUnpark", func() error {
			_, err := outbox.Unpark(t.Context(), pool.Queries, tenant, "ord_1")
			return err
		})
		unparked, err := outbox.Unpark(t.Context(), pool.Queries, tenant, "ord_1")
		require.NoError(t, err)
		require.False(t, unparked)
	})

	t.Run("MarksEachOnce", func(t *testing.T) {
		t.Parallel()
		pool, proxy := failing(t)
		var batch []outbox.Event
		for i := range 501 { // more than one statement marks
			batch = append(batch, event(fmt.Sprint("ord_", i), 1))
		}
		appendEvents(t, pool, batch...)
		require.Equal(t, 501, drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})))
		proxy.Seen()
		n, err := outbox.Replay(t.Context(), pool, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.EqualValues(t, 501, n)
		require.Equal(t, 4, sent(proxy, "OutboxReplayFind"), "a page and its end, and once more")
	})

	t.Run("WaitsForWhatARelayIsSending", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_1", 1))
		require.Equal(t, 1, drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})))
		appendEvents(t, pool, event("ord_1", 2))
		require.Len(t, lease(t, pool), 1)
		since := time.Now().Add(-time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		n, err := outbox.Replay(ctx, pool, since)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it is not done")
		require.Zero(t, n)
		exec(t, pool, "DELETE FROM outbox_leases")
		n, err = outbox.Replay(t.Context(), pool, since)
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
	})
}

// makeDue ends the pauses of events, and makes all leases expire.
// lease leases what is due, as a relay does that stops afterwards.
func lease(t testing.TB, pool *postgres.Pool) (leased []db.OutboxLeaseRow) {
	t.Helper()
	require.NoError(t, pool.InTx(t.Context(), func(q *db.Queries) (err error) {
		if err = q.OutboxLock(t.Context()); err == nil {
			leased, err = q.OutboxLease(t.Context(), db.OutboxLeaseParams{Lease: time.Hour, HeadsMax: 10, RunMax: 10})
		}
		return err
	}))
	return leased
}

func gathered(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	return labelled(t, reg, name, "")
}

// labelled is the sum of the metric's series that have the label's value; with "" it is that of all.
func labelled(t testing.TB, reg *prometheus.Registry, name, value string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := value == ""
			for _, label := range m.GetLabel() {
				has = has || label.GetValue() == value
			}
			if has {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}
