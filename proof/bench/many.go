package main

import (
	"context"

	"example.com/payonce/proof/internal/plot"
)

// manyGroup is what sharing commits is for: many more payments at once than the
// database has connections.
func (b *bench) manyGroup() group {
	const alone, shared = "fresh payments, one commit each (GROUP_COMMIT=false)", "fresh payments, shared commits"
	var own, grouping *bench
	return group{
		name: "256 clients",
		says: func() string {
			return "256 clients, 16 database connections for each service. All other measurements on this page use " +
				"GROUP_COMMIT, the default."
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
			{name: freshFloor, kind: plot.Floor, unit: "payments/s",
				run: func(ctx context.Context) (sample, error) { return own.freshFloor(ctx) }},
			{name: alone, unit: "payments/s", floor: freshFloor,
				run: func(ctx context.Context) (sample, error) { return own.fresh(timeOrdered)(ctx) }},
			{name: shared, unit: "payments/s", floor: freshFloor,
				run: func(ctx context.Context) (sample, error) { return grouping.fresh(timeOrdered)(ctx) }},
		},
		goals: []goal{{id: "P1b", what: "fresh payments of 256 clients ÷ pgbench", want: 1,
			of: ratio(shared, freshFloor)}},
	}
}
