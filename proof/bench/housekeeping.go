package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"example.com/payonce/internal/broker"
)

const (
	keptFor  = time.Second // keys, and then their tombstones: days and years, compressed
	warmUp   = 2*keptFor + time.Second/2
	lookWhen = 100 * time.Millisecond
	caughtUp = 2 * time.Minute

	halfClients    = 128 // enough that a request of an open loop finds a free connection
	webhookSenders = 8
)

// What must have happened beside each payment while it was measured. Otherwise the group is an error: payments are
// cheap beside work that is put off.
const (
	publishedMin  = 2.5         // of the three events that a payment has
	lagMax        = time.Second // p99 from an event's insert (created_at) to its mark (published_at)
	reapedMin     = 1           // of the response that is dropped and the tombstone that is deleted
	deliveredMin  = 0.9         // of the one webhook
	appliedMin    = 0.9         // likewise
	reconciledMin = 0.25        // comparisons with Stripe: as many as the list allows
)

const (
	fullAlone  = "fresh payments at saturation, nothing beside them"
	fullBeside = "fresh payments at saturation, beside relay, reaper, webhooks and reconciler"
	halfAlone  = "fresh payments at half of that, nothing beside them"
	halfBeside = "fresh payments at half of that, beside relay, reaper, webhooks and reconciler"
)

// housekeepingGroup is what payments cost when everything that follows them happens at the same pace: each event is
// published, each key expires and is deleted, a webhook comes for each payment and is applied, and the reconciler
// compares them with Stripe.
func (b *bench) housekeepingGroup() group {
	var own *bench
	var to broker.Broker
	var saturated float64 // payments a second in this round, with everything beside them
	full := func() load { return own.closed(own.addr, own.length(), http.StatusCreated) }
	half := func() load {
		return load{addr: own.addr, connections: halfClients, status: http.StatusCreated,
			arrivals: arrivals(saturated/2, own.length())}
	}
	return group{
		name: inHousekeeping,
		says: func() string {
			return "The loops run in the service's process and are woken as in cmd/api. Keys are kept for one second and " +
				"their tombstones for another, so that keys are deleted as fast as they are created. The relay publishes to a " +
				"broker that syncs every write, on the same disk and in the driver's process. The driver sends a signed webhook " +
				"for each payment. The reconciler reads Stripe's list without a pause, at the 25 pages a second that Stripe " +
				"allows. Half load is an open loop of random arrivals at half of what the service pays with everything " +
				"beside it in the same round: a service that must do all of it has no more. " +
				fmt.Sprintf("A run in which fewer than %.1f events a payment were published, or p99 of their lag was above %s, "+
					"is an error.", publishedMin, lagMax)
		},
		prepare: func(ctx context.Context) (err error) {
			if own, err = prepare(ctx, b.serverURL, b.s); err != nil {
				return err
			}
			to, err = broker.Open(ctx, "embedded:"+filepath.Join(own.dir, "broker")+"?listen=127.0.0.1:0", broker.Options{})
			if err != nil {
				return err
			}
			return own.startService(ctx, "-broker", "nats://"+to.(interface{ Addr() string }).Addr())
		},
		finish: func() {
			if own != nil {
				own.close()
			}
			if to != nil {
				_ = to.Close()
			}
		},
		list: []*measurement{
			{name: fullAlone, unit: "payments/s", timed: true,
				run: func(ctx context.Context) (sample, error) { return own.steadily(ctx, full()) }},
			{name: fullBeside, unit: "payments/s", floor: fullAlone, timed: true,
				run: func(ctx context.Context) (sample, error) {
					got, err := own.beside(ctx, full())
					saturated = got.rate
					return got, err
				}},
			{name: halfAlone, unit: "payments/s", floor: fullBeside, timed: true,
				run: func(ctx context.Context) (sample, error) { return own.as(halfClients).steadily(ctx, half()) }},
			{name: halfBeside, unit: "payments/s", floor: halfAlone, timed: true,
				run: func(ctx context.Context) (sample, error) { return own.as(halfClients).beside(ctx, half()) }},
		},
	}
}

// steadily pays for a while before it measures.
func (b *bench) steadily(ctx context.Context, l load) (sample, error) {
	next, err := b.freshRequests(ctx, timeOrdered)
	if err != nil {
		return sample{}, err
	}
	if _, err := drive(ctx, l.warming(), next); err != nil {
		return sample{}, err
	}
	return b.measuredLoad(ctx, l, next)
}

// warming is the load for a while before it is measured, until as much expires as is made.
func (l load) warming() load {
	l.length = warmUp
	if n := len(l.arrivals); n > 0 { // the same pace, from the beginning again
		var due []time.Duration
		for begin := time.Duration(0); begin < warmUp; begin += l.arrivals[n-1] {
			for _, at := range l.arrivals {
				if begin+at < warmUp {
					due = append(due, begin+at)
				}
			}
		}
		l.arrivals = due
	}
	return l
}

