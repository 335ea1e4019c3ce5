package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/proof/internal/prometheus"
)

// enough is a report of a minute in which everything was broken.
func enough() Report {
	r := Report{
		Duration: "1m0s", Processes: 4, Operations: 1000,
		Outcomes: map[string]int{"final": 500, "unknown": 100, "mismatch": 20}, Faults: map[string]int{},
		Charges: 1000, Captures: 1000, Refunds: 1000, Checkouts: 1000, Webhooks: 1000, TakenOver: 1000, Fenced: 10,
		ToFinal:    spread([]float64{1, 2, 3000}),
		Suppressed: Suppressed{1000, 1000, 1000, 1000}, InDoubt: InDoubt{100, 100, 100},
		Batches: BatchesLost{20, 20, 200, 8},
		Clocks:  map[string]int{"-1h": 50, "+0h": 50, "+1h": 50}, Island: Island{Ended: 100, Seconds: 10},
		Finals: []Final{{"c", 3000}, {"b", 2}, {"a", 1}}, Seconds: []Second{{0, map[string]int{"final": 3}, 5, 9}},
		Samples:  []Sample{{0, 1, 2, 3}, {1, -1, -1, -1}},
		Timeline: []Fault{{killed, "api-1", 0, 0}, {commitAfter + "PaymentFinish", "api-2", 0, 1}},
	}
	r.ToFinal.Count = 100
	for _, kind := range []string{killed, "pause", "sigterm", "pg_immediate", "broker_kill9"} {
		r.Faults[kind] = 100
	}
	for _, kind := range []string{"tcp_cut_", "tcp_latency_", "tcp_swallow_"} {
		for _, to := range []string{toPostgres, toBroker, toStripe} {
			r.Faults[kind+to] = 10
		}
	}
	for _, statement := range batched {
		r.Faults[batchBefore+statement] = 5
	}
	for _, f := range stripesFaults {
		r.Faults["stripe_"+f.Kind] = 5
	}
	for _, f := range webhooksFaults {
		r.Faults["webhook_"+f.Kind] = 5
	}
	return r
}

// Vacuous green is red: whatever a run had too little of is named, each for itself.
func TestTooLittle(t *testing.T) {
	t.Parallel()
	require.Empty(t, enough().tooLittle(1))
	require.NotEmpty(t, enough().tooLittle(1000), "a longer run must break more")
	require.Greater(t, len(Report{}.tooLittle(1)), 40)
	require.False(t, Report{TooLittle: []string{"kills"}}.OK())

	for kind := range enough().Faults {
		r := enough()
		delete(r.Faults, kind)
		missing := kind
		if statement, lost := strings.CutPrefix(kind, batchBefore); lost {
			missing = "batches lost of " + statement
		}
		require.Equal(t, []string{missing}, firstWords(r.tooLittle(1)))
	}
	for what, without := range map[string]func(*Report){
		"commits lost before": func(r *Report) { r.InDoubt.Before = 0 },
		"commits lost after":  func(r *Report) { r.InDoubt.After = 0 },
		"batches lost before": func(r *Report) { r.Batches.Before = 4 },
		"batches lost after":  func(r *Report) { r.Batches.After = 4 },
		"rows of batches that were lost": func(r *Report) {
			r.Batches.Rows = 79 // one of them had a single row
		},
		"rows of the largest batch that was lost": func(r *Report) { r.Batches.Most = 2 },
		"final answers, in percent": func(r *Report) {
			r.Operations, r.Outcomes["unknown"] = 10_000,
				1000
		},
		"final answers":                             func(r *Report) { r.Outcomes["final"] = 390 },
		"responses lost, in percent":                func(r *Report) { r.Outcomes["unknown"] = 1 },
		"requests under another's key":              func(r *Report) { r.Outcomes["mismatch"] = 0 },
		"fenced writes":                             func(r *Report) { r.Fenced = 0 },
		"leases taken over":                         func(r *Report) { r.TakenOver = 3 },
		"keys that a killed process held":           func(r *Report) { r.ToFinal.Count = 0 },
		"replays at Stripe":                         func(r *Report) { r.Suppressed.AtStripe = 0 },
		"duplicates at the broker":                  func(r *Report) { r.Suppressed.Broker = 0 },
		"orders made by a clock that is off by -1h": func(r *Report) { r.Clocks["-1h"] = 0 },
		"intents that ended beside a broken node":   func(r *Report) { r.Island.Ended = 0 },
		"I9, the fence: nothing was looked at": func(r *Report) {
			r.Checks = []Check{{ID: "I9", Name: "the fence",
				Looked: 0}}
		},
		"charges":        func(r *Report) { r.Charges = 1 },
		"captures":       func(r *Report) { r.Captures = 1 },
		"checkouts":      func(r *Report) { r.Checkouts = 1 },
		"webhooks taken": func(r *Report) { r.Webhooks = 1 },
	} {
		r := enough()
		without(&r)
		got := r.tooLittle(1)
		require.Len(t, got, 1, what)
		require.True(t, strings.HasPrefix(got[0], what), got[0])
	}
}

// watched is what Prometheus saw of enough.
func watched() *Observed {
	o := &Observed{Seen: prometheus.Seen{Rules: 31, Queries: 70}, Firings: []Firing{
		{"PayonceDown", 3, 9, true}, {"PayonceDown", 20, 21, true}, {"PayonceLeaseTakeovers", 5, 30, true},
		{"PayonceUnknownOutcomeOld", 6, 7, true},
	}}
	for _, name := range slices.Concat(expectedOfDisputes, expected) {
		o.Firings = append(o.Firings, Firing{name, 10, 50, true})
	}
	return o
}

