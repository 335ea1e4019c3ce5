package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
)

// Report is what a run found. It is also the JSON that is kept.
type Report struct {
	Seed       uint64         `json:"seed"`
	Began      time.Time      `json:"began"`
	Duration   string         `json:"duration"` // of the faults
	PostgreSQL string         `json:"postgresql"`
	Processes  int            `json:"processes"`
	Clients    int            `json:"clients"`
	Tenants    int            `json:"tenants"`
	Operations int            `json:"operations"`
	Outcomes   map[string]int `json:"outcomes"`
	Keys       int            `json:"keys"`
	Charges    int            `json:"charges"`
	Captures   int            `json:"captures"`
	Refunds    int            `json:"refunds"`
	Checkouts  int            `json:"checkouts"`
	Events     int            `json:"events"`
	Webhooks   int            `json:"webhooks"`

	Faults     map[string]int `json:"faults"`
	People     map[string]int `json:"people"` // what was done at Stripe without the service
	Suppressed Suppressed     `json:"duplicates_suppressed"`
	TakenOver  int            `json:"leases_taken_over"`
	Fenced     int            `json:"fenced_writes"`
	InDoubt    InDoubt        `json:"commits_in_doubt"`
	Batches    BatchesLost    `json:"batches_lost"`
	Clocks     map[string]int `json:"orders_by_clock"`
	ToFinal    Spread         `json:"time_to_final_after_a_kill"`

	Island      Island `json:"one_node_broken_for_good"`
	QuietKeys   string `json:"time_until_every_key_was_final"`
	QuietEvents string `json:"time_until_every_event_was_consumed"`

	Observed *Observed `json:"observed_by_prometheus,omitempty"`

	Checks     []Check  `json:"checks"`
	Violations []string `json:"violations"`
	TooLittle  []string `json:"injected_too_little"`

	Seconds  []Second `json:"seconds"`
	Samples  []Sample `json:"samples"`
	Timeline []Fault  `json:"timeline"`
	Finals   []Final  `json:"keys_of_killed_processes"`
}

// Suppressed is how many duplicates were stopped, and where. What Stripe replayed
// is exact; the others are counts of processes that exited and of connections that
// broke, and so the least that it can have been.
type Suppressed struct {
	AtStripe int `json:"provider_replays"`
	Replays  int `json:"replays_served"`
	Inbox    int `json:"inbox_duplicates"`
	Broker   int `json:"broker_duplicates"`
}

// InDoubt is how many commits had their response lost by the proxy, before and
// after the server had read them, and how often the service read back what came
// of one, whichever process lost it.
type InDoubt struct {
	Before   int `json:"cut_before"`
	After    int `json:"cut_after"`
	ReadBack int `json:"read_back"`
}

// BatchesLost is how many statements over several rows, each of another request, had their response lost by the proxy,
// before and after the server had read them; and how many rows that were, of all and of the largest.
type BatchesLost struct {
	Before int `json:"cut_before"`
	After  int `json:"cut_after"`
	Rows   int `json:"rows"`
	Most   int `json:"rows_of_the_largest"`
}

// Spread of times, in milliseconds.
type Spread struct {
	Count  int     `json:"count"`
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// Island is the phase in which one node has lost everything that it depends on,
// for good, and the others must go on.
type Island struct {
	Node    string  `json:"node"`
	Seconds float64 `json:"seconds"`
	From    float64 `json:"from"`
	Ended   int     `json:"intents_ended"`
	Took    Spread  `json:"took"`
}

// Second is what clients saw in one second of the run.
type Second struct {
	At       float64        `json:"at"`
	Outcomes map[string]int `json:"outcomes"`
	Median   float64        `json:"median_ms"` // of final answers; 0 if there were none
	P99      float64        `json:"p99_ms"`
}

// OK reports whether the run proves something and found nothing.
func (r Report) OK() bool { return len(r.Violations) == 0 && len(r.TooLittle) == 0 }

func (r Report) afterKills() (ms []float64) {
	for _, f := range r.Finals {
		ms = append(ms, f.Ms)
	}
	return ms
}

func spread(ms []float64) Spread {
	if len(ms) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(ms))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	return Spread{len(sorted), at(0.5), at(0.99), sorted[len(sorted)-1]}
}

// seconds cuts the history into seconds.
func seconds(ops []history.Operation) (list []Second) {
	took := map[int][]float64{}
	for _, op := range ops {
		at := int(time.Duration(op.Call) / time.Second)
		for len(list) <= at {
			list = append(list, Second{At: float64(len(list)), Outcomes: map[string]int{}})
		}
		list[at].Outcomes[op.Outcome.String()]++
		if op.Outcome == history.Final {
			took[at] = append(took[at], float64(op.Return-op.Call)/1e6)
		}
	}
	for at := range list {
		s := spread(took[at])
		list[at].Median, list[at].P99 = s.Median, s.P99
	}
	return list
}

