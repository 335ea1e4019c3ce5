package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/relays"
)

const (
	chaosLease  = 300 * time.Millisecond
	chaosRelays = 4
	writers     = 8
	aggregates  = 250 // of each writer
	changes     = 3   // of each aggregate
)

// faults are injected at the broker. A kill is a panic that unwinds the relay
// where it stands: like SIGKILL, it leaves the lease and marks nothing. A pause
// outlasts the lease, and the relay goes on afterwards as if nothing had been.
type faults struct {
	killed, paused, ackLost, refused atomic.Int64
}

func (f *faults) before(outbox.Envelope) error {
	switch roll := rand.IntN(1000); {
	case roll < 6:
		f.killed.Add(1)
		panic(relays.Killed{})
	case roll < 12:
		f.paused.Add(1)
		time.Sleep(chaosLease + time.Duration(rand.IntN(200))*time.Millisecond)
	case roll < 22:
		f.refused.Add(1)
		return errAway
	}
	return nil
}

func (f *faults) after(outbox.Envelope) error {
	switch roll := rand.IntN(1000); {
	case roll < 6:
		f.killed.Add(1)
		panic(relays.Killed{})
	case roll < 16:
		f.ackLost.Add(1)
		return errors.New("the acknowledgement was lost")
	}
	return nil
}

// outcome is what the broker's log says after the run.
type outcome struct {
	events, missing, outOfOrder, repeated int
}

