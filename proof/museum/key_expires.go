package main

import "context"

// A key is deleted after a day. A request with it is then a new one.
//
// Who teaches it: [1], [4] and [5], which calls it an acceptable trade-off.
// It looks right because a table cannot grow for ever, and Stripe does the same.
//
// Why it fails: Stripe is asked by servers. A telephone without a network, a
// queue that was paused over the weekend, a job that is run again on
// Monday ask after two days, and the customer pays twice. The provider has
// deleted the key by then, too.
//
// The cure: what is big expires, which is the answer; that the key was used is a
// row of some hundred bytes, and stays.
var keyExpires = exhibit{
	name: "key_expires", pattern: "keys deleted after a day", taught: "[1], [4], [5]",
	cure:     "docs/adr/0008-keys-never-execute-twice.md",
	scenario: twoDaysLater, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{
			Pay: func(ctx context.Context, r request) answer {
				if mine, a := claimed(ctx, s.DB, r.Key); !mine {
					return a
				}
				return finished(ctx, s.DB, r.Key, s.charge(ctx, r.Key, r))
			},
			Tidy: func(ctx context.Context) {
				exec(ctx, s.DB, `DELETE FROM keys WHERE claimed_at < clock_timestamp() - interval '24 hours'`)
			},
		}
	},
}
