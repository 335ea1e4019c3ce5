package main

import "context"

// A key is looked up by its name alone; what the request asks for is not
// compared.
//
// Who teaches it: [3] has no fingerprint; [1] has a column for one, and nothing
// that reads it. It looks right because a client that follows the rules never
// needs it.
//
// Why it fails: clients have bugs. One makes its key from the user and the
// minute, or keeps it in a field that outlives the form. Then the second order is
// answered with the receipt of the first, and no error is reported.
//
// The cure: what was asked for is stored with the key, and another request under
// it is refused with a 422, which the client's developer sees on the first day.
var keyWithoutFingerprint = exhibit{
	name: "key_without_fingerprint", pattern: "a key without a fingerprint of the request", taught: "[1], [3]",
	cure:     "internal/http/idempotency.go, fingerprint",
	scenario: keyUsedAgain, shows: foreignAnswer,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			key := r.Tenant + ":" + r.Key
			if mine, a := claimed(ctx, s.DB, key); !mine {
				return a
			}
			return finished(ctx, s.DB, key, s.charge(ctx, key, r))
		}}
	},
}
