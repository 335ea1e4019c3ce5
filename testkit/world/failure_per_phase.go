package world

import (
	"strings"
	"testing"
)

// RequireNoPhaseSwallows is the short form of RequireNoErrorSwallowed: of each scene, the last statement of each
// phase fails once, before the phase moves its key on, and no request to Stripe fails. A person who drops an error of
// a phase sees it here; all statements fail in the module proof.
func RequireNoPhaseSwallows(t *testing.T, scenes ...Scene) {
	t.Helper()
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			g := newStage(t, s)
			statements, _ := g.rehearse(t, lastOfPhase)
			g.run(t, statements, nil)
		})
	}
}

// lastOfPhase chooses the statement that only the statements about its key and a commit follow.
func lastOfPhase(statements []string, n int) bool {
	ofItsKey := func(statement string) bool { return strings.HasPrefix(statement, "Key") }
	if ofItsKey(statements[n]) {
		return false
	}
	for _, next := range statements[n+1:] {
		if !ofItsKey(next) {
			return strings.HasPrefix(strings.ToLower(next), "commit")
		}
	}
	return false
}
