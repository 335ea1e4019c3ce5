package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run: summary.json as it stands, and the source of the
// text and the page.
type report struct {
	OK       bool              `json:"ok"`
	Run      string            `json:"run"`
	Scenario string            `json:"scenario"`
	System   string            `json:"system"`
	K6       string            `json:"k6"`
	Began    time.Time         `json:"began"`
	Seconds  float64           `json:"seconds"` // the witnesses at the end included
	Settings map[string]string `json:"settings"`

	Requests    int              `json:"requests"` // of clients; what the witnesses were asked is not load
	RequestRate float64          `json:"requests_per_second"`
	Payments    float64          `json:"orders_paid_per_second"`
	Latency     []latency        `json:"latency"` // by request
	Settled     latency          `json:"payment_settled"`
	Answers     map[string]int   `json:"answers"`
	Dropped     int              `json:"dropped_iterations"` // customers for whom no client was free
	Duplicates  duplicates       `json:"duplicates"`
	Charges     map[string]tally `json:"charges"` // "per_key", "per_order"

	Thresholds []threshold `json:"thresholds"`
	Growth     []growth    `json:"growth,omitempty"` // of a soak
	Invariants struct {
		Asked      int      `json:"asked"` // 0: no DATABASE_URL
		Violations []string `json:"violations"`
	} `json:"invariants"`
	Said []string `json:"said"` // what the clients and the witnesses complained of

	summary        k6Summary
	thresholdsHeld bool // as k6's exit status has it
	seconds        []second
}

// latency is how long something took, in milliseconds.
type latency struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// duplicates are requests whose key had been sent before. Suppressed are those
// that were answered, and executed nothing.
type duplicates struct {
	Sent       int `json:"sent"`
	Suppressed int `json:"suppressed"`
	Replayed   int `json:"replayed"`
	InFlight   int `json:"in_flight"`
}

// tally is how many keys, or orders, were charged so often.
type tally map[int]int

type threshold struct {
	Metric     string `json:"metric"`
	Expression string `json:"expression"`
	OK         bool   `json:"ok"`
}

// answerMetrics are the kinds of answers, in the order in which they are shown.
var answerMetrics = []struct{ metric, name string }{
	{"answers_executed", "executed"},
	{"answers_replayed", "replayed"},
	{"answers_in_flight", "in progress (409)"},
	{"answers_processing", "processing (202)"},
	{"answers_refused", "refused"},
	{"answers_unavailable", "overloaded (429, 503)"},
	{"answers_none", "no response"},
	{"answers_unexpected", "unexpected"},
}

// conclude computes the report from what was read.
func (r *report) conclude() error {
	count := func(metric string) int { return int(r.summary.Metrics[metric].Values["count"]) }
	r.Seconds = r.summary.State.TestRunDurationMS / 1000
	r.Answers = map[string]int{}
	for _, a := range answerMetrics {
		r.Answers[a.name] = count(a.metric)
	}
	r.Dropped = count("dropped_iterations")
	replayed, inFlight := count("answers_replayed"), count("answers_in_flight")
	r.Duplicates = duplicates{Sent: count("duplicates_sent"), Suppressed: replayed + inFlight, Replayed: replayed,
		InFlight: inFlight}
	for name, m := range r.summary.Metrics {
		for expression, t := range m.Thresholds {
			r.Thresholds = append(r.Thresholds, threshold{name, expression, t.OK})
		}
	}
	slices.SortFunc(r.Thresholds, func(a, b threshold) int {
		return strings.Compare(a.Metric+a.Expression, b.Metric+b.Expression)
	})
	all := !slices.ContainsFunc(r.Thresholds, func(t threshold) bool { return !t.OK })
	if all != r.thresholdsHeld {
		return errors.New("k6's exit status and its summary do not agree about the thresholds")
	}
	if len(r.Thresholds) == 0 {
		return errors.New("the scenario has no thresholds, so it could not fail")
	}
	r.OK = all
	return nil
}

// invariants notes what the database says.
func (r *report) invariants(asked int, violations []string) {
	r.Invariants.Asked, r.Invariants.Violations = asked, violations
	r.OK = r.OK && len(violations) == 0
}

// second is what happened in one second of the run, or in a longer slice of a
// long one.
type second struct {
	at        float64
	durations []float64 // of writes
	answers   map[string]float64
}

// sample is a line of k6's samples.
type sample struct {
	Metric string
	Data   struct {
		Time  time.Time
		Value float64
		Tags  map[string]string
	}
}

const slicesMax = 300 // of time in a plot; a longer run has longer slices

