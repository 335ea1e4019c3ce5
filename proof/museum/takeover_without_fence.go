package main

import "context"

// A claim that is older than a minute is taken over, by one atomic UPDATE.
//
// Who teaches it: [3] and [5]. It looks right because only one can win the
// UPDATE, and because the provider's key keeps the money right: here no customer is
// charged twice.
//
// Why it fails: the old holder was not dead. It stood still, for a garbage
// collection, a paused machine, a slow network, and now it wakes up and finishes
// what it began. Its UPDATE names the key and nothing else, so it overwrites
// the answer that the customer has read, with other ids in it.
//
// The cure: each takeover raises a number, and every write names the number it
// was given. A write that changes no row comes from a process that has lost its claim.
var takeoverWithoutFence = exhibit{
	name: "takeover_without_fence", pattern: "a takeover without a fence", taught: "[3], [5]",
	cure:     "internal/idempotency/phase.go, Phase and Finish: the lease token",
	scenario: pausedHolder, shows: answerChanged,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			mine, a := claimed(ctx, s.DB, r.Key)
			if !mine {
				stolen := exec(ctx, s.DB, `UPDATE keys SET claimed_at = clock_timestamp()
					WHERE key = $1 AND status IS NULL AND claimed_at < clock_timestamp() - interval '60 seconds'`,
					r.Key)
				if stolen == 0 {
					return a
				}
			}
			return finished(ctx, s.DB, r.Key, s.charge(ctx, r.Key, r))
		}}
	},
}
