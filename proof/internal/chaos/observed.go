package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/plot"
	"example.com/payonce/proof/internal/prometheus"
)

// Observed is what a real Prometheus with our rules saw of the run.
type Observed struct {
	Firings []Firing        `json:"firings"`
	Seen    prometheus.Seen `json:"seen"`
}

// Firing is a time of the run, in seconds, in which an alert fired.
type Firing struct {
	Alert string  `json:"alert"`
	From  float64 `json:"from"`
	Until float64 `json:"until"`
	Gone  bool    `json:"gone"`
}

const (
	// for alerts: a minute of chaos is an hour of production to them, and ten seconds to forget in
	quietWithin = time.Minute
	// looks in a row, a second apart: the checks have just sent requests, which are not scraped yet
	calmFor     = 5
	goneAtLeast = 8 // alerts that fired and went, in a run that is watched
)

// These alerts fire and go in every run that is watched: because of deadlines, of a capture that is hopeless, and of the
// disputes that people open.
var (
	expected           = []string{"PayonceAuthorizationExpiring", "PayonceCaptureInDoubt"}
	expectedOfDisputes = []string{"PayonceDisputesNeedResponse", "PayonceDisputeDueSoon", "PayonceDisputeDueNow"}
)

// startPrometheus has one scrape every node, if the run is to be watched.
func (w *world) startPrometheus(ctx context.Context, c Config) (err error) {
	if !c.Prometheus {
		return nil
	}
	var targets []string
	for _, n := range w.nodes {
		targets = append(targets, n.admin)
	}
	w.prometheus, err = prometheus.Start(ctx,
		prometheus.Options{Dir: w.dir, Group: w.group, Log: w.log, Targets: targets})
	return err
}

// observe waits until no alert fires any more and the gauges of quiet times have
// been read, and keeps what Prometheus saw.
func (r *run) observe(ctx context.Context) error {
	p := r.world.prometheus
	if p == nil {
		return nil
	}
	r.Log("waiting until no alert fires")
	var seen prometheus.Seen
	calm := 0
	for deadline := time.Now().Add(quietWithin); time.Now().Before(deadline); rest(ctx, time.Second) {
		quiet, err := p.Calm(ctx)
		if err != nil {
			return err
		}
		if calm++; !quiet {
			calm = 0
		}
		if calm < calmFor {
			continue
		}
		if seen, err = p.Seen(ctx); err != nil {
			return err
		}
		if len(seen.Blind) == 0 {
			break
		}
	}
	if calm < calmFor {
		var err error
		if seen, err = p.Seen(ctx); err != nil {
			return err
		}
	}
	list, err := p.Firings(ctx)
	if err != nil {
		return err
	}
	r.report.Observed = &Observed{Seen: seen}
	for _, f := range list {
		r.report.Observed.Firings = append(r.report.Observed.Firings,
			Firing{f.Alert, f.From.Sub(r.report.Began).Seconds(), f.Until.Sub(r.report.Began).Seconds(), f.Gone})
	}
	return nil
}

// byAlert is when each alert fired, by its name, and the names in order.
func (o *Observed) byAlert() (names []string, firings map[string][]Firing) {
	firings = map[string][]Firing{}
	if o != nil {
		for _, f := range o.Firings {
			firings[f.Alert] = append(firings[f.Alert], f)
		}
	}
	return slices.Sorted(maps.Keys(firings)), firings
}

// stillFiring are alerts that fire although everything is quiet: the rule does
// not see that it is over, or it is not.
func (o *Observed) stillFiring() (list []string) {
	if o != nil {
		for _, f := range o.Firings {
			if !f.Gone {
				list = append(list,
					fmt.Sprintf("%s has fired since %.0f s, and everything was quiet for %s", f.Alert, f.From,
						quietWithin))
			}
		}
	}
	return list
}

// went lists the alerts that fired and are gone.
func (o *Observed) went() []string {
	names, firings := o.byAlert()
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(firings[name], func(f Firing) bool { return !f.Gone })
	})
}

// spans says when an alert fired: "3-9 s, from 41 s".
func spans(firings []Firing) string {
	var parts []string
	for _, f := range firings {
		if f.Gone {
			parts = append(parts, fmt.Sprintf("%.0f-%.0f s", f.From, f.Until))
		} else {
			parts = append(parts, fmt.Sprintf("from %.0f s", f.From))
		}
	}
	return strings.Join(parts, ", ")
}

// alerts is the timeline of the alerts, to be held against that of the faults.
func (r Report) alerts() plot.Lanes {
	names, firings := r.Observed.byAlert()
	p := plot.Lanes{Title: "Which alerts fired, and when (rules evaluated sixty times as fast as in production)",
		X: "seconds", Kinds: []string{"fires"}, Until: float64(len(r.Seconds))}
	for _, name := range names {
		lane := strings.TrimPrefix(name, "Payonce")
		p.Names = append(p.Names, lane)
		for _, f := range firings[name] {
			p.Spans = append(p.Spans, plot.Span{Lane: lane, Kind: "fires", From: f.From, Until: f.Until})
			p.Until = max(p.Until, f.Until)
		}
	}
	return p
}
