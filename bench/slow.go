package main

import (
	"context"
	"net/http"
	"time"
)

// slowGroup is a gateway that takes its time, as every real one does: whoever
// calls it inside a transaction can have as many payments on their way as it has
// connections to the database.
func (b *bench) slowGroup() group {
	const takes, connections = 100 * time.Millisecond, 512
	const ours, theirs = "fresh payments, two calls of the gateway", "fresh, one call inside the transaction"
	var own *bench
	return group{
		name: "a gateway that takes 100 ms",
		says: func() string { return "512 clients at once, and 16 connections to the database for either." },
		prepare: func(ctx context.Context) (err error) {
			s := b.s
			s.connections = connections
			own, err = b.another(ctx, s, "-gateway", takes.String())
			return err
		},
		finish: func() {
			if own != nil {
				own.close()
			}
		},
		list: []*measurement{
			{name: theirs, unit: "payments/s", run: func(ctx context.Context) (sample, error) { return own.peer("around-the-gateway", false)(ctx) }},
			{name: ours, unit: "payments/s", floor: theirs, run: func(ctx context.Context) (sample, error) {
				next, err := own.freshRequests(ctx, timeOrdered)
				if err != nil {
					return sample{}, err
				}
				return own.measured(ctx, own.addr, http.StatusCreated, next)
			}},
		},
		goals: []goal{{id: "P4", what: "fresh payments with 512 clients, of a gateway inside the transaction that takes 100 ms", want: 10, of: ratio(ours, theirs)}},
	}
}
