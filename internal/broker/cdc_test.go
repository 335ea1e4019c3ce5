package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestCDC: what is published is inserted and deleted in one transaction. Here a trigger sees the
// inserts, because the log of this server is not decoded.
func TestCDC(t *testing.T) {
	t.Parallel()
	// A server of its own: what a shared one leaves running would be taken for a leak here.
	pool := dbtest.Migrated(t, dbtest.Server(t, func(o *devpg.Options) { o.Durable = false }).URL)
	exec := func(t *testing.T, sql string) {
		t.Helper()
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(t, `CREATE TABLE inserted (n serial, id text)`) // where a trigger keeps what was
	exec(t, `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO inserted (id) VALUES (NEW.aggregatetype || ' ' || NEW.id); RETURN NULL; END $$`)
	exec(t, `CREATE TRIGGER keep AFTER INSERT ON cdc_events FOR EACH ROW EXECUTE FUNCTION keep()`)
	// inserted is what came since it was last asked.
	inserted := func(t *testing.T) (ids []string) {
		t.Helper()
		var left int
		require.NoError(t, pool.Raw().QueryRow(t.Context(), `SELECT count(*) FROM cdc_events`).Scan(&left))
		require.Zero(t, left, "events stay in the table")
		require.NoError(t, pool.Raw().QueryRow(t.Context(),
			`WITH gone AS (DELETE FROM inserted RETURNING n, id) SELECT array_agg(id ORDER BY n) FROM gone`).Scan(&ids))
		return ids
	}
	setup := func(t *testing.T) Broker {
		t.Helper()
		b, err := Open(t.Context(), "cdc:", Options{Pool: pool})
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}

	t.Run("InsertsEventsInTheirOrderAndDeletesThem", func(t *testing.T) {
		b := setup(t)
		publish(t, b, envelope("ord_2", 1), envelope("ord_1", 7), envelope("ord_3", 2))
		require.Equal(t, []string{"order ord_2-1", "order ord_1-7", "order ord_3-2"}, inserted(t))
		publish(t, b, envelope("ord_2", 1))
		require.Equal(t, []string{"order ord_2-1"}, inserted(t), "again, as after a crash before the mark")
		require.Empty(t, b.Publish(t.Context(), nil))
	})

	t.Run("RefusesForGoodOnlyWhatTheServerRejects", func(t *testing.T) {
		b := setup(t)
		nameless := envelope("ord_5", 1)
		nameless.Data = nil
		errs := b.Publish(t.Context(), []outbox.Envelope{
			envelope("ord_1", 1), envelope("ord_\x00", 1), envelope("ord_3", 1), envelope("ord_4", 1), nameless,
		})
		for i, wrong := range []bool{false, true, false, false, true} {
			if wrong {
				require.ErrorIs(t, errs[i], outbox.ErrPermanent, i)
			} else {
				require.NoError(t, errs[i], i)
			}
		}
		require.Equal(t, []string{"order ord_1-1", "order ord_3-1", "order ord_4-1"}, inserted(t))
	})

	t.Run("TriesAgainWhatTheServerCouldNotTake", func(t *testing.T) {
		b := setup(t)
		exec(t, `ALTER TABLE cdc_events RENAME TO elsewhere`)
		for _, err := range b.Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1), envelope("ord_2", 1)}) {
			require.Error(t, err)
			require.NotErrorIs(t, err, outbox.ErrPermanent)
		}
		exec(t, `ALTER TABLE elsewhere RENAME TO cdc_events`)
		require.Empty(t, inserted(t))
	})

	t.Run("TellsConsumersOfThisProcess", func(t *testing.T) {
		b := setup(t)
		got := make(chan inbox.Message, 2)
		stopped := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			stopped <- b.Consume(ctx, "ledger", func(_ context.Context, m inbox.Message) error {
				got <- m
				return errors.New("the database is away")
			})
		}()
		require.Eventually(t, func() bool { return hasConsumers(b, 1) }, 10*time.Second, time.Millisecond)
		publish(t, b, envelope("ord_1", 1))
		publish(t, b, envelope("ord_1", 2))
		first, second := <-got, <-got
		require.Equal(t, []string{"ord_1-1", "ord_1-2"}, []string{first.ID, second.ID}, "a failure holds up nothing")
		require.Equal(t, "ord_1", first.Subject)
		require.Zero(t, first.Deliveries)
		stop()
		require.NoError(t, <-stopped)
		require.True(t, hasConsumers(b, 0))
		require.NotEmpty(t, inserted(t))
	})

	t.Run("WaitsForNoConsumer", func(t *testing.T) {
		b := setup(t)
		block := make(chan struct{})
		stopped := make(chan error, 1)
		go func() {
			stopped <- b.Consume(t.Context(), "ledger", func(context.Context, inbox.Message) error { <-block; return nil })
		}()
		require.Eventually(t, func() bool { return hasConsumers(b, 1) }, 10*time.Second, time.Millisecond)
		batch := make([]outbox.Envelope, 2*hintsMax)
		for i := range batch {
			batch[i] = envelope("ord_1", int64(i+1))
		}
		publish(t, b, batch...)
		require.Equal(t, len(batch), len(inserted(t)))
		require.NoError(t, b.Close())
		close(block)
		require.NoError(t, <-stopped, "Close ends it")
	})

	t.Run("NeedsADatabaseAndNothingElse", func(t *testing.T) {
		_, err := Open(t.Context(), "cdc:", Options{})
		require.ErrorContains(t, err, "BROKER_URL: cdc: is for the service")
		for _, url := range []string{"cdc:elsewhere", "cdc:?slot=a", "cdc://host"} {
			_, err = Open(t.Context(), url, Options{Pool: pool})
			require.ErrorContains(t, err, "BROKER_URL: cdc: has no parameters")
			_, err = Examine(t.Context(), url)
			require.Error(t, err)
		}
		st, err := Examine(t.Context(), "cdc:")
		require.NoError(t, err)
		require.Equal(t, State{Reached: "the write-ahead log of the database"}, st)
	})
}

func hasConsumers(b Broker, n int) bool {
	c := b.(*cdc)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.consumers) == n
}
