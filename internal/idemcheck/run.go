package idemcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// checkWithin bounds one check.
const checkWithin = 10 * time.Minute

// ErrNotLoopback means that the API, or an address of the profile, is on another machine, and nobody has said that it may
// be sent requests.
var ErrNotLoopback = errors.New("this is another machine: -anywhere says that you may send it hundreds of requests at once")

// essential checks decide what a key is for. A report without them says nothing.
var essential = []string{"replay", "in flight"}

// Report is all that was asked of an API.
type Report struct {
	API     string    `json:"api"`
	Profile string    `json:"profile"`
	At      time.Time `json:"at"`
	Results []Result  `json:"results"`

	incomplete bool // something could not be asked
}

// Run asks everything of the API at base. anywhere: also if it is on another machine. An error says that something could
// not be asked, and the report is incomplete; a promise that is broken is none.
func Run(ctx context.Context, base string, p Profile, anywhere bool) (Report, error) {
	report := Report{API: base, Profile: p.Name, At: time.Now().UTC()}
	if !anywhere && !loopback(base) {
		return report, ErrNotLoopback
	}
	c := newClient(base, p, anywhere)
	defer c.http.CloseIdleConnections()
	for _, ask := range checks() {
		result, err := one(ctx, c, ask)
		if err != nil { // what comes after it is not asked either
			result.Verdict, result.Evidence = NotAsked, "it could not be asked: "+err.Error()
			report.Results, report.incomplete = append(report.Results, result), true
			return report, fmt.Errorf("%s: %w", ask.name, err)
		}
		report.Results = append(report.Results, result)
	}
	return report, nil
}

func one(ctx context.Context, c *client, ask check) (Result, error) {
	began := time.Now()
	result := Result{Check: ask.name, Asks: ask.asks, Verdict: Holds}
	if !c.profile.Effects.named() {
		result.Verdict, result.Evidence = NotAsked, "the profile has no way to count effects"
		return result, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	evidence, err := ask.ask(ctx, c)
	result.Evidence, result.Took = evidence, time.Since(began)
	var b *broken
	var n *notAsked
	switch {
	case errors.As(err, &b):
		result.Verdict, result.Evidence = Broken, b.evidence
	case errors.As(err, &n):
		result.Verdict, result.Evidence = NotAsked, n.why
	case err != nil:
		return result, err
	}
	return result, nil
}

// Essential reports whether the essential checks, replay and in flight, were asked, and nothing could not be.
func (r Report) Essential() bool {
	if r.incomplete {
		return false
	}
	asked := 0
	for _, result := range r.Results {
		if result.Verdict != NotAsked && slices.Contains(essential, result.Check) {
			asked++
		}
	}
	return asked == len(essential)
}

// Count is how many checks have the verdict.
func (r Report) Count(v Verdict) (n int) {
	for _, result := range r.Results {
		if result.Verdict == v {
			n++
		}
	}
	return n
}
