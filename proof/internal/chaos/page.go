package chaos

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/proof/internal/plot"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// sheet is the page as its template sees it. It is one file and asks nobody for
// anything.
type sheet struct {
	Report
	When   string
	Facts  []fact
	Plots  []template.HTML
	Rows   []invariantRow
	Alerts [][2]string // the name, and when it fired
	Again  string
	Counts []countsOf
}

// fact is one number that is worth its size.
type fact struct {
	Value, Of string
	Bad       bool
}

type invariantRow struct {
	Invariant
	Holds    bool
	Sentence string
}

type countsOf struct {
	Title string
	Names []string
	Of    map[string]int
}

// sentences are the invariants that chaos asks about, in a few words each; docs/guarantees.md has them in full, and
// those that other tests hold.
var sentences = map[int]string{
	1: "A key has one effect, and an order is paid once", 2: "No acknowledged payment is lost or changed",
	3: "A replay is the same bytes", 4: "A key never serves two requests", 5: "Nothing is stuck",
	6: "Each change is one event, in order", 7: "A consumer's effect happens once", 8: "Money is conserved",
	9: "Who has lost the lease cannot write", 10: "Tenants do not meet", 11: "Final is final, and transitions are legal",
	12: "No effect without prior intent", 13: "One Stripe key a call, and nothing is sent late",
	14: "Unknown is never an answer, and never compensated",
	15: "A webhook that was answered 200 is stored, and applied once", 16: "A checkout ends whole",
	17: "The reaper removes only what is finished and old", 18: "The processes' clocks decide nothing",
	19: "Nothing leaks", 20: "Answers are honest", 21: "A replay is authorised like a first request",
	22: "Nothing vanishes into a dead letter", 23: "What is said not to have been done was not",
	24: "Money that others move at Stripe is in our rows", 25: "A client secret ends with its payment",
	26: "An authorization has one end", 28: "What the service began by itself is not given up in silence",
}

// lanes of the timeline: what our kinds are called there.
var laneKinds = []struct{ name, kinds string }{
	{"killed", killed + " broker_kill9 pg_immediate"}, {"paused", "pause"}, {"SIGTERM", "sigterm"},
	{"link cut or dead", "tcp_cut tcp_swallow"},
	{"link slow", "tcp_latency"},
	{"commit lost", strings.ReplaceAll(commitBefore+" "+commitAfter+" "+batchBefore+" "+batchAfter, ":", "")},
}

func (r Report) page(w io.Writer) error {
	s := sheet{
		Report: r, When: r.Began.UTC().Format("2 January 2006, 15:04 UTC"), Plots: []template.HTML{
			r.lanes().SVG(), r.outcomes().SVG(), r.latencies().SVG(), r.underWay().SVG(), r.finals().SVG(),
		},
		Again: fmt.Sprintf("go run -C proof ./chaos -duration %s -seed %d", r.Duration, r.Seed),
	}
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	s.Facts = []fact{
		{number3(len(r.Violations)), "violations", len(r.Violations) > 0},
		{number3(faults), "faults", false},
		{number3(r.Operations), "requests", false},
		{number3(r.Charges), "charges at Stripe", false},
		{number3(r.InDoubt.Before + r.InDoubt.After), "commits in doubt", false},
		{number3(r.TakenOver), "leases taken over", false},
		{seconds3(r.ToFinal.Median), "to final after a kill, median", false},
		{seconds3(r.ToFinal.P99), "to final after a kill, p99", false},
	}
	if r.Observed != nil {
		s.Plots = slices.Insert(s.Plots, 1, r.alerts().SVG())
		names, firings := r.Observed.byAlert()
		for _, name := range names {
			s.Alerts = append(s.Alerts, [2]string{name, spans(firings[name])})
		}
	}
	for _, inv := range r.Invariants() {
		s.Rows = append(s.Rows, invariantRow{inv, inv.Asked && inv.Violations == 0, sentences[number(inv.ID)]})
	}
	s.Counts = []countsOf{
		tableOf("What was broken", grouped(r.Faults)),
		tableOf("What people did at Stripe", r.People),
		tableOf("Stripe, by kind", only(r.Faults, "stripe_")),
		tableOf("Webhooks, by kind", only(r.Faults, "webhook_")),
		tableOf("Links", only(r.Faults, "tcp_")),
		tableOf("Commits cut off before the server read them", only(r.Faults, commitBefore)),
		tableOf("Commits whose answer was swallowed", only(r.Faults, commitAfter)),
		tableOf("Batches of several rows cut off before the server read them", only(r.Faults, batchBefore)),
		tableOf("Batches of several rows whose answer was swallowed", only(r.Faults, batchAfter)),
		tableOf("Responses by outcome", r.Outcomes),
		tableOf("Duplicates that had no effect", map[string]int{
			"replayed by Stripe": r.Suppressed.AtStripe, "replayed by the API": r.Suppressed.Replays,
			"dropped by an inbox":   r.Suppressed.Inbox,
			"dropped by the broker": r.Suppressed.Broker, "writes refused by the fence": r.Fenced,
			"commits read back": r.InDoubt.ReadBack,
		}),
		tableOf("Orders by the clock of their process", r.Clocks),
	}
	return pageTemplate.Execute(w, s)
}