// beside is steadily with everything that follows a payment. It is an error if too little of it happened meanwhile.
func (b *bench) beside(ctx context.Context, l load) (got sample, err error) {
	if err := b.loops(ctx, "start", nil); err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, b.loops(ctx, "stop", nil)) }()
	if err := b.catchUp(ctx); err != nil {
		return got, err
	}
	next, prefix, err := b.freshOrders(ctx, timeOrdered)
	if err != nil {
		return got, err
	}
	next, paid := followed(next, prefix, b.s.connections)
	senders := make([]sender, webhookSenders)
	sent := make(chan error, 1)
	go func() { // until paid is closed and empty
		_, err := drive(ctx, load{addr: b.addr, length: time.Hour, connections: webhookSenders, status: http.StatusOK},
			func(conn, _ int) ([]byte, bool) {
				order, more := <-paid
				if !more {
					return nil, false
				}
				return senders[conn].paid(b.tenant, order), true
			})
		sent <- err
	}()
	var before, after meanwhile
	_, err = drive(ctx, l.warming(), next)
	if err == nil {
		if before, err = b.meanwhile(ctx); err == nil {
			if got, err = b.measuredLoad(ctx, l, next); err == nil {
				after, err = b.meanwhile(ctx)
			}
		}
	}
	close(paid)
	if err = errors.Join(err, <-sent); err != nil {
		return got, err
	}
	if err := b.catchUp(ctx); err != nil {
		return got, err
	}
	did := after.since(before, got.n)
	if got.lag, err = b.lag(ctx, before.at, after.at); err == nil {
		err = did.enough(got.lag)
	}
	got.note = fmt.Sprintf("%s, lag p99 %s", did, got.lag.Round(time.Millisecond))
	return got, err
}

// followed passes on each order once its payment had its response, which is when its connection asks for the next
// request.
func followed(next func(conn, i int) ([]byte, bool), prefix string, connections int) (func(conn, i int) ([]byte, bool),
	chan string) {
	paid := make(chan string, 1<<20) // more than are paid, so that a webhook delays no payment
	asked := make([]int, connections)
	return func(conn, i int) ([]byte, bool) {
		if i > 1 {
			paid <- orderOf(prefix, conn, asked[conn])
		}
		asked[conn]++
		return next(conn, i)
	}, paid
}

// meanwhile counts what follows payments, since the database was made.
type meanwhile struct {
	at                                              time.Time // by the database's clock
	published, reaped, delivered, applied, compared float64
}

// meanwhile reads the counts of the loops, and of the rows that they have written.
func (b *bench) meanwhile(ctx context.Context) (m meanwhile, err error) {
	var counts counts
	if err := b.loops(ctx, "counts", &counts); err != nil {
		return m, err
	}
	m.published, m.reaped, m.compared = float64(counts.Published), float64(counts.Reaped), float64(counts.Listed)
	err = b.pool.Raw().QueryRow(ctx, "SELECT clock_timestamp(), count(*), count(*) FILTER (WHERE status = 'done') "+
		"FROM inbox_events").Scan(&m.at, &m.delivered, &m.applied)
	return m, err
}

// since is how much happened since before, a payment.
func (m meanwhile) since(before meanwhile, payments int) meanwhile {
	each := func(after, before float64) float64 { return (after - before) / float64(max(1, payments)) }
	return meanwhile{
		published: each(m.published, before.published), reaped: each(m.reaped, before.reaped),
		delivered: each(m.delivered, before.delivered), applied: each(m.applied, before.applied),
		compared: each(m.compared, before.compared),
	}
}

func (m meanwhile) String() string {
	return fmt.Sprintf("a payment: %.1f events published, %.1f answers dropped and tombstones deleted, %.2f webhooks "+
		"stored and %.2f applied, %.1f comparisons with Stripe", m.published, m.reaped, m.delivered, m.applied, m.compared)
}

// enough refuses a measurement beside which too little has happened.
func (m meanwhile) enough(lag time.Duration) error {
	if m.published < publishedMin || m.reaped < reapedMin || m.delivered < deliveredMin || m.applied < appliedMin ||
		m.compared < reconciledMin || lag > lagMax {
		return fmt.Errorf("too little happened beside the payments, or too late: %s; lag p99 %s", m, lag)
	}
	return nil
}

// lag is the p99 of the time from insert (created_at) to mark (published_at) of the events that were written in a time:
// it includes the commit of the payment and the broker's acknowledgement.
func (b *bench) lag(ctx context.Context, from, until time.Time) (time.Duration, error) {
	var seconds float64
	err := b.pool.Raw().QueryRow(ctx, `
		SELECT coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM published_at - created_at)),
			0)::float8
		FROM outbox_events WHERE created_at BETWEEN $1 AND $2`, from, until).Scan(&seconds)
	return time.Duration(seconds * float64(time.Second)), err
}

// catchUp waits until nothing is left of earlier payments.
func (b *bench) catchUp(ctx context.Context) error {
	for deadline := time.Now().Add(caughtUp); ; time.Sleep(lookWhen) {
		var left, disagree int
		if err := b.pool.Raw().QueryRow(ctx, `
			SELECT (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NOT NULL)
				+ (SELECT count(*) FROM outbox_events WHERE published_at IS NULL)
				+ (SELECT count(*) FROM inbox_events WHERE status <> 'done'),
				(SELECT count(*) FROM discrepancies)`).Scan(&left, &disagree); err != nil {
			return err
		}
		switch {
		case disagree > 0:
			return fmt.Errorf("the reconciler found %d discrepancies, and there is none", disagree)
		case left == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d keys, events and webhooks are left after %s", left, caughtUp)
		}
	}
}
