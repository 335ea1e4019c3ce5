package inbox_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
)

func (b *bundle) handle(m inbox.Message) {
	b.Helper()
	require.NoError(b, b.consumer.Handle(b.Context(), m))
}

func message(subject string, version int64) inbox.Message {
	return inbox.Message{
		ID: fmt.Sprintf("%s-%d", subject, version), Type: "order.paid", TenantID: "tnt_a", Subject: subject,
		Version: version, Body: []byte("{}"),
	}
}

func TestConsumer(t *testing.T) {
	t.Parallel()

	t.Run("AppliesConcurrentRepetitionsOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var all sync.WaitGroup
		errs := make(chan error, 100)
		for i := range 100 {
			all.Go(func() { errs <- b.consumer.Handle(t.Context(), message(fmt.Sprintf("ord_%d", i%5), 1)) })
		}
		all.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.Len(t, b.applied(), 5)
		require.Equal(t, map[string]int{"done": 5}, b.statuses())
		require.Zero(t, b.count("SELECT count(payload) FROM inbox_events"), "the outbox has it")
	})

	t.Run("TellsConsumersApart", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := inbox.NewConsumer(b.pool, "other", inbox.Handler{Apply: b.apply}, nil)
		b.handle(message("ord_1", 1))
		require.NoError(t, other.Handle(t.Context(), message("ord_1", 1)))
		require.Equal(t, []string{"ord_1-1", "ord_1-1"}, b.applied())
	})

	t.Run("StoresFailedMessagesAndAcknowledgesThem", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.fail = func(inbox.Event) error { return errNotNow }
		b.handle(message("ord_1", 1))
		require.Empty(t, b.applied())
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		b.handle(message("ord_1", 1)) // the broker did not hear us
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())

		want := message("ord_1", 1)
		b.fail = func(e inbox.Event) error {
			require.Equal(t, inbox.Event{Consumer: books, ID: want.ID, Type: want.Type, TenantID: want.TenantID,
				Subject: want.Subject, Version: want.Version, Payload: want.Body, ReceivedAt: e.ReceivedAt, Attempt: 2}, e)
			return nil
		}
		// The pause, longer: a second may be over before a busy machine comes to look.
		b.exec("UPDATE inbox_events SET leased_until = leased_until + interval '1 hour' WHERE leased_until > received_at")
		n, err := b.processor.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "not before its pause is over")
		require.Equal(t, 1, b.process())
		require.Equal(t, []string{"ord_1-1"}, b.applied())
		b.handle(message("ord_1", 1))
		require.Equal(t, []string{"ord_1-1"}, b.applied())
	})

	t.Run("LeavesNeitherRowNorEffectWithoutTheOther", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.after = func(inbox.Event) { die() }
		require.False(t, survives(func() { b.handle(message("ord_1", 1)) }))
		require.Empty(t, b.applied(), "an effect without its row")
		require.Empty(t, b.statuses(), "a row without its effect")
		b.after = nil
		b.handle(message("ord_1", 1))
		require.Equal(t, []string{"ord_1-1"}, b.applied())
	})

	t.Run("HoldsBackWhatFollowsAFailure", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		failing := true
		b.fail = func(e inbox.Event) error {
			if failing && e.ID == "ord_1-2" {
				return errNotNow
			}
			return nil
		}
		for version := int64(1); version <= 4; version++ {
			b.handle(message("ord_1", version))
			b.handle(message("ord_2", version))
		}
		require.Equal(t, []string{"ord_1-1", "ord_2-1", "ord_2-2", "ord_2-3", "ord_2-4"}, b.applied())
		require.Equal(t, map[string]int{"done": 5, "pending": 3}, b.statuses())
		failing = false
		require.Equal(t, 3, b.process())
		require.Equal(
			t, []string{"ord_1-1", "ord_2-1", "ord_2-2", "ord_2-3", "ord_2-4", "ord_1-2", "ord_1-3", "ord_1-4"},
			b.applied(),
		)
	})

	t.Run("ParksPoisonUntilUnparked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.fail = func(e inbox.Event) error {
			if e.Version == 1 {
				return fmt.Errorf("%w: \x00 no such account", inbox.ErrPoison)
			}
			return nil
		}
		b.handle(message("ord_1", 1))
		b.handle(message("ord_1", 2))
		require.Zero(t, b.process())
		require.Equal(t, map[string]int{"parked": 1, "pending": 1}, b.statuses())
		b.fail = nil
		unparked, err := inbox.Unpark(t.Context(), b.pool.Queries, books, "ord_1-1")
		require.NoError(t, err)
		require.True(t, unparked)
		unparked, err = inbox.Unpark(t.Context(), b.pool.Queries, books, "ord_1-1")
		require.NoError(t, err)
		require.False(t, unparked)
		require.Equal(t, 2, b.process())
		require.Equal(t, []string{"ord_1-1", "ord_1-2"}, b.applied())
	})

	t.Run("SurvivesAPanic", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.fail = func(inbox.Event) error { panic("bug: nil map") }
		b.handle(message("ord_1", 1))
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Equal(t, 1, b.count("SELECT count(*) FROM inbox_events WHERE last_error LIKE 'panic: bug: nil map%'"))
	})

	t.Run("ParksEventsThatCrashTheProcess", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.fail = func(inbox.Event) error { die(); return nil }
		m := message("ord_1", 1)
		for m.Deliveries = 1; !survives(func() { b.handle(m) }); m.Deliveries++ {
			require.Less(t, m.Deliveries, 10)
		}
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		// so often a processor has died of it
		b.exec("UPDATE inbox_events SET attempts = 20, leased_until = '-infinity'")
		require.Equal(t, 1, b.process())
		require.Equal(t, map[string]int{"parked": 1}, b.statuses())
	})

	t.Run("DropsTypesItIsNotFor", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		picky := inbox.NewConsumer(
			b.pool, books, inbox.Handler{Types: []string{"refund.succeeded"}, Apply: b.apply}, nil,
		)
		require.NoError(t, picky.Handle(t.Context(), message("ord_1", 1)))
		require.Empty(t, b.statuses())
		refund := message("rfd_1", 1)
		refund.Type = "refund.succeeded"
		require.NoError(t, picky.Handle(t.Context(), refund))
		require.Equal(t, []string{"rfd_1-1"}, b.applied())
	})

	t.Run("CountsTheOutcomeOfEachMessage", func(t *testing.T) {
		t.Parallel()
		b := setupFailing(t)
		metrics := prometheus.NewRegistry()
		consumer := inbox.NewConsumer(b.pool, books, inbox.Handler{Apply: b.apply}, inbox.NewMetrics(metrics))
		b.fail = func(e inbox.Event) error {
			switch e.Subject {
			case "ord_fails":
				return errNotNow
			case "ord_poison":
				return inbox.ErrPoison
			}
			return nil
		}
		for _, c := range []struct {
			message inbox.Message
			outcome string
			stores  bool
		}{
			{message("ord_1", 1), "applied", false}, {message("ord_1", 1), "duplicate", false},
			{message("ord_fails", 1), "failed", true}, {message("ord_fails", 2), "held", false},
			{message("ord_poison", 1), "parked", true}, {message("ord_poison", 1), "duplicate", false},
		} {
			before := counted(t, metrics, c.outcome)
			b.proxy.Seen()
			require.NoError(t, consumer.Handle(t.Context(), c.message))
			require.Equal(t, before+1, counted(t, metrics, c.outcome), "%s %s", c.outcome, c.message.ID)
			require.Equal(t, c.stores, b.sent("InboxStore"), "%s %s", c.outcome, c.message.ID)
		}
		require.Equal(t, 6.0, counted(t, metrics, books))
	})

	t.Run("StoresAMessageThatTheDatabaseCouldNotClaim", func(t *testing.T) {
		t.Parallel()
		b := setupFailing(t)
		text := b.failOnce("InboxClaim")
		b.handle(message("ord_1", 1))
		require.Equal(t, 1, b.count("SELECT count(*) FROM inbox_events WHERE status = 'pending' AND "+
			"last_error LIKE '%claim event ord_1-1%"+text+"%'"))
	})

	t.Run("HasNoPrepare", func(t *testing.T) {
		t.Parallel()
		require.PanicsWithValue(t, "bug: a consumer cannot have Prepare, because the broker would wait for it; use Receive "+
			"and the Processor", func() { inbox.NewConsumer(nil, books, inbox.Handler{Prepare: fetch}, nil) })
	})

	t.Run("AsksForTheMessageAgainWhileTheDatabaseIsAway", func(t *testing.T) {
		t.Parallel()
		away, err := postgres.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none", postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(away.Close)
		err = inbox.NewConsumer(away, books, inbox.Handler{}, nil).Handle(t.Context(), message("ord_1", 1))
		require.Error(t, err)
		require.False(t, errors.Is(err, inbox.ErrPoison))
	})
}