// readSamples reads what k6 measured, line by line: there may be millions.
func (r *report) readSamples(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("k6 wrote no samples: %w", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("k6's samples: %w", err)
	}
	length := r.summary.State.TestRunDurationMS / 1000
	slice := max(1, length/slicesMax)
	byName, settled, bySlice := map[string][]float64{}, []float64{}, map[int]*second{}
	var first, last time.Time
	r.Charges = map[string]tally{"per_key": {}, "per_order": {}}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(`"type":"Point"`)) || !wanted(lines.Bytes()) {
			continue
		}
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("k6's samples: %w", err)
		}
		switch s.Metric {
		case "charges_per_key":
			r.Charges["per_key"][int(s.Data.Value)]++
			continue
		case "charges_per_order":
			r.Charges["per_order"][int(s.Data.Value)]++
			continue
		case "payment_settled":
			settled = append(settled, s.Data.Value)
			continue
		}
		if kind := s.Data.Tags["kind"]; s.Metric == "http_req_duration" && kind != "write" && kind != "read" {
			continue // a witness
		}
		if first.IsZero() {
			first = s.Data.Time
		}
		at := int(s.Data.Time.Sub(first).Seconds() / slice)
		b := bySlice[at]
		if b == nil {
			b = &second{at: float64(at) * slice, answers: map[string]float64{}}
			bySlice[at] = b
		}
		if s.Metric != "http_req_duration" {
			b.answers[s.Metric] += s.Data.Value / slice
			continue
		}
		if s.Data.Time.After(last) {
			last = s.Data.Time
		}
		r.Requests++
		byName[s.Data.Tags["name"]] = append(byName[s.Data.Tags["name"]], s.Data.Value)
		if s.Data.Tags["kind"] == "write" {
			b.durations = append(b.durations, s.Data.Value)
		}
	}
	if err := errors.Join(lines.Err(), z.Close()); err != nil {
		return fmt.Errorf("k6's samples: %w", err)
	}
	under := max(last.Sub(first).Seconds(), 1)
	r.RequestRate, r.Payments = float64(r.Requests)/under, float64(r.Charges["per_order"].sum())/under
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		r.Latency = append(r.Latency, measure(name, byName[name]))
	}
	r.Settled = measure("payment, until the final response", settled)
	for _, at := range slices.Sorted(maps.Keys(bySlice)) {
		r.seconds = append(r.seconds, *bySlice[at])
	}
	return nil
}

// wanted looks at a line before it is parsed: most are of metrics that are not drawn.
func wanted(line []byte) bool {
	for _, metric := range []string{"http_req_duration", "charges_per_", "payment_settled", "answers_"} {
		if bytes.Contains(line, []byte(`"metric":"`+metric)) {
			return true
		}
	}
	return false
}

func measure(name string, values []float64) latency {
	slices.Sort(values)
	return latency{name, len(values), percentile(values, 50), percentile(values, 95), percentile(values, 99),
		percentile(values, 100)}
}

// percentile is the smallest value that p percent do not exceed; 0 of nothing.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// saidMax is enough to see what is wrong.
const saidMax = 30

func (r *report) readConsole(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("k6's console: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if _, text, found := strings.Cut(strings.TrimSpace(line), `msg=`); found {
			line = strings.Trim(strings.TrimSuffix(text, " source=console"), `"`)
		}
		if len(r.Said) == saidMax {
			r.Said = append(r.Said, "and more")
			break
		}
		r.Said = append(r.Said, strings.TrimSpace(line))
	}
	return nil
}

// write leaves the report in a folder, in three forms.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	asJSON, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var text, page bytes.Buffer
	r.print(&text)
	if err := r.page(&page); err != nil {
		return err
	}
	for name, b := range map[string][]byte{"summary.json": append(asJSON, '\n'), "summary.txt": text.Bytes(),
		"report.html": page.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// print says it in text.
func (r *report) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%s, run %s: %d requests, %.0f per second; %.0f orders paid per second\n\n", r.Scenario,
		r.Run, r.Requests, r.RequestRate, r.Payments)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "latency, ms\tcount\tp50\tp95\tp99\tmax\t ")
	for _, l := range append(slices.Clone(r.Latency), r.Settled) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t \n", l.Name, l.Count, l.P50, l.P95, l.P99, l.Max)
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(w)
	var answers []string
	for _, a := range answerMetrics {
		if n := r.Answers[a.name]; n > 0 {
			answers = append(answers, fmt.Sprintf("%d %s", n, a.name))
		}
	}
	_, _ = fmt.Fprintf(w, "responses   %s\n", strings.Join(answers, ", "))
	if r.Dropped > 0 {
		_, _ = fmt.Fprintf(w, "dropped     %d customers came when no client was free\n", r.Dropped)
	}
	_, _ = fmt.Fprintf(w, "duplicates  %d sent, %d suppressed: %d replayed, %d in progress\n", r.Duplicates.Sent,
		r.Duplicates.Suppressed, r.Duplicates.Replayed, r.Duplicates.InFlight)
	_, _ = fmt.Fprintf(w, "charges     per key %s; per order %s\n", r.Charges["per_key"], r.Charges["per_order"])
	if r.Invariants.Asked > 0 {
		_, _ = fmt.Fprintf(w, "invariants  %d checked in the database, %d rows violate one\n", r.Invariants.Asked,
			len(r.Invariants.Violations))
	} else {
		_, _ = fmt.Fprintln(w, "invariants  not checked: DATABASE_URL is not set")
	}
	for _, g := range r.Growth {
		_, _ = fmt.Fprintf(w, "growth      %s\n", g)
	}
	for _, line := range r.complaints() {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
	verdict := fmt.Sprintf("all %d thresholds held", len(r.Thresholds))
	if !r.OK {
		verdict = "FAILED"
	}
	_, _ = fmt.Fprintf(w, "\n%s. %.1f s\n", verdict, r.Seconds)
}

// complaints is everything that needs attention.
func (r *report) complaints() (list []string) {
	for _, t := range r.Thresholds {
		if !t.OK {
			list = append(list, fmt.Sprintf("BROKEN: %s: %s", t.Metric, t.Expression))
		}
	}
	for _, g := range r.Growth {
		if !g.OK {
			list = append(list, fmt.Sprintf("GROWS: %s", g))
		}
	}
	return append(append(list, r.Said...), r.Invariants.Violations...)
}

func (t tally) sum() (n int) {
	for _, orders := range t {
		n += orders
	}
	return n
}

// String is like "1 × 240", and with more than one count "1 × 239, 2 × 1".
func (t tally) String() string {
	var list []string
	for _, n := range slices.Sorted(maps.Keys(t)) {
		list = append(list, fmt.Sprintf("%d × %d", n, t[n]))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
