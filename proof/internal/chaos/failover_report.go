package chaos

import (
	"fmt"
	"io"
	"slices"
)

// PairLosses are how the primary of a pair may be lost.
var PairLosses = []string{Killed, Frozen, Cut, Canceled}

// Check returns what is wrong with a configuration.
func (c FailoverConfig) Check() error {
	if c.Processes < 2 || c.Clients < 1 {
		return fmt.Errorf("it takes two processes and a client")
	}
	ways := PairLosses
	if c.Real {
		ways = RealLosses
	}
	for _, how := range c.Losses {
		if !slices.Contains(ways, how) {
			return fmt.Errorf("%q is no way to lose a primary; there are %v", how, ways)
		}
	}
	return nil
}

// Print writes the report as text.
func (r FailoverReport) Print(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	p("seed=%d PostgreSQL %s losses=%d ops=%d", r.Seed, r.PostgreSQL, len(r.Losses), r.Operations)
	p("responses: %s; commits in doubt: %d; quiet after %s", counts(r.Outcomes), r.CommitsUnsure, r.Quiet)
	slowest := 0.0
	for _, l := range r.Losses {
		slowest = max(slowest, l.Writes)
	}
	p("writes again after %.1f s at most", slowest/1000)
	p("acknowledged=%d lost=%d", r.Acknowledged, len(r.Lost))
	p("charges=%d orders_charged=%d charged_twice=%d unknown_to_us=%d", r.Charges, r.Orders, r.Twice, r.Unknown)
	held := 0
	for _, c := range r.Checks {
		if len(c.Violations) == 0 {
			held++
		}
	}
	p("checks: %d of %d hold", held, len(r.Checks))
	for _, v := range r.Violations[:min(len(r.Violations), shownMax)] {
		p("VIOLATION %s", v)
	}
	p("violations=%d", len(r.Violations))
}
