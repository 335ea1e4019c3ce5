package main

import (
	"context"
	"fmt"
)

// processesGroup is the same load on more processes of the service, and with more connections to the database for each.
func (b *bench) processesGroup() group {
	g := group{
		name:    inProcesses,
		clients: true,
		says: func() string {
			return "256 clients, spread over the processes. The connections are those of a process's pool; a quarter of " +
				"them, at most four, are for batches, which payments use. The processors are the same two for all."
		},
	}
	one := fmt.Sprintf("1 process, %d connections", b.s.clients)
	for _, c := range []struct{ processes, connections int }{{1, b.s.clients}, {1, 4}, {1, 64}, {2, b.s.clients}, {4, b.s.clients}, {8, 4}} {
		var of *bench
		name := fmt.Sprintf("%d processes, %d connections each", c.processes, c.connections)
		if c.processes == 1 {
			name = fmt.Sprintf("1 process, %d connections", c.connections)
		}
		floor := one
		if name == one {
			floor = ""
		}
		g.list = append(g.list, &measurement{name: name, unit: "payments/s", floor: floor, timed: true,
			run: func(ctx context.Context) (sample, error) {
				s := b.s
				s.connections, s.clients = 256, c.connections
				var err error
				if of, err = b.another(ctx, s); err != nil {
					return sample{}, err
				}
				defer of.close()
				for range c.processes - 1 {
					if err := of.serveToo(ctx); err != nil {
						return sample{}, err
					}
				}
				got, rows, err := of.rowsAStatement(ctx, func() (sample, error) { return of.pays(ctx) })
				got.note = fmt.Sprintf("%.1f rows a statement", rows)
				return got, err
			}})
	}
	return g
}
