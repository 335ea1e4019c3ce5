package main

import (
	"context"
	"time"

	"example.com/payonce/proof/internal/plot"
)

const (
	slowTheirs = "fresh, one gateway call inside the transaction"
	slowOurs   = "fresh payments, two gateway calls"
)

// slowGroup is a gateway that takes its time, as every real one does: whoever
// calls it inside a transaction can have as many payments on their way as it has
// connections to the database.
func (b *bench) slowGroup() group {
	const takes, connections = 100 * time.Millisecond, 512
	var slow *bench
	return group{
		name:    inSlow,
		clients: true,
		says:    func() string { return "512 clients, 16 database connections for each service." },
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
			{name: slowTheirs, kind: plot.Peer, unit: "payments/s",
				run: func(ctx context.Context) (sample, error) { return slow.peer("around-the-gateway", false)(ctx) }},
			{name: slowOurs, unit: "payments/s", floor: slowTheirs,
				run: func(ctx context.Context) (sample, error) { return slow.pays(ctx) }},
		},
	}
}