// TestAppliedEventWhoseCommitWasInDoubt is counted as a duplicate: the connection broke after the commit, so the consumer
// sees an error, and there is no failed event to store.
func TestAppliedEventWhoseCommitWasInDoubt(t *testing.T) {
	t.Parallel()
	b := setupFailing(t)
	metrics := prometheus.NewRegistry()
	consumer := inbox.NewConsumer(b.pool, books, inbox.Handler{Apply: b.apply}, inbox.NewMetrics(metrics))
	cut := b.proxy.AfterCommit("-- name: InboxClaim ")
	require.NoError(t, consumer.Handle(t.Context(), message("ord_1", 1)))
	require.True(t, cut.HasFired())
	require.Equal(t, []string{"ord_1-1"}, b.applied())
	require.Equal(t, 1.0, counted(t, metrics, "duplicate"))
	require.Zero(t, counted(t, metrics, "failed"))
}

func TestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fail = func(e inbox.Event) error {
		switch e.Subject {
		case "ord_fails":
			return errNotNow
		case "ord_poison":
			return inbox.ErrPoison
		}
		return nil
	}
	for _, subject := range []string{"ord_1", "ord_1", "ord_fails", "ord_poison"} {
		b.handle(message(subject, 1))
	}
	require.Empty(
		t,
		cmp.Diff(map[string]int{"done": 1, "pending": 1, "parked": 1}, b.statuses()),
		"published = done + pending + parked",
	)
}

// survives runs fn and reports whether it came to an end.
func survives(fn func()) bool {
	end := make(chan bool, 1)
	go func() {
		survived := false
		defer func() { end <- survived }()
		fn()
		survived = true
	}()
	return <-end
}
