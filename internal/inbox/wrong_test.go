package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
)

const subjects, versions = 150, 2

// deliverAll is a broker with at-least-once delivery to a process that is killed
// now and then: a message stays until it was acknowledged, and one in ten
// acknowledgements is lost. handle gets ack and calls it when it wants to.
func deliverAll(b *bundle, handle func(m inbox.Message, ack func())) (kills, repeats int) {
	b.Helper()
	for version := int64(1); version <= versions; version++ {
		for s := range subjects {
			m := message(fmt.Sprintf("ord_%d", s), version)
			for acked := false; !acked; m.Deliveries++ {
				if m.Deliveries > 0 {
					repeats++
				}
				if !survives(func() { handle(m, func() { acked = rand.IntN(10) > 0 }) }) {
					kills++
				}
			}
		}
	}
	return kills, repeats
}

// killNowAndThen ends the "process" in one of six calls.
func killNowAndThen() {
	if rand.IntN(6) == 0 {
		die()
	}
}

// twiceAndLost counts events with more than one effect, and with none.
func (b *bundle) twiceAndLost() (twice, lost int) {
	b.Helper()
	seen := map[string]int{}
	for _, id := range b.applied() {
		seen[id]++
	}
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	return twice, subjects*versions - len(seen)
}

// TestEffectsUnderKills compares the consumer with those that are written first.
// Each of the others must be caught, or the test could not see the difference.
func TestEffectsUnderKills(t *testing.T) {
	t.Parallel()

	t.Run("OfTheConsumerHappenOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.fail = func(inbox.Event) error { killNowAndThen(); return nil }
		b.after = func(inbox.Event) { killNowAndThen() }
		kills, repeats := deliverAll(b, func(m inbox.Message, ack func()) {
			m.Deliveries = 0 // a count that would be kept after a few kills; the processor has its own test
			b.handle(m)
			killNowAndThen()
			ack()
		})
		twice, lost := b.twiceAndLost()
		t.Logf("events=%d kills=%d repeats=%d twice=%d lost=%d", subjects*versions, kills, repeats, twice, lost)
		require.Zero(t, twice, "events with more than one effect")
		require.Zero(t, lost, "events without their effect")
		require.Greater(t, kills, 100)
		require.Equal(t, map[string]int{"done": subjects * versions}, b.statuses())
	})

	// The row in a transaction of its own, after the effect: check, act, note.
	t.Run("HappenTwiceWhenTheRowIsNotedAfterwards", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		kills, repeats := deliverAll(b, func(m inbox.Message, ack func()) {
			if b.count("SELECT count(*) FROM inbox_events WHERE event_id = '"+m.ID+"'") == 0 {
				require.NoError(t, effect(t.Context(), b.pool.Queries, m.ID))
				killNowAndThen()
				note(b, m.ID)
			}
			ack()
		})
		twice, lost := b.twiceAndLost()
		t.Logf("events=%d kills=%d repeats=%d twice=%d lost=%d", subjects*versions, kills, repeats, twice, lost)
		require.Positive(t, twice)
	})

	// The row in a transaction of its own, before the effect.
	t.Run("AreLostWhenTheRowIsNotedBefore", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		kills, repeats := deliverAll(b, func(m inbox.Message, ack func()) {
			if b.count("SELECT count(*) FROM inbox_events WHERE event_id = '"+m.ID+"'") == 0 {
				note(b, m.ID)
				killNowAndThen()
				require.NoError(t, effect(t.Context(), b.pool.Queries, m.ID))
			}
			ack()
		})
		twice, lost := b.twiceAndLost()
		t.Logf("events=%d kills=%d repeats=%d twice=%d lost=%d", subjects*versions, kills, repeats, twice, lost)
		require.Positive(t, lost)
	})

	// Right in all but the key: the aggregate, as one would take a broker's record key.
	t.Run("AreLostWhenTheAggregateIsTheKey", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		kills, repeats := deliverAll(b, func(m inbox.Message, ack func()) {
			err := b.pool.InTx(t.Context(), func(q *db.Queries) error {
				status, err := q.InboxClaim(
					t.Context(),
					db.InboxClaimParams{Consumer: books, EventID: m.Subject, Type: m.Type, TenantID: &m.TenantID,
						Subject: &m.Subject, Version: &m.Version, Payload: m.Body},
				)
				if err != nil || status != db.InboxStatusDone {
					return nil // seen
				}
				return effect(context.WithoutCancel(t.Context()), q, m.ID)
			})
			require.NoError(t, err)
			killNowAndThen()
			ack()
		})
		twice, lost := b.twiceAndLost()
		t.Logf("events=%d kills=%d repeats=%d twice=%d lost=%d", subjects*versions, kills, repeats, twice, lost)
		require.Equal(t, subjects, lost, "every second event of every aggregate")
	})

	// The right consumer, acknowledged before it has committed.
	t.Run("AreLostWhenAcknowledgedBeforeTheCommit", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		kills, repeats := deliverAll(b, func(m inbox.Message, ack func()) {
			ack()
			killNowAndThen()
			b.handle(m)
		})
		twice, lost := b.twiceAndLost()
		t.Logf("events=%d kills=%d repeats=%d twice=%d lost=%d", subjects*versions, kills, repeats, twice, lost)
		require.Positive(t, lost)
	})
}

// note writes an inbox row on its own.
func note(b *bundle, eventID string) {
	b.exec(
		"INSERT INTO inbox_events (consumer, event_id, status, type, done_at) VALUES ($1, $2, 'done', 'x', now()) ON "+
			"CONFLICT DO NOTHING",
		books, eventID,
	)
}