// tooLittle is what the run injected, or met, too little of: vacuous green is
// red. The minimums are for a minute, and shrink and grow with the run.
func (r Report) tooLittle(share float64) (list []string) {
	minimum := func(what string, got int, want float64) {
		if want = math.Floor(want); float64(got) < want {
			list = append(list, fmt.Sprintf("%s: %d, at least %.0f", what, got, want))
		}
	}
	for kind, want := range map[string]float64{
		"kill9": 30, "pause": 15, "sigterm": 3, "pg_immediate": 3, "broker_kill9": 4,
		"tcp_cut_postgres": 2, "tcp_cut_broker": 2, "tcp_cut_stripe": 2,
		"tcp_latency_postgres": 2, "tcp_latency_broker": 2, "tcp_latency_stripe": 2,
		"tcp_swallow_postgres": 2, "tcp_swallow_broker": 2, "tcp_swallow_stripe": 2,
	} {
		minimum(kind, r.Faults[kind], want*share)
	}
	minimum("commits lost before", r.InDoubt.Before, 20*share)
	minimum("commits lost after", r.InDoubt.After, 20*share)
	minimum("batches lost before", r.Batches.Before, 5*share)
	minimum("batches lost after", r.Batches.After, 5*share)
	for _, statement := range batched {
		minimum("batches lost of "+statement, r.Faults[batchBefore+statement]+r.Faults[batchAfter+statement], 2*share)
	}
	minimum("rows of batches that were lost", r.Batches.Rows, 2*float64(r.Batches.Before+r.Batches.After))
	minimum("rows of the largest batch that was lost", r.Batches.Most, min(3, 10*share))
	each := map[string]bool{}
	for _, f := range stripesFaults {
		each["stripe_"+f.Kind] = true
	}
	for _, f := range webhooksFaults {
		each["webhook_"+f.Kind] = true
	}
	for kind := range each {
		minimum(kind, r.Faults[kind], share)
	}
	percent := func(outcome history.Outcome) int { return r.Outcomes[outcome.String()] * 100 / max(1, r.Operations) }
	minimum("final answers, in percent", percent(history.Final),
		30) // about half; less where a machine does other things
	minimum("final answers", r.Outcomes[history.Final.String()], 400*share)
	minimum("responses lost, in percent", percent(history.Unknown), 1)
	minimum("requests under another's key", r.Outcomes[history.Mismatch.String()], 5*share)
	minimum("charges", r.Charges, 200*share)
	minimum("captures", r.Captures, 10*share)
	minimum("refunds", r.Refunds, 10*share)
	minimum("checkouts", r.Checkouts, 20*share)
	minimum("webhooks taken", r.Webhooks, 200*share)
	minimum("leases taken over", r.TakenOver, 30*share) // 77 to 106 where nothing else runs; fewer where machines are busy
	minimum("fenced writes", r.Fenced, share)
	minimum("keys that a killed process held", r.ToFinal.Count, 10*share)
	minimum("replays at Stripe", r.Suppressed.AtStripe, 100*share)
	minimum("replays served", r.Suppressed.Replays, 50*share)
	minimum("duplicates at the broker", r.Suppressed.Broker, share)
	minimum("duplicates in the inbox", r.Suppressed.Inbox, 50*share)
	for _, name := range []string{"-1h", "+0h", "+1h"} {
		minimum("orders made by a clock that is off by "+name, r.Clocks[name], 20*share)
	}
	minimum("intents that ended beside a broken node", r.Island.Ended, 20*share)
	for _, c := range r.Checks {
		if c.Looked == 0 {
			list = append(list, fmt.Sprintf("%s, %s: nothing was looked at", c.ID, c.Name))
		}
	}
	if r.Observed != nil {
		went := r.Observed.went()
		minimum("alerts that fired and went", len(went), goneAtLeast)
		must := expected
		if r.People[PeopleDispute] > 0 {
			must = slices.Concat(expected, expectedOfDisputes)
		}
		for _, name := range must {
			if !slices.Contains(went, name) {
				list = append(list, name+": it did not fire and go")
			}
		}
		for _, blind := range r.Observed.Seen.Blind {
			list = append(list, "seen by Prometheus: "+blind)
		}
	}
	slices.Sort(list)
	return list
}

// Invariant is one of those that chaos asks about, and all that was held against it.
type Invariant struct {
	ID         string
	Checks     []Check
	Violations int
	Asked      bool
}

