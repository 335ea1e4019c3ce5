package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const (
	keptFor  = time.Second // keys, and then their tombstones: days and years, compressed
	warmUp   = 2*keptFor + time.Second/2
	lookWhen = 100 * time.Millisecond
	caughtUp = 2 * time.Minute
)

// housekeepingGroup is what payments cost when everything that follows them
// happens at the same pace: each key expires and is deleted, each event is
// published.
func (b *bench) housekeepingGroup() group {
	const without, with = "fresh payments only", "fresh payments while keys are deleted and events published"
	var own *bench
	var to broker.Broker
	return group{
		name: "housekeeping",
		says: func() string {
			return "Keys are kept for one second and their tombstones for another, so that keys are deleted as fast as " +
				"they are created. The relay publishes to a broker that syncs every write, on the same disk."
		},
		prepare: func(ctx context.Context) (err error) {
			if own, err = b.another(ctx, b.s); err != nil {
				return err
			}
			to, err = broker.Open(ctx, "embedded:"+filepath.Join(own.dir, "broker"), broker.Options{})
			return err
		},
		finish: func() {
			if to != nil {
				_ = to.Close()
			}
			if own != nil {
				own.close()
			}
		},
		list: []*measurement{
			{name: without, unit: "payments/s",
				run: func(ctx context.Context) (sample, error) { return own.steadily(ctx, nil) }},
			{name: with, unit: "payments/s", floor: without, run: func(ctx context.Context) (sample, error) {
				house, err := own.keepHouse(ctx, to)
				if err != nil {
					return sample{}, err
				}
				got, err := own.steadily(ctx, house)
				return got, errors.Join(err, house.stop())
			}},
		},
		goals: []goal{{id: "P7", what: "fresh payments while keys are deleted and events published ÷ without",
			want: 0.85, of: ratio(with, without)}},
	}
}

// steadily pays for a while before it measures, until as much expires as is made.
func (b *bench) steadily(ctx context.Context, house *house) (sample, error) {
	next, err := b.freshRequests(ctx, timeOrdered)
	if err != nil {
		return sample{}, err
	}
	if _, _, err := b.drive(ctx, b.addr, warmUp, b.s.connections, http.StatusCreated, next); err != nil {
		return sample{}, err
	}
	if house == nil {
		return b.measured(ctx, b.addr, http.StatusCreated, next)
	}
	dropped, published := house.reaped.Load(), house.published.Load()
	got, err := b.measured(ctx, b.addr, http.StatusCreated, next)
	paid := got.rate * float64(b.s.seconds)
	dropped, published = house.reaped.Load()-dropped, house.published.Load()-published
	if err == nil && (dropped == 0 || published == 0) {
		return got, fmt.Errorf("%d keys were dropped or deleted and %d events published meanwhile", dropped, published)
	}
	got.note = fmt.Sprintf("%.1f answers dropped and tombstones deleted, %.1f events published", float64(dropped)/paid,
		float64(published)/paid)
	return got, err
}

// house are the loops that run beside requests. In cmd/api they are in the same
// process; here they are not, so that their processor time is not the service's.
type house struct {
	reaped, published atomic.Int64
	pool              *postgres.Pool
	end               context.CancelFunc
	running           sync.WaitGroup
}

// keepHouse starts the loops and returns when they have caught up.
func (b *bench) keepHouse(ctx context.Context, to broker.Broker) (*house, error) {
	pool, err := postgres.Open(ctx, b.url, postgres.Options{MaxConn: 4})
	if err != nil {
		return nil, err
	}
	loops, end := context.WithCancel(ctx)
	h := &house{pool: pool, end: end}
	reaper := idempotency.NewReaper(idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute}), keptFor,
		keptFor)
	relay := outbox.NewRelay(pool, to, outbox.RelayOptions{Render: payments.RenderEvents})
	h.running.Go(func() { again(loops, reaper, &h.reaped) })
	h.running.Go(func() { again(loops, relay, &h.published) })
	for deadline := time.Now().Add(caughtUp); ; time.Sleep(lookWhen) {
		var left int
		err := b.pool.Raw().QueryRow(ctx,
			"SELECT (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NOT NULL) + (SELECT count(*) FROM "+
				"outbox_events WHERE published_at IS NULL)").Scan(&left)
		if err == nil && left > 0 && time.Now().After(deadline) {
			err = fmt.Errorf("%d keys and events are left", left)
		}
		if err != nil {
			return nil, errors.Join(err, h.stop())
		}
		if left == 0 {
			return h, nil
		}
	}
}

func (h *house) stop() error {
	h.end()
	h.running.Wait()
	h.pool.Close()
	return nil
}

// again is the loop of cmd/api, without its metrics.
func again(ctx context.Context, r runner, done *atomic.Int64) {
	for ctx.Err() == nil {
		n, err := r.RunOnce(ctx)
		if err != nil && ctx.Err() == nil {
			fmt.Println("  housekeeping:", err)
		}
		done.Add(int64(n))
		if n > 0 {
			continue
		}
		select {
		case <-time.After(lookWhen):
		case <-ctx.Done():
		}
	}
}