// chaos lets writers change aggregates while relays are killed, paused and
// doubled, waits until nothing more can come, and walks the log.
func chaos(t *testing.T, pool *postgres.Pool, f *faults, relay func(*brokerLog) relays.Runner) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	broker := &brokerLog{Before: f.before, After: f.after}
	exec(t, pool, "CREATE TABLE aggregates (id text PRIMARY KEY, version bigint NOT NULL)")

	var writing, relaying sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range aggregates {
				for range changes {
					if err := change(ctx, pool, fmt.Sprintf("ord_%d_%d", w, i)); err != nil {
						t.Errorf("change: %v", err)
					}
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()
	for range chaosRelays {
		relaying.Go(func() {
			for process := relay(broker); ctx.Err() == nil; {
				n, err, died := relays.RunOrDie(ctx, process)
				if died {
					process = relay(broker) // what it knew is gone
					continue
				}
				if err != nil && !errors.Is(err, errAway) && ctx.Err() == nil {
					t.Logf("relay: %v", err)
				}
				if n > 0 {
					continue
				}
				select {
				case <-written:
					if left := count(t, pool,
						"SELECT count(*) FROM outbox_events WHERE published_at IS NULL"); left == 0 {
						return
					}
				default:
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	relaying.Wait()
	require.NoError(t, ctx.Err(), "the relays did not finish")

	log := broker.Events()
	o := outcome{events: count(t, pool, "SELECT count(*) FROM outbox_events")}
	o.outOfOrder, o.repeated = disorder(log)
	distinct := map[string]bool{}
	for _, e := range log {
		distinct[outbox.EventID(e.Subject, e.Version)] = true
	}
	o.missing = o.events - len(distinct)
	return o
}

func TestRelaysKilledPausedAndDoubled(t *testing.T) {
	t.Parallel()
	pool, reg := dbtest.New(t), prometheus.NewRegistry()
	metrics := outbox.NewMetrics(reg)
	var f faults
	o := chaos(t, pool, &f, func(b *brokerLog) relays.Runner {
		return outbox.NewRelay(pool, b, outbox.RelayOptions{Lease: chaosLease, HeadsMax: 20, Metrics: metrics})
	})
	fenced := gathered(t, reg, "payonce_outbox_fenced_total")
	t.Logf(
		"events=%d relays=%d killed=%d paused=%d refused=%d acks_lost=%d fenced=%.0f repeated=%d missing=%d "+
			"out_of_order=%d",
		o.events, chaosRelays, f.killed.Load(), f.paused.Load(), f.refused.Load(), f.ackLost.Load(), fenced, o.repeated,
		o.missing, o.outOfOrder,
	)
	require.Equal(t, writers*aggregates*changes, o.events)
	require.Zero(t, o.missing)
	require.Zero(t, o.outOfOrder)
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	require.Equal(t, o.events, count(t, pool, "SELECT max(position) FROM outbox_events"), "the feed has no gap")
	// A run in which little went wrong shows nothing.
	require.Greater(t, f.killed.Load(), int64(20))
	require.Greater(t, f.paused.Load(), int64(10))
	require.Greater(t, f.ackLost.Load(), int64(20))
	require.Positive(t, fenced)
	require.Greater(t, o.repeated, 20)
}

// TestWrongRelays shows that the check above can fail, with the two relays that
// are written first.
func TestWrongRelays(t *testing.T) {
	t.Parallel()

	t.Run("SkipLockedAloneReorders", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		var f faults
		o := chaos(t, pool, &f, func(b *brokerLog) relays.Runner { return &wrongRelay{pool: pool, broker: b, anyEvent: true} })
		t.Logf(
			"events=%d killed=%d paused=%d repeated=%d missing=%d out_of_order=%d", o.events, f.killed.Load(),
			f.paused.Load(), o.repeated, o.missing, o.outOfOrder,
		)
		require.Positive(t, o.outOfOrder)
	})

	t.Run("MarkingFirstLoses", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		var f faults
		o := chaos(
			t, pool, &f,
			func(b *brokerLog) relays.Runner { return &wrongRelay{pool: pool, broker: b, markFirst: true} },
		)
		t.Logf(
			"events=%d killed=%d paused=%d repeated=%d missing=%d out_of_order=%d", o.events, f.killed.Load(),
			f.paused.Load(), o.repeated, o.missing, o.outOfOrder,
		)
		require.Positive(t, o.missing)
	})
}

// wrongRelay is what one writes first. It exists to be caught.
type wrongRelay struct {
	pool      *postgres.Pool
	broker    *brokerLog
	anyEvent  bool // leases whatever is not locked, head or not
	markFirst bool
}

func (r *wrongRelay) RunOnce(ctx context.Context) (int, error) {
	headsOnly := `AND NOT EXISTS (SELECT FROM outbox_events p WHERE p.tenant_id = o.tenant_id
		AND p.aggregate_id = o.aggregate_id AND p.version < o.version AND p.published_at IS NULL)`
	if r.anyEvent {
		headsOnly = ""
	}
	rows, err := r.pool.Raw().Query(ctx, `
WITH due AS MATERIALIZED (
    SELECT o.tenant_id, o.aggregate_id, o.version FROM outbox_events o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.next_attempt_at < clock_timestamp() `+headsOnly+`
    ORDER BY o.seq LIMIT 20 FOR UPDATE SKIP LOCKED)
UPDATE outbox_events e SET next_attempt_at = clock_timestamp() + $1::interval
FROM due WHERE e.tenant_id = due.tenant_id AND e.aggregate_id = due.aggregate_id AND e.version = due.version
RETURNING e.aggregate_id, e.version, e.next_attempt_at`, chaosLease)
	if err != nil {
		return 0, err
	}
	var events []outbox.Envelope
	var leases []time.Time
	for rows.Next() {
		e := outbox.Envelope{TenantID: tenant, Data: []byte("{}")}
		var until time.Time
		if err := rows.Scan(&e.Subject, &e.Version, &until); err != nil {
			rows.Close()
			return 0, err
		}
		events, leases = append(events, e), append(leases, until)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	mark := func(i int) error {
		_, err := r.pool.Raw().Exec(ctx, `UPDATE outbox_events SET published_at = clock_timestamp(), position = seq
			WHERE tenant_id = $1 AND aggregate_id = $2 AND version = $3 AND next_attempt_at = $4`, tenant, events[i].Subject,
			events[i].Version, leases[i])
		return err
	}
	for i, e := range events {
		if r.markFirst {
			if err := mark(i); err != nil {
				return i, err
			}
		}
		if err := r.broker.PublishOne(ctx, e); err != nil {
			continue
		}
		if !r.markFirst {
			if err := mark(i); err != nil {
				return i, err
			}
		}
	}
	return len(events), nil
}
