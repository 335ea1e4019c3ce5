package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"example.com/payonce/proof/internal/plot"
)

const (
	addedGateway = 300 * time.Millisecond // of each of the two calls of a payment
	addedAlone   = "one client alone, a gateway that answers at once"
	addedDisk    = "the disk alone: a write of 8 KB and its sync, 100 a second"
	addedMost    = "as many as go, 256 at once, a gateway that answers at once, per core"
)

// addedLeast is how many payments of all rounds p99.9 is of, at least.
const addedLeast = 3000

var addedRates = []float64{10, 100, 400, 1000}

// addedGroup is what a payment costs its user: how much longer it takes than the calls to the gateway. It is an open
// loop, because customers do not wait for each other.
func (b *bench) addedGroup() group {
	var slow, quick *bench
	g := group{
		name:    inAdded,
		clients: true,
		says: func() string {
			return fmt.Sprintf("Payments arrive at random, so many a second, whether or not earlier ones are done, and the "+
				"gateway takes %d ms for each of its two calls. Added is the response's time without the gateway's, from the "+
				"moment in which the request was due. p99.9 is of all rounds together, %d payments or more. A payment waits three times for the disk, whose own times are in the table.",
				addedGateway.Milliseconds(), addedLeast)
		},
		prepare: func(ctx context.Context) (err error) {
			if slow, err = b.another(ctx, b.s, "-gateway", addedGateway.String()); err != nil {
				return err
			}
			quick, err = b.another(ctx, b.s)
			return err
		},
		finish: func() {
			for _, one := range []*bench{slow, quick} {
				if one != nil {
					one.close()
				}
			}
		},
	}
	for _, rate := range addedRates {
		g.list = append(g.list, &measurement{name: fmt.Sprintf("%.0f payments a second", rate), unit: "payments/s",
			timed: true, late: true,
			run: func(ctx context.Context) (sample, error) { return slow.as(addedClients(rate)).added(ctx, rate) }})
	}
	g.list = append(g.list,
		&measurement{name: addedDisk, unit: "syncs/s", timed: true, late: true, run: b.syncs},
		&measurement{name: addedAlone, unit: "payments/s", timed: true,
			run: func(ctx context.Context) (sample, error) { return quick.as(1).pays(ctx) }},
		&measurement{name: addedMost, unit: "payments a second per core",
			run: func(ctx context.Context) (sample, error) {
				got, err := quick.as(256).pays(ctx)
				got.rate /= float64(runtime.NumCPU())
				return got, err
			}})
	rates := g.list[:len(addedRates)]
	g.curve = func() curve {
		middle, late, latest := plot.Series{Name: "median"}, plot.Series{Name: "p99"}, plot.Series{Name: "p99.9"}
		for i, m := range rates {
			if len(m.samples) == 0 { // left out
				continue
			}
			var p50, p99 []float64
			for _, s := range m.samples {
				p50, p99 = append(p50, millis(s.p50)), append(p99, millis(s.p99))
			}
			middle.X, middle.Y = append(middle.X, addedRates[i]), append(middle.Y, median(p50))
			late.X, late.Y = append(late.X, addedRates[i]), append(late.Y, median(p99))
			latest.X, latest.Y = append(latest.X, addedRates[i]), append(latest.Y, millis(m.p999()))
		}
		return curve{"Time added to the gateway's", "payments a second", "ms", []plot.Series{middle, late, latest}}
	}
	return g
}

// addedClients is three times as many connections as requests are under way, so that each finds a free one, and none
// that the service has closed because nobody used it.
func addedClients(rate float64) int { return int(3 * rate * (2 * addedGateway).Seconds()) }

// added pays in an open loop. Its times are without the gateway's.
func (b *bench) added(ctx context.Context, rate float64) (sample, error) {
	length := max(b.length(), time.Duration(addedLeast/float64(b.s.rounds)/rate*1.1*float64(time.Second)))
	next, err := b.freshRequests(ctx, timeOrdered)
	if err != nil {
		return sample{}, err
	}
	got, err := b.measuredLoad(ctx, load{addr: b.addr, connections: b.s.connections, status: http.StatusCreated,
		arrivals: arrivals(rate, length)}, next)
	got.p50, got.p99 = got.p50-2*addedGateway, got.p99-2*addedGateway
	for i := range got.times {
		got.times[i] -= 2 * addedGateway
	}
	if err == nil && got.p50 <= 0 {
		err = fmt.Errorf("a payment took less than the calls of its gateway: %s", got.p50)
	}
	return got, err
}

// syncs writes to the disk that the database's log is on, if the folder for temporary files is on that, too.
func (b *bench) syncs(ctx context.Context) (got sample, err error) {
	const page, pages = 8 << 10, 2048
	f, err := os.Create(filepath.Join(b.dir, "syncs"))
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, page*pages)); err != nil {
		return got, err
	}
	if err := f.Sync(); err != nil {
		return got, err
	}
	length := max(b.length(), time.Duration(addedLeast/float64(b.s.rounds)/100*float64(time.Second)))
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := int64(0); time.Since(began) < length && ctx.Err() == nil; n++ {
		at := time.Now()
		if _, err := f.WriteAt(make([]byte, page), n%pages*page); err != nil {
			return got, err
		}
		if err := f.Sync(); err != nil {
			return got, err
		}
		got.times = append(got.times, time.Since(at))
		<-tick.C
	}
	d := driven{n: len(got.times), times: got.times}
	slices.Sort(d.times)
	got.n, got.p50, got.p99, got.wal = d.n, d.percentile(50), d.percentile(99), -1
	got.rate = float64(d.n) / time.Since(began).Seconds()
	return got, ctx.Err()
}

// pays is fresh payments in a closed loop, without a look at what they leave.
func (b *bench) pays(ctx context.Context) (sample, error) {
	next, err := b.freshRequests(ctx, timeOrdered)
	if err != nil {
		return sample{}, err
	}
	return b.measured(ctx, b.addr, http.StatusCreated, next)
}
