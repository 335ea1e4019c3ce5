package main

import (
	"context"

	"example.com/payonce/internal/ledger"
)

// ledgerConsumer names the consumer at the broker and in the inbox. It must never change: to both, a consumer of
// another name has not received anything yet, and every payment would be booked again.
const ledgerConsumer = "ledger"

// ledgerPart books what moved, in double entry, from the events of payments and refunds.
var ledgerPart = part{name: "ledger", read: func(*environment) partSettings { return books{} }}

type books struct{}

func (books) wire(_ context.Context, s *service) error {
	// No loop and no reaper: entries are written with the event's inbox row, and are kept for ever.
	handler := ledger.Handler()
	handler = ledger.WithDisputes(handler) // part: disputes
	s.consume(ledgerConsumer, handler)
	return nil
}
