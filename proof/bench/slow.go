package main

import (
	"context"
	"net/http"
	"time"

	"example.com/payonce/proof/internal/plot"
)

// slowGroup is a gateway that takes its time, as every real one does: whoever
// calls it inside a transaction can have as many payments on their way as it has
// connections to the database.
func (b *bench) slowGroup() group {
	const takes, connections = 100 * time.Millisecond, 512
	const theirs = "fresh, one gateway call inside the transaction"
	const ours = "fresh payments, two gateway calls"
	var slow *bench
	paid := func(ctx context.Context, by *bench) (sample, error) {
		next, err := by.freshRequests(ctx, timeOrdered)
		if err != nil {
			return sample{}, err
		}
		return by.measured(ctx, by.addr, http.StatusCreated, next)
	}
	return group{
		name: "gateway latency 100 ms",
		says: func() string { return "512 clients, 16 database connections for each service." },
		prepare: func(ctx context.Context) (err error) {
			s := b.s
			s.connections = connections
			slow, err = b.another(ctx, s, "-gateway", takes.String())
			return err
		},
		finish: func() {
			if slow != nil {
				slow.close()
			}
		},
		list: []*measurement{
			{name: theirs, kind: plot.Peer, unit: "payments/s",
				run: func(ctx context.Context) (sample, error) { return slow.peer("around-the-gateway", false)(ctx) }},
			{name: ours, unit: "payments/s", floor: theirs,
				run: func(ctx context.Context) (sample, error) { return paid(ctx, slow) }},
		},
		goals: []goal{{id: "P4",
			what: "fresh payments of 512 clients ÷ a gateway inside the transaction, latency 100 ms", want: 13,
			of: ratio(ours, theirs)}},
	}
}
