package main

import "context"

// The client's key is the primary key.
//
// Who teaches it: [1] and [3]; [4] in its first schema. It looks right because
// the keys are UUIDs, and UUIDs do not collide.
//
// Why it fails: nothing makes them UUIDs. A client that numbers its requests, a
// fixture in a test suite, a library with a constant in it, and two customers
// have the same key. The second gets the response that it has paid, and shown the first
// one's receipt; its own order is never charged. And a client that tries keys on
// purpose reads other people's answers.
//
// The cure: a key belongs to a tenant, in every key and index.
var keyWithoutTenant = exhibit{
	name: "key_without_tenant", pattern: "a key without its tenant", taught: "[1], [3], [4]",
	cure:     "db/migrations/00002_idempotency_keys.sql: PRIMARY KEY (tenant_id, key)",
	scenario: twoTenants, shows: foreignAnswer,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine {
				return a
			}
			return finished(ctx, s.DB, r.Key, s.charge(ctx, r.Key, r))
		}}
	},
}
