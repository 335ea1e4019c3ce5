package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"example.com/payonce/proof/internal/plot"
)

// few and many are the clients at which costs are measured: their payments share statements with as many others.
const few, many = 32, 256

// modelMay is how far the simulation of what was measured may be from it. A simulation that is farther off says nothing
// of other machines.
const modelMay = 0.30

var errNoCosts = errors.New("-only has left out one of the two loads from which costs follow")

// measuredCosts are a payment's at a number of clients.
type measuredCosts struct {
	rate                    float64
	rows                    float64       // a statement
	driver, service, server time.Duration // processor time
	flush                   time.Duration // of the log
	bytes                   float64       // likewise
}

// processorsGroup measures what a payment takes of this machine, simulates it, and then simulates machines that are not
// here.
func (b *bench) processorsGroup() group {
	var at map[int]*bench // by clients
	seen, middle := map[int][]measuredCosts{}, map[int]measuredCosts{}
	var each costs // of the medians so far: a machine that others share is now fast and now slow
	measured := func(clients int) string { return fmt.Sprintf("measured, %d clients", clients) }
	g := group{
		name:    inProcessors,
		clients: true,
		says:    func() string { return saysCosts(middle, each) },
		prepare: func(ctx context.Context) (err error) {
			at = map[int]*bench{}
			for _, clients := range []int{few, many} {
				s := b.s
				s.connections = clients
				if at[clients], err = b.another(ctx, s); err != nil {
					return err
				}
			}
			return nil
		},
		finish: func() {
			for _, one := range at {
				if one != nil {
					one.close()
				}
			}
		},
	}
	for _, clients := range []int{few, many} {
		g.list = append(g.list, &measurement{name: measured(clients), unit: "payments/s", kind: plot.Floor,
			run: func(ctx context.Context) (got sample, err error) {
				var c measuredCosts
				if got, c, err = at[clients].costs(ctx); err != nil {
					return got, err
				}
				seen[clients] = append(seen[clients], c)
				middle[clients] = medianCosts(seen[clients])
				if clients == many {
					each, err = split(middle[few], middle[many])
				}
				got.note = fmt.Sprintf("%d µs CPU (PostgreSQL), %.1f rows a statement, %d µs a flush of the log",
					c.server.Microseconds(), c.rows, c.flush.Microseconds())
				return got, err
			}})
	}
	for _, clients := range []int{few, many} {
		g.list = append(g.list, &measurement{name: fmt.Sprintf("simulated, %d clients", clients), unit: "payments/s",
			floor: measured(clients),
			run: func(context.Context) (sample, error) {
				if each == (costs{}) {
					return sample{}, errNoCosts
				}
				s := simulate(machine{runtime.NumCPU(), 1, clients}, each)
				off := s.rate/middle[clients].rate - 1
				if len(seen[clients]) == b.s.rounds && (off > modelMay || off < -modelMay) {
					return sample{}, fmt.Errorf("%.0f payments a second are simulated and %.0f were measured", s.rate, middle[clients].rate)
				}
				return sample{rate: s.rate, wal: -1, note: s.String()}, nil
			}})
	}
	for _, m := range []machine{{4, 1, 512}, {16, 1, 512}, {16, 4, 2048}, {16, 8, 4096}, {64, 1, 512}, {64, 8, 4096}, {64, 16, 8192}, {64, 32, 16384}} {
		processes := "1 process"
		if m.processes > 1 {
			processes = fmt.Sprintf("%d processes", m.processes)
		}
		g.list = append(g.list, &measurement{name: fmt.Sprintf("simulated, %d processors, %s", m.processors, processes),
			unit: "payments/s", floor: measured(many),
			run: func(context.Context) (sample, error) {
				if each == (costs{}) {
					return sample{}, errNoCosts
				}
				elsewhere := each
				elsewhere.driver = 0
				s := simulate(m, elsewhere)
				return sample{rate: s.rate, wal: -1, note: s.String()}, nil
			}})
	}
	return g
}

// costs pays, and counts what it takes.
func (b *bench) costs(ctx context.Context) (got sample, c measuredCosts, err error) {
	server := b.serverCPU(ctx)
	flushes, wrote, err := b.flushes(ctx)
	if err != nil {
		return got, c, err
	}
	if got, c.rows, err = b.rowsAStatement(ctx, func() (sample, error) { return b.pays(ctx) }); err != nil {
		return got, c, err
	}
	after := b.serverCPU(ctx)
	n, took, err := b.flushes(ctx)
	if err != nil {
		return got, c, err
	}
	if n == flushes || took == wrote {
		return got, c, errors.New("the server counts no flushes of its log: track_wal_io_timing must be on")
	}
	if after == server {
		return got, c, errors.New("PostgreSQL must be on this machine: its processor time is in /proc")
	}
	c.rate, c.driver, c.service, c.bytes = got.rate, got.load, got.cpu, got.wal
	c.server = (after - server) / time.Duration(got.n)
	c.flush = (took - wrote) / time.Duration(n-flushes)
	return got, c, nil
}

