package main

import (
	"context"
)

// manyGroup is what sharing commits is for: many more payments at once than the
// database has connections.
func (b *bench) manyGroup() group {
	const alone, shared = "fresh payments, each with commits of its own (GROUP_COMMIT=false)", "fresh payments that share commits"
	var own, grouping *bench
	return group{
		name: "256 clients",
		says: func() string {
			return "16 connections to the database for each. Everything else on this page is with GROUP_COMMIT, which is how the service runs unless it is told otherwise."
		},
		prepare: func(ctx context.Context) (err error) {
			s := b.s
			s.connections, s.group = 256, false
			if own, err = b.another(ctx, s); err != nil {
				return err
			}
			s.group = true
			grouping, err = b.another(ctx, s)
			return err
		},
		finish: func() {
			for _, one := range []*bench{own, grouping} {
				if one != nil {
					one.close()
				}
			}
		},
		list: []*measurement{
			{name: freshFloor, unit: "payments/s", run: func(ctx context.Context) (sample, error) { return own.freshFloor(ctx) }},
			{name: alone, unit: "payments/s", floor: freshFloor, run: func(ctx context.Context) (sample, error) { return own.fresh(timeOrdered)(ctx) }},
			{name: shared, unit: "payments/s", floor: freshFloor, run: func(ctx context.Context) (sample, error) { return grouping.fresh(timeOrdered)(ctx) }},
		},
		goals: []goal{{id: "P1b", what: "fresh payments of 256 clients, of pgbench", want: 1, of: ratio(shared, freshFloor)}},
	}
}
