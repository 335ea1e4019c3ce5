package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Claim the key, call the provider, store the answer: all in one transaction, so
// that it is all or nothing.
//
// Who teaches it: [3], whose handler calls the gateway between BEGIN and COMMIT,
// and [1] and [2] in their shorter examples. It looks right because atomicity is
// what was missing so far.
//
// Why it fails, first: the provider is not in the transaction. A process that
// is killed after the charge rolls back the only trace of it, and the retry charges
// again. Second: each payment keeps a connection for as long as the provider
// thinks. Four connections and four slow cards, and the whole service stands
// still, down to the page that shows the price list.
//
// The cure: two short transactions around the call, and none across it.
var gatewayInTransaction = exhibit{
	name: "gateway_in_transaction", pattern: "the provider called inside the transaction", taught: "[1], [2], [3]",
	cure:     "docs/adr/0001-two-short-transactions.md, internal/payments/payment.go",
	scenario: then(fullHouse, crashAfterCharge), shows: noConnection, also: []damage{queueForConnection, chargedTwice},
	conns: 4,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) (a answer) {
			inTx(ctx, s.DB, func(tx pgx.Tx) {
				var mine bool
				if mine, a = claimed(ctx, tx, r.Key); mine {
					a = finished(ctx, tx, r.Key, s.charge(ctx, "", r))
				}
			})
			return a
		}}
	},
}
