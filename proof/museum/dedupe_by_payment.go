package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A consumer recognises what it has seen by the id of the payment.
//
// Who teaches it: [4], as the natural business key; [1] does the same by way of
// the broker's message key, which is the payment's, too. It looks right because
// offsets change and payments do not; and in the example there is one event for
// each payment.
//
// Why it fails: then there are refunds. A payment that succeeded is followed by
// one that was given back, under the same id, and the consumer has seen it. The
// books show money that is gone.
//
// The cure: the id of the event, for each consumer.
var dedupeByPayment = exhibit{
	name: "dedupe_by_payment", pattern: "dedupe by payment id", taught: "[1], [4]",
	cure:     "internal/outbox/outbox.go, EventID; internal/inbox/consumer.go",
	scenario: paidAndRefunded, shows: neverBooked,
	wrong: func(s *side) shop {
		s.setup(booksTables)
		return shop{Booked: bookedQuery, Receive: func(ctx context.Context, m message, ack func()) {
			inTx(ctx, s.DB, func(tx pgx.Tx) {
				if noted(ctx, tx, m.Payment) {
					s.book(ctx, tx, m)
				}
			})
			ack()
		}}
	},
}
