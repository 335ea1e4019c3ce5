package main

import (
	"context"
	"fmt"
)

// exhibit is a pattern on show.
type exhibit struct {
	name    string // of the file, for -only
	pattern string
	taught  string // by whom; numbers are articles, see table.go
	cure    string // where payonce does it differently

	scenario scenario           // what customers do, and what breaks
	shows    damage             // the damage it is here for
	also     []damage           // and more
	conns    int32              // connections of the shop's pool; 40 if zero
	wrong    func(s *side) shop // opens a shop that follows the pattern
}

// shop is what an exhibit builds. It has what its scenario asks for.
type shop struct {
	Order func(tenant string, amount int) string      // places an order; nil: the harness makes up a name
	Pay   func(ctx context.Context, r request) answer // POST /v1/payments
	Tidy  func(ctx context.Context)                   // what it does unasked, once a minute
	Buy   func(ctx context.Context, r request) answer // a client of an API, which pays the order
	// Restart is what a restart of that client's process does to what it remembers.
	Restart func()
	Change  func(ctx context.Context, id string,
		// changes an object and tells the broker, sooner or later; meanwhile is the moment before the COMMIT
		meanwhile func())
	Relay   func(ctx context.Context) // one round of its relay
	Changes string                    // a query for what was committed: object and version
	Receive func(ctx context.Context, m message,
		ack func()) // a message from the broker; until ack is called it will come again
	Booked string // a query for what was booked: event and how often
}

// room is a part of the museum.
type room struct {
	title    string
	exhibits []exhibit
}

// rooms, in the order of the tour.
var rooms = []room{
	{"The key", []exhibit{
		checkThenWrite, forUpdateOfNothing, answerFromNothing, upsertPending, keyWithoutTenant, keyWithoutFingerprint,
		replayThroughJSONB, cachedFailure, keyExpires, dailyPartitions,
	}},
	{"The process and the provider", []exhibit{
		gatewayInTransaction, deleteTheStuckKey, existsMeansDone, takeoverWithoutFence, leaseByAppClock,
		timeoutRunsAgain, timeoutMeansDeclined, newKeyPerAttempt, providerForgets,
	}},
	{"Events out", []exhibit{publishAfterCommit, publishBeforeCommit, relaySkipLocked, relayByCursor, versionByMax}},
	{"Events in", []exhibit{ackFirst, dedupeInMemory, dedupeByPayment, bookThenNote, noteThenBook}},
	{"The client", []exhibit{keyMadeAgain, retryUnderNewKey, secondRetryLayer}},
}

// finding is what a visit measured.
type finding struct {
	exhibit      exhibit
	wrong, right tally
}

// visit runs the exhibit's scenario against the wrong shop and then against payonce. An
// error means that the exhibit proves nothing: no damage, or damage on the
// right side, too.
func (m *museum) visit(ctx context.Context, e exhibit) (f finding, err error) {
	f.exhibit = e
	if f.wrong, err = m.play(ctx, m.wrong, e, e.wrong); err != nil {
		return f, fmt.Errorf("%s, wrong side: %w", e.name, err)
	}
	if f.right, err = m.play(ctx, m.payonce, e, m.right); err != nil {
		return f, fmt.Errorf("%s, right side: %w", e.name, err)
	}
	for _, d := range append([]damage{e.shows}, e.also...) {
		if f.wrong[d].n == 0 {
			return f, fmt.Errorf("%s: the wrong side shows no %q, but: %s", e.name, d, f.wrong)
		}
	}
	if f.right[e.shows].of == 0 {
		return f, fmt.Errorf("%s: the right side has no case of %q", e.name, e.shows)
	}
	if f.right.total() > 0 {
		return f, fmt.Errorf("%s: the right side is damaged: %s", e.name, f.right)
	}
	return f, nil
}
