package operator

import (
	"context"
	"net/http"
	"strings"
	"time"

	"example.com/payonce/internal/postgres"
)

// invariantsPage is the result of one check of all invariants.
type invariantsPage struct {
	Checks []postgres.Check
	Took   time.Duration
}

// Violated counts the invariants with at least one offending row.
func (p invariantsPage) Violated() (n int) {
	for _, c := range p.Checks {
		if len(c.Rows) > 0 {
			n++
		}
	}
	return n
}

// Unchecked counts the invariants whose query failed or timed out.
func (p invariantsPage) Unchecked() (n int) {
	for _, c := range p.Checks {
		if c.Err != nil {
			n++
		}
	}
	return n
}

// Duration is how long the check took, in a unit that shows whether it is expensive.
func (p invariantsPage) Duration() string { return p.Took.Round(time.Millisecond).String() }

// checkInvariants reads whole tables, so it runs on request only and one at a time: ten
// impatient clicks must not become ten table scans.
func (s *Server) checkInvariants(w http.ResponseWriter, r *http.Request) {
	if !s.invariants.TryLock() {
		s.renderError(w, r, http.StatusConflict, "A check is already running.",
			"The invariants read whole tables, so a process runs one check at a time. Try again in a minute.")
		return
	}
	defer s.invariants.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), invariantsWithin)
	defer cancel()
	began := s.now()
	p := invariantsPage{Checks: s.o.Pool.InvariantsWithin(ctx, invariantWithin)}
	p.Took = s.now().Sub(began)
	s.o.Log.Info("operator: invariants checked", "took", p.Took, "violated", p.Violated(), "unchecked", p.Unchecked())
	s.render(w, r, http.StatusOK, "invariants", "Invariants", p)
}

// checkErrorText says why an invariant could not be checked.
func checkErrorText(err error) string {
	if strings.Contains(err.Error(), "statement timeout") {
		return "timed out after " + invariantWithin.String()
	}
	return postgres.ErrorText(err)
}
