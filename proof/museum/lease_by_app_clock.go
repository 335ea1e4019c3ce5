package main

import (
	"context"
	"time"
)

// Is the claim too old? The process compares its own clock with the row's time.
//
// Who teaches it: [3], time.Since(lockedAt) < 5*time.Minute. It looks right
// because all clocks are set by NTP.
//
// Why it fails: until one is not: a machine that was suspended, a container host
// whose time service stopped, a time zone in the wrong place. To a process that is an
// hour ahead every claim in the database is abandoned, and it takes over work
// that is being done at this very moment.
//
// The cure: the database's clock decides, in the statement that takes the lease.
// (payonce hands no time to the database that decides anything, so there is
// nothing to set wrong on the right side of this exhibit.)
var leaseByAppClock = exhibit{
	name: "lease_by_app_clock", pattern: "a lease that expires by the application's clock", taught: "[3]",
	cure:     "db/queries/idempotency_keys.sql, KeyTakeOver: clock_timestamp()",
	scenario: fastClock, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine {
				var since time.Time
				if a.final() || !found(s.DB.QueryRow(ctx, `SELECT claimed_at FROM keys WHERE key = $1`, r.Key),
					&since) || r.Clock.Sub(since) < 5*time.Minute {
					return a
				}
				exec(ctx, s.DB, `UPDATE keys SET claimed_at = $2 WHERE key = $1`, r.Key, r.Clock)
			}
			return finished(ctx, s.DB, r.Key, s.charge(ctx, "", r))
		}}
	},
}