// Invariants are all of them, in their order; one that was not checked is
// there as well.
func (r Report) Invariants() (list []Invariant) {
	for _, n := range slices.Sorted(maps.Keys(sentences)) {
		i := Invariant{ID: fmt.Sprintf("I%d", n)}
		for _, c := range r.Checks {
			if number(c.ID) == n {
				i.Checks = append(i.Checks, c)
				i.Violations += len(c.Violations)
				i.Asked = true
			}
		}
		list = append(list, i)
	}
	return list
}

// Print writes the report as text.
func (r Report) Print(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	p("seed=%d dur=%s ops=%d keys=%d", r.Seed, r.Duration, r.Operations, r.Keys)
	p("responses: %s", counts(r.Outcomes))
	p("effects: charges=%d captures=%d refunds=%d checkouts=%d events=%d webhooks=%d orders by clock: %s", r.Charges,
		r.Captures, r.Refunds, r.Checkouts, r.Events, r.Webhooks, counts(r.Clocks))
	p("faults: %s", wrapped(counts(grouped(r.Faults)), 100))
	p("people: %s", counts(r.People))
	p("suppressed: provider_replays=%d replays_served=%d inbox_dups=%d broker_dups=%d", r.Suppressed.AtStripe,
		r.Suppressed.Replays, r.Suppressed.Inbox, r.Suppressed.Broker)
	p("fenced_writes=%d leases_taken_over=%d commits_in_doubt=%d (%d cut before, %d after)", r.Fenced, r.TakenOver,
		r.InDoubt.Before+r.InDoubt.After, r.InDoubt.Before, r.InDoubt.After)
	p("batches lost: %d cut before, %d after; %d rows, %d in the largest", r.Batches.Before, r.Batches.After,
		r.Batches.Rows, r.Batches.Most)
	p("time to final after a kill: %d keys, median %.0f ms, p99 %.0f ms; quiet after %s, events after %s",
		r.ToFinal.Count, r.ToFinal.Median, r.ToFinal.P99, r.QuietKeys, r.QuietEvents)
	p("with %s cut off for good: %d intents ended, median %.0f ms, p99 %.0f ms", r.Island.Node, r.Island.Ended,
		r.Island.Took.Median, r.Island.Took.P99)
	if r.Observed != nil {
		names, firings := r.Observed.byAlert()
		p("prometheus: %d rules and %d queries of panels, %d of them blind; %d alerts fired, %d of them are gone",
			r.Observed.Seen.Rules, r.Observed.Seen.Queries, len(r.Observed.Seen.Blind), len(names), len(r.Observed.went()))
		for _, name := range names {
			p("  %-28s %s", name, wrapped(spans(firings[name]), 100))
		}
	}
	for _, i := range r.Invariants() {
		verdict := "holds"
		switch {
		case i.Violations > 0:
			verdict = fmt.Sprintf("BROKEN %d times", i.Violations)
		case !i.Asked:
			verdict = "NOT ASKED"
		}
		var by []string
		for _, c := range i.Checks {
			looked := c.By
			if c.Looked >= 0 {
				looked = fmt.Sprintf("%s (%d)", c.By, c.Looked)
			}
			by = append(by, looked)
		}
		p("%-4s %-8s %s", i.ID, verdict, strings.Join(slices.Compact(by), ", "))
	}
	for _, v := range r.Violations[:min(len(r.Violations), shownMax)] {
		p("VIOLATION %s", v)
	}
	for _, m := range r.TooLittle {
		p("TOO LITTLE %s", m)
	}
	p("violations=%d", len(r.Violations))
}

// grouped joins the faults that are one in kind, for a line that can be read.
func grouped(faults map[string]int) map[string]int {
	g := map[string]int{}
	for kind, n := range faults {
		for _, group := range []string{"stripe_", "webhook_", commitBefore, commitAfter, batchBefore, batchAfter} {
			if strings.HasPrefix(kind, group) {
				kind = strings.TrimRight(group, "_:")
			}
		}
		if strings.HasPrefix(kind, "tcp_") {
			kind = kind[:strings.LastIndexByte(kind, '_')]
		}
		g[kind] += n
	}
	return g
}

// wrapped breaks a long line between words.
func wrapped(s string, most int) string {
	var b strings.Builder
	wide := 0
	for word := range strings.FieldsSeq(s) {
		switch {
		case wide > 0 && wide+len(word) > most:
			b.WriteString("\n        ")
			wide = 0
		case wide > 0:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		wide += len(word) + 1
	}
	return b.String()
}

func counts(m map[string]int) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, fmt.Sprintf("%s=%d", name, n))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

// Write leaves the report in a folder: report.json for programs, report.html for
// people.
func (r Report) Write(dir string) (page string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(b, '\n'), 0o644); err != nil {
		return "", err
	}
	page = filepath.Join(dir, "report.html")
	file, err := os.Create(page)
	if err != nil {
		return "", err
	}
	if err := r.page(file); err != nil {
		_ = file.Close()
		return "", err
	}
	return page, file.Close()
}