// A run that was watched is red as well if too few alerts fired and went, if one
// still fires when everything is quiet, and if a rule or a panel was blind.
func TestTooLittleWasSeen(t *testing.T) {
	t.Parallel()
	r := enough()
	r.Observed = watched()
	require.Empty(t, r.tooLittle(1))
	require.Empty(t, r.tooLittle(0.1))
	require.Empty(t, r.Observed.stillFiring())

	r.Observed.Firings[3].Gone = false
	require.Equal(t, []string{"alerts that fired and went: 7, at least 8"}, r.tooLittle(0.1),
		"it does not grow with the run, and does not shrink")
	require.Len(t, r.Observed.stillFiring(), 1)
	require.Contains(t, r.Observed.stillFiring()[0], "PayonceUnknownOutcomeOld has fired since 6 s")

	r.Observed = watched()
	r.Observed.Firings[1].Gone = false
	require.Len(t, r.Observed.went(), 7, "it has fired again since it went")

	r.Observed = watched()
	r.People = map[string]int{PeopleDispute: 1}
	r.Observed.Firings[4].Alert, r.Observed.Firings[7].Alert = "PayonceDown", "PayonceDown"
	require.Contains(t, r.tooLittle(1), "PayonceDisputesNeedResponse: it did not fire and go")
	require.Contains(t, r.tooLittle(1), "PayonceAuthorizationExpiring: it did not fire and go")
	r.People = nil
	require.NotContains(t, r.tooLittle(1), "PayonceDisputesNeedResponse: it did not fire and go")

	r.Observed = watched()
	r.Observed.Seen.Blind = []string{"PayonceMoneyDrift uses a series that does not exist"}
	require.Equal(t, []string{"seen by Prometheus: PayonceMoneyDrift uses a series that does not exist"},
		r.tooLittle(1))
}

// When which alert fired is in the text, in the JSON and on the page.
func TestAlertsAreReported(t *testing.T) {
	t.Parallel()
	r := enough()
	r.Observed = watched()
	r.Observed.Firings[3].Gone = false
	var b bytes.Buffer
	r.Print(&b)
	require.Contains(t, b.String(),
		"prometheus: 31 rules and 70 queries of panels, 0 of them blind; 8 alerts fired, 7 of them are gone\n")
	require.Regexp(t, `(?m)^  PayonceDown +3-9 s, 20-21 s$`, b.String())
	require.Regexp(t, `(?m)^  PayonceUnknownOutcomeOld +from 6 s$`, b.String())

	dir := t.TempDir()
	page, err := r.Write(dir)
	require.NoError(t, err)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, 6, strings.Count(string(html), "<svg"))
	require.Contains(t, string(html), "<td>PayonceDown</td><td>3-9 s, 20-21 s</td>")
	kept, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(kept, &back))
	require.Equal(t, r.Observed, back.Observed)
}

func firstWords(list []string) (words []string) {
	for _, s := range list {
		word, _, _ := strings.Cut(s, ": ")
		words = append(words, word)
	}
	return words
}

// Every invariant is in the report, and one that was not checked is not green.
func TestInvariantsAreAllThere(t *testing.T) {
	t.Parallel()
	r := enough()
	r.Checks = []Check{{ID: "I1a", Looked: -1}, {ID: "I1", Looked: 3, Violations: []string{"twice"}},
		{ID: "I24", Looked: 1}, {ID: "I28", Looked: 1}}
	list := r.Invariants()
	require.Len(t, list, len(sentences))
	require.Equal(t, "I28", list[len(list)-1].ID)
	require.Len(t, list[0].Checks, 2)
	require.Equal(t, 1, list[0].Violations)
	require.True(t, list[23].Asked)
	require.False(t, list[1].Asked)
	var b bytes.Buffer
	r.Print(&b)
	require.Regexp(t, `(?m)^I1 +BROKEN 1 times +`, b.String())
	require.Regexp(t, `(?m)^I2 +NOT ASKED`, b.String())
	require.Regexp(t, `(?m)^I24 +holds +`, b.String())
}

// The page is one file that loads nothing from elsewhere, and what it shows is text.
func TestPage(t *testing.T) {
	t.Parallel()
	r := enough()
	r.Violations = []string{`I3 <script>alert(1)</script>`}
	dir := filepath.Join(t.TempDir(), "out", "chaos")
	page, err := r.Write(dir)
	require.NoError(t, err)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, request := range []string{"http:", "https:", "//", "src=", "href=", "url(", "@import", "<script"} {
		require.NotContains(t, string(b), request)
	}
	require.Contains(t, string(b), "1 violations")
	require.Contains(t, string(b), "&lt;script&gt;")
	require.Equal(t, 5, strings.Count(string(b), "<svg"))
	require.FileExists(t, filepath.Join(dir, "report.json"))
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	list := seconds([]history.Operation{
		{Outcome: history.Final, Call: at(100), Return: at(110)},
		{Outcome: history.Final, Call: at(200), Return: at(230)},
		{Outcome: history.Unknown, Call: at(2500), Return: at(9000)},
	})
	require.Equal(t, []Second{
		{0, map[string]int{"final": 2}, 10, 10}, {1, map[string]int{}, 0, 0}, {2, map[string]int{"unknown": 1}, 0, 0},
	}, list)
}