func tableOf(title string, of map[string]int) countsOf {
	c := countsOf{Title: title, Of: of}
	for name := range of {
		c.Names = append(c.Names, name)
	}
	slices.SortFunc(c.Names, func(a, b string) int {
		if d := of[b] - of[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return c
}

func only(m map[string]int, prefix string) map[string]int {
	some := map[string]int{}
	for name, n := range m {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			some[strings.ReplaceAll(rest, "_", " ")] = n
		}
	}
	return some
}

// number3 writes 12345 as 12 345.
func number3(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func seconds3(ms float64) string {
	return (time.Duration(ms) * time.Millisecond).Round(10 * time.Millisecond).String()
}

// lanes is the timeline.
func (r Report) lanes() plot.Lanes {
	p := plot.Lanes{Title: "What was broken, and when", X: "seconds", Until: float64(len(r.Seconds))}
	for i := range r.Processes {
		p.Names = append(p.Names, fmt.Sprintf("api-%d", i+1))
	}
	p.Names = append(p.Names, "PostgreSQL", "broker")
	for _, k := range laneKinds {
		p.Kinds = append(p.Kinds, k.name)
	}
	for _, f := range r.Timeline {
		for _, k := range laneKinds {
			for kind := range strings.FieldsSeq(k.kinds) {
				if strings.HasPrefix(f.Kind, kind) {
					p.Spans = append(p.Spans, plot.Span{Lane: f.Lane, Kind: k.name, From: f.From, Until: f.Until})
				}
			}
		}
	}
	if r.Island.Seconds > 0 {
		p.Shades = []plot.Shade{{Name: r.Island.Node + " cut off", From: r.Island.From,
			Until: r.Island.From + r.Island.Seconds}}
	}
	return p
}

func (r Report) outcomes() plot.Lines {
	p := plot.Lines{Title: "Responses by outcome", X: "seconds", Y: "requests per second"}
	for _, o := range []history.Outcome{history.Final, history.InProgress, history.Unknown, history.Away} {
		s := plot.Series{Name: o.String()}
		for _, second := range r.Seconds {
			s.X, s.Y = append(s.X, second.At), append(s.Y, float64(second.Outcomes[o.String()]))
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func (r Report) latencies() plot.Lines {
	median, p99 := plot.Series{Name: "median"}, plot.Series{Name: "p99"}
	for _, second := range r.Seconds {
		median.X, median.Y = append(median.X, second.At), append(median.Y, second.Median)
		p99.X, p99.Y = append(p99.X, second.At), append(p99.Y, second.P99)
	}
	return plot.Lines{Title: "How long a final answer took", X: "seconds", Y: "milliseconds", Log: true,
		Series: []plot.Series{median, p99}}
}

func (r Report) underWay() plot.Lines {
	keys, events, webhooks := plot.Series{Name: "unfinished keys"}, plot.Series{Name: "unpublished events"},
		plot.Series{Name: "unapplied webhooks"}
	for _, s := range r.Samples {
		for series, v := range map[*plot.Series]float64{&keys: s.Unfinished, &events: s.Unpublished,
			&webhooks: s.Unapplied} {
			if v < 0 {
				v = math.NaN()
			}
			series.X, series.Y = append(series.X, s.At), append(series.Y, v)
		}
	}
	return plot.Lines{Title: "What was under way (a gap: PostgreSQL was away)", X: "seconds", Y: "rows",
		Series: []plot.Series{keys, events, webhooks}}
}

// finals is which share of the keys that a killed process held was final how soon.
func (r Report) finals() plot.Lines {
	s := plot.Series{Name: fmt.Sprintf("%d keys that a killed process held", r.ToFinal.Count)}
	for i, ms := range slices.Sorted(slices.Values(r.afterKills())) {
		s.X, s.Y = append(s.X, ms/1000), append(s.Y, 100*float64(i+1)/float64(len(r.Finals)))
	}
	return plot.Lines{Title: "Final so long after the kill", X: "seconds", Y: "percent of keys",
		Series: []plot.Series{s}}
}
