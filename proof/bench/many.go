package main

import (
	"context"

	"example.com/payonce/proof/internal/plot"
)

// manyGroup is many more payments at once than the database has connections: those that wait share a statement.
func (b *bench) manyGroup() group {
	var many *bench
	of := func(run func(*bench, context.Context) (sample, error)) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return run(many, ctx) }
	}
	peer := func(name string) func(context.Context) (sample, error) {
		return of(func(b *bench, ctx context.Context) (sample, error) { return b.peer(name, false)(ctx) })
	}
	return group{
		name:    inMany,
		clients: true,
		says:    func() string { return "256 clients, 16 database connections for the service and for each peer." },
		prepare: func(ctx context.Context) (err error) {
			s := b.s
			s.connections = 256
			if many, err = b.another(ctx, s); err != nil {
				return err
			}
			return many.observeBatches(ctx)
		},
		finish: func() {
			if many != nil {
				many.close()
			}
		},
		list: []*measurement{
			{name: freshFloor, kind: plot.Floor, unit: "payments/s", run: of((*bench).freshFloor)},
			{name: fresh, unit: "payments/s", floor: freshFloor,
				run: of(func(b *bench, ctx context.Context) (sample, error) { return b.fresh(timeOrdered)(ctx) })},
			{name: peerThree, kind: plot.Peer, unit: "payments/s", run: peer("look-work-store")},
			{name: peerAround, kind: plot.Peer, unit: "payments/s", run: peer("around-the-gateway")},
			{name: peerOne, kind: plot.Peer, unit: "payments/s", run: peer("one-transaction")},
		},
	}
}
