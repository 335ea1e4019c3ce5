package main

import (
	"context"
	"log/slog"

	"example.com/payonce/internal/tracing"
)

// part is something that a service can be made without: what it adds is registered in one file,
// part_<name>.go, and by one line here. Without the two, nothing refers to its packages. Its
// tables, queries and invariants stand in files of their own as well (db/migrations,
// db/queries, internal/postgres).
type part struct {
	name string
	// read reads the part's settings from the environment.
	read func(*environment) partSettings
	// commands of the command line; nil for most.
	commands []command
}

// allParts has one line for each part, in the order in which they are wired.
var allParts = []part{
	historyPart,   // part: history
	docsPart,      // part: docs
	eventsPart,    // part: events
	disputesPart,  // part: disputes
	checkoutsPart, // part: checkouts
	webhooksPart,  // part: webhooks
	ledgerPart,    // part: ledger
	operatorPart,  // part: operator
	tracingPart,   // part: tracing
}

// partSettings are the settings of one part, as data, so that two configurations can be compared.
type partSettings interface {
	// wire adds the part to the service: operations, loops, consumers, reapers, pages (see
	// service). Payments are wired by then. It starts nothing.
	wire(ctx context.Context, s *service) error
}

// partLog is for a part whose settings are printed at the start. No secret may be among them.
type partLog interface{ logAttrs() []slog.Attr }

// partTracer is for the part that traces, because every other part gets the tracer.
type partTracer interface {
	startTracing(ctx context.Context, log *slog.Logger) (t *tracing.Tracer, flush func(), err error)
}

// startTracing returns the tracer of the part that has one, else nil, with which nothing is traced.
func startTracing(ctx context.Context, c config, log *slog.Logger) (t *tracing.Tracer, flush func(), err error) {
	for _, p := range c.parts {
		if p, ok := p.(partTracer); ok {
			return p.startTracing(ctx, log)
		}
	}
	return nil, func() {}, nil
}
