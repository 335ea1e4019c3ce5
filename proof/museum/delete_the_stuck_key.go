package main

import "context"

// A key that has been pending for a minute belongs to a process that was killed. A
// job deletes it, and the next retry starts afresh.
//
// Who teaches it: [4], ready to be pasted into a scheduler, some pages before it
// describes this very accident; [5] has the row removed after a timeout. It looks
// right because the customer would otherwise be locked out for good.
//
// Why it fails: that the process was killed says nothing about when. If it was after
// the charge, the deleted row was the only sign that there had been one. The
// retry finds nothing, and charges.
//
// The cure: a stuck key is finished, not deleted: taken over with everything
// that is known about it, beginning with a look at what the provider has done.
var deleteTheStuckKey = exhibit{
	name: "delete_the_stuck_key", pattern: "the stuck key deleted", taught: "[4], [5]",
	cure:     "internal/idempotency/completer.go",
	scenario: crashAfterCharge, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{
			Pay: func(ctx context.Context, r request) answer {
				if mine, a := claimed(ctx, s.DB, r.Key); !mine {
					return a
				}
				return finished(ctx, s.DB, r.Key, s.charge(ctx, "", r))
			},
			Tidy: func(ctx context.Context) {
				exec(ctx, s.DB,
					`DELETE FROM keys WHERE status IS NULL AND claimed_at < clock_timestamp() - interval '60 seconds'`)
			},
		}
	},
}
