package main

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/plot"
)

// result is a group as it was measured, and what the page is made of.
type result struct {
	Name     string
	Says     string // what one must know of it
	How      string // when, how often, on what
	Rows     []row
	Outcomes []outcome
	Curve    *curve `json:",omitempty"`
}

type row struct {
	Name, Unit    string
	Kind          plot.Kind `json:",omitempty"`
	Rates, Ratios []float64 // ratios: of its floor, round by round
	Costs         string
	P50, P99      []float64 `json:",omitempty"` // milliseconds, round by round, where they are shown
	P999          float64   `json:",omitempty"` // of all rounds
}

type curve struct {
	Title, X, Y string
	Series      []plot.Series
}

func (g group) find(name string) *measurement {
	for _, m := range g.list {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (g group) result(b *bench) (result, error) {
	r := result{Name: g.name}
	if g.says != nil {
		r.Says = g.says()
	}
	rounds := len(g.list[0].samples)
	r.How = fmt.Sprintf("Measured %s on %s, %d processors shared by client, service and database: ",
		time.Now().UTC().Format(time.DateOnly), b.version, runtime.NumCPU())
	if rounds > 1 {
		r.How += fmt.Sprintf("medians of %d interleaved rounds of %d s", rounds, b.s.seconds)
		if !g.clients {
			r.How += fmt.Sprintf(", %d connections", b.s.connections)
		}
		r.How += "."
	} else {
		r.How += "once."
	}
	for _, m := range g.list {
		line := row{Name: m.name, Unit: m.unit, Kind: m.kind, Costs: m.costs()}
		for _, s := range m.samples {
			line.Rates = append(line.Rates, s.rate)
			if m.timed {
				line.P50, line.P99 = append(line.P50, millis(s.p50)), append(line.P99, millis(s.p99))
			}
		}
		if m.late {
			line.P999 = millis(m.p999())
		}
		if m.floor != "" {
			ratios, err := g.values(goal{id: m.name, what: "of its floor", of: ratio(m.name, m.floor)})
			if err != nil {
				return r, err
			}
			line.Ratios = ratios
		}
		r.Rows = append(r.Rows, line)
	}
	for _, t := range g.goals() {
		reached, err := g.values(t)
		if err != nil {
			return r, err
		}
		if reached != nil {
			r.Outcomes = append(r.Outcomes, outcomeOf(t, reached))
		}
	}
	if g.curve != nil {
		c := g.curve()
		r.Curve = &c
	}
	return r, nil
}

// p999 is of the responses of all rounds: a round has too few.
func (m *measurement) p999() time.Duration {
	var all []time.Duration
	for _, s := range m.samples {
		all = append(all, s.times...)
	}
	slices.Sort(all)
	return quantile(all, 0.999)
}

// costs are the median costs of one operation, in words.
func (m *measurement) costs() string {
	var cpu, load, wal, p50, p99 []float64
	var note string
	for _, s := range m.samples {
		cpu, load = append(cpu, float64(s.cpu.Microseconds())), append(load, float64(s.load.Microseconds()))
		wal, p50, p99 = append(wal, s.wal), append(p50, millis(s.p50)), append(p99, millis(s.p99))
		note = s.note
	}
	var parts []string
	if m.timed {
		parts = append(parts, fmt.Sprintf("median %.1f ms, p99 %.1f ms", median(p50), median(p99)))
	}
	if m.late {
		parts = append(parts, fmt.Sprintf("p99.9 %.1f ms", millis(m.p999())))
	}
	if c := median(cpu); c > 0 {
		parts = append(parts, fmt.Sprintf("%.0f µs CPU (service), %.0f µs CPU (client)", c, median(load)))
	}
	if w := median(wal); w >= 0 && median(cpu) > 0 {
		parts = append(parts, fmt.Sprintf("%.0f bytes of WAL", w))
	}
	if note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, ", ")
}

func (r result) print() {
	fmt.Printf("\n  %-56s %10s %21s %9s  %s\n", "median of the rounds", "per second", "range", "of floor", "each")
	for _, m := range r.Rows {
		of := ""
		if m.Ratios != nil {
			of = fmt.Sprintf("%.2f", median(m.Ratios))
		}
		fmt.Printf("  %-56s %10.0f %10.0f – %-8.0f %9s  %s\n", m.Name, median(m.Rates), slices.Min(m.Rates),
			slices.Max(m.Rates), of, m.Costs)
	}
	for _, o := range r.Outcomes {
		fmt.Printf("  %-4s %-70s %-12s reached %-28s %s\n", o.ID, o.What, o.target(), o.reached(),
			strings.Trim(o.verdict(), "*"))
		if !o.met() && o.Reason == "" {
			fmt.Printf("       missed, and goals.go has no reason\n")
		}
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func (r result) image() string {
	return "bench-" + strings.Trim(notInNames.ReplaceAllString(strings.ToLower(r.Name), "-"), "-") + ".svg"
}

func (r result) drawn() string {
	if r.Curve != nil {
		lines := plot.Lines{Title: r.Curve.Title, X: r.Curve.X, Y: r.Curve.Y, Series: r.Curve.Series}
		return string(lines.SVG())
	}
	bars := plot.Bars{Title: r.title()}
	for _, m := range r.Rows {
		bars.Bars = append(bars.Bars, plot.Bar{Name: m.Name, Value: median(m.Rates), Kind: m.Kind})
	}
	return string(bars.SVG())
}

// title says what the bars count: "Payments per second, 256 clients".
func (r result) title() string {
	what := "Operations"
	if unit, _, found := strings.Cut(r.Rows[0].Unit, "/"); found && !slices.ContainsFunc(r.Rows,
		func(m row) bool { return m.Unit != r.Rows[0].Unit }) {
		what = strings.ToUpper(unit[:1]) + unit[1:]
	}
	return what + " per second, " + r.Name
}
