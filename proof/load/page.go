package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"example.com/payonce/proof/internal/plot"
)

//go:embed report.html
var pageSource string

var pageTemplate = template.Must(template.New("report").Parse(pageSource))

// page says it as one HTML file, with pictures.
func (r *report) page(w io.Writer) error {
	return pageTemplate.Execute(w, map[string]any{
		"R": r, "Plots": append([]template.HTML{r.latencyPlot(), r.answersPlot(), r.durationsPlot(), r.duplicatesPlot(),
			r.chargesPlot()}, r.growthPlots()...),
		"Latencies": append(slices.Clone(r.Latency), r.Settled), "Complaints": r.complaints(),
		"Shows":    showsOf(r.Scenario),
		"Settings": r.settings(), "PerKey": r.Charges["per_key"].String(), "PerOrder": r.Charges["per_order"].String(),
	})
}

// settings as they are typed.
func (r *report) settings() string {
	list := []string{"SCENARIO=" + r.Scenario}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		list = append(list, name+"="+r.Settings[name])
	}
	return strings.Join(list, " ")
}

func showsOf(name string) string {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	return scenarios[max(i, 0)].shows
}

func (r *report) latencyPlot() template.HTML {
	p := plot.Lines{Title: "Latency of writes, second by second", X: "seconds", Y: "ms", Log: true}
	for _, percent := range []int{50, 95, 99} {
		line := plot.Series{Name: fmt.Sprintf("p%d", percent)}
		for _, s := range r.seconds {
			v := math.NaN()
			if len(s.durations) > 0 {
				slices.Sort(s.durations)
				v = percentile(s.durations, percent)
			}
			line.X, line.Y = append(line.X, s.at), append(line.Y, v)
		}
		p.Series = append(p.Series, line)
	}
	return p.SVG()
}

func (r *report) answersPlot() template.HTML {
	p := plot.Lines{Title: "Responses per second, by kind", X: "seconds", Y: "responses/s"}
	for _, a := range answerMetrics {
		if r.Answers[a.name] == 0 {
			continue
		}
		line := plot.Series{Name: a.name}
		for _, s := range r.whole() {
			line.X, line.Y = append(line.X, s.at), append(line.Y, s.answers[a.metric])
		}
		p.Series = append(p.Series, line)
	}
	return p.SVG()
}

// whole is the seconds without the last, of which there is only a part: a rate in
// it would be lower than any.
func (r *report) whole() []second {
	return r.seconds[:max(len(r.seconds)-1, min(len(r.seconds), 1))]
}

// durationsPlot compares the requests: p95 of each.
func (r *report) durationsPlot() template.HTML {
	p := plot.Bars{Title: "p95 by request, ms"}
	for _, l := range r.Latency {
		p.Bars = append(p.Bars, plot.Bar{Name: l.Name, Value: math.Round(l.P95*10) / 10})
	}
	return p.SVG()
}

func (r *report) duplicatesPlot() template.HTML {
	return plot.Bars{Title: "Duplicates", Bars: []plot.Bar{
		{Name: "sent", Value: float64(r.Duplicates.Sent)},
		{Name: "replayed, byte for byte", Value: float64(r.Duplicates.Replayed)},
		{Name: "in progress (409)", Value: float64(r.Duplicates.InFlight)},
		{Name: "executed a second time", Value: r.summary.Metrics["keys_executed_twice"].Values["count"], Wrong: true},
	}}.SVG()
}

func (r *report) chargesPlot() template.HTML {
	p := plot.Bars{Title: "Charges at Stripe, per key that should have taken money"}
	per := r.Charges["per_key"]
	for _, n := range []int{0, 1, 2} { // always shown: that there are none is the point
		name := []string{"never charged", "charged once", "charged twice"}[n]
		p.Bars = append(p.Bars, plot.Bar{Name: name, Value: float64(per[n]), Wrong: n != 1})
	}
	for _, n := range slices.Sorted(maps.Keys(per)) {
		if n > 2 {
			p.Bars = append(p.Bars,
				plot.Bar{Name: fmt.Sprintf("charged %d times", n), Value: float64(per[n]), Wrong: true})
		}
	}
	return p.SVG()
}