// split divides processor time into what a payment takes and what a statement takes, of which payments share one. Two
// loads with more and fewer rows a statement are two equations.
func split(few, many measuredCosts) (c costs, err error) {
	each := func(few1, many1 time.Duration) (payment, statement time.Duration) {
		n := float64(len(statements))
		inFew, inMany := n/few.rows, n/many.rows // statements that a payment has a share of
		statement = time.Duration(float64(few1-many1) / (inFew - inMany))
		return many1 - time.Duration(inMany*float64(statement)), statement
	}
	c.request, c.send = each(few.service, many.service)
	c.row, c.execute = each(few.server, many.server)
	c.row /= time.Duration(len(statements))
	c.driver, c.flush, c.bytes = many.driver, many.flush, many.bytes
	if many.rows <= few.rows || min(c.request, c.send, c.row, c.execute) <= 0 {
		err = fmt.Errorf("no costs follow from what was measured: %+v, %+v", few, many)
	}
	return c, err
}

func medianCosts(list []measuredCosts) measuredCosts {
	of := func(value func(measuredCosts) float64) float64 {
		var all []float64
		for _, c := range list {
			all = append(all, value(c))
		}
		return median(all)
	}
	return measuredCosts{
		rate: of(func(c measuredCosts) float64 { return c.rate }), rows: of(func(c measuredCosts) float64 { return c.rows }),
		bytes:   of(func(c measuredCosts) float64 { return c.bytes }),
		driver:  time.Duration(of(func(c measuredCosts) float64 { return float64(c.driver) })),
		service: time.Duration(of(func(c measuredCosts) float64 { return float64(c.service) })),
		server:  time.Duration(of(func(c measuredCosts) float64 { return float64(c.server) })),
		flush:   time.Duration(of(func(c measuredCosts) float64 { return float64(c.flush) })),
	}
}

func saysCosts(seen map[int]measuredCosts, c costs) string {
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	n := float64(len(statements))
	full := c.execute + simulatedRows*c.row
	round := n*micros(full+c.send) + 3*micros(c.flush) // a lane, for 64 payments
	each := micros(c.request) + n*micros(c.row) + n*micros(c.send+c.execute)/simulatedRows
	return fmt.Sprintf("A payment is %d statements, three of which wait for the log. Measured at %d and %d clients, with %.1f and %.1f "+
		"rows a statement, it takes the service %.0f and %.0f µs of processor time and PostgreSQL %.0f and %.0f. Two equations "+
		"make of that: %.0f µs of the service for a payment and %.0f for a statement, of PostgreSQL %.0f µs for a statement and "+
		"%.1f for each of its rows; a flush of the log takes %.0f µs. With full statements of %d rows a payment takes "+
		"%.0f + %.0f × %.1f + %.0f × (%.0f + %.0f) ÷ %d = %.0f µs of a processor, so one processor makes %.0f a second; and a lane takes "+
		"%.0f × (%.0f + %.0f + %d × %.1f) + 3 × %.0f = %.0f µs for %d payments, so the two of a process make %.0f a second at most. "+
		"The simulation has processors, lanes and the log, each of which is waited for, and no end to what a disk writes, so compare the MB of WAL with yours; it has no locks inside PostgreSQL, no "+
		"memory bandwidth and no garbage collector, whose time is in the costs, and its clients are on another machine, except in "+
		"the two lines that repeat what was measured. What happens beside payments (housekeeping) comes on top, and the relay of a "+
		"process has its own limit.",
		len(statements), few, many, seen[few].rows, seen[many].rows, micros(seen[few].service), micros(seen[many].service),
		micros(seen[few].server), micros(seen[many].server), micros(c.request), micros(c.send), micros(c.execute), micros(c.row),
		micros(c.flush), simulatedRows,
		micros(c.request), n, micros(c.row), n, micros(c.send), micros(c.execute), simulatedRows, each, 1e6/each,
		n, micros(c.send), micros(c.execute), simulatedRows, micros(c.row), micros(c.flush), round, simulatedRows,
		simulatedLanes*simulatedRows*1e6/round)
}

// flushes are those of the log since the server began, and how long they took.
func (b *bench) flushes(ctx context.Context) (n int64, took time.Duration, err error) {
	var millis float64
	err = b.pool.Raw().QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&n)
	query := "SELECT wal_sync, wal_sync_time FROM pg_stat_wal"
	if n >= 180000 {
		query = "SELECT sum(fsyncs)::bigint, sum(fsync_time) FROM pg_stat_io WHERE object = 'wal'"
	}
	if err == nil {
		err = b.pool.Raw().QueryRow(ctx, query).Scan(&n, &millis)
	}
	return n, time.Duration(millis * float64(time.Millisecond)), err
}
