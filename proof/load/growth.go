package main

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/proof/internal/plot"
)

// growing is the scenario in which what grows is watched. It needs a system of our own: the memory is that of its
// processes, and they keep responses for a short time, so that as many expire as are stored.
const growing = "soak"

const (
	watchedFrom   = 5 * time.Minute // a shorter run says nothing of growth
	watchedTimes  = 240             // in a run
	retentions    = 8               // likewise: what the first eighth stores is dropped before the second quarter
	shortestKeeps = 20 * time.Second

	// How many times the second quarter's median the last one's may be.
	memoryMay = 1.15 // a heap is now nearer to its next collection, now farther
	storedMay = 1.25
	bloatMay  = 1.10
	// Tables that are never vacuumed grow with the payments and not faster, which a ratio does not show. An hour of ten
	// customers a second ended at 8 900 bytes a payment. In a short run what every table has to begin with is more.
	bloatMost     = 11_000
	bloatMostFrom = 30 * time.Minute
	slowerMay     = 1.50 // p95 of the writes of a short while, which one stall of the disk moves

	tablesGrow = "idempotency_keys, payments, outbox_events, inbox_events"
)

// retention is how long the service keeps responses in a run that lasts so long.
func retention(length time.Duration) time.Duration {
	return max(shortestKeeps, (length / retentions).Truncate(time.Second))
}

// watched is how long what grows is watched; zero: it is not.
func (o options) watched() time.Duration {
	length, err := time.ParseDuration(o.script["DURATION"])
	if o.scenario != growing || o.apiURL != "" || err != nil || length < watchedFrom {
		return 0
	}
	return length
}

// growth is what grew, or did not: the second quarter of the run is compared with the last. In the first, pools and
// caches fill, and nothing has expired yet.
type growth struct {
	Name   string  `json:"name"`
	Second float64 `json:"second_quarter"` // median
	Last   float64 `json:"last_quarter"`
	May    float64 `json:"may_be_times"`
	Most   float64 `json:"at_most,omitempty"` // in the last quarter
	OK     bool    `json:"ok"`

	line plot.Series
}

// look is what was seen at one time.
type look struct {
	at     float64   // seconds since the load began
	memory []float64 // megabytes resident, by process
	stored float64   // responses that a retry would get
	bloat  float64   // bytes in tables and indexes, a payment
}

// watch looks again and again until it is stopped.
func (s *system) watch(ctx context.Context, length time.Duration) (stop func() ([]look, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		done  sync.WaitGroup
		looks []look
		err   error
	)
	began := time.Now()
	done.Go(func() {
		tick := time.NewTicker(max(time.Second, length/watchedTimes))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			var one look
			if one, err = s.look(ctx); err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				return
			}
			if one.at = time.Since(began).Seconds(); one.at <= length.Seconds() { // after that, the witnesses are asked
				looks = append(looks, one)
			}
		}
	})
	return func() ([]look, error) {
		cancel()
		done.Wait()
		return looks, err
	}
}

func (s *system) look(ctx context.Context) (l look, err error) {
	for _, p := range s.apis {
		bytes, err := p.Sample(ctx, "process_resident_memory_bytes")
		if err != nil {
			return l, fmt.Errorf("the memory of %s: %w", p.Name, err)
		}
		l.memory = append(l.memory, bytes/1e6)
	}
	err = s.pool.Raw().QueryRow(ctx, `
		SELECT (SELECT count(*) FROM idempotency_keys WHERE answer_body IS NOT NULL),
			(SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(string_to_array($1, ', ')) t)::float8
				/ greatest(1, (SELECT count(*) FROM payments))`, tablesGrow).Scan(&l.stored, &l.bloat)
	if err != nil {
		err = fmt.Errorf("look at what grows: %w", err)
	}
	return l, err
}

// grown compares the quarters of a run, and says in the report what has grown.
func (r *report) grown(looks []look, length time.Duration) error {
	if len(looks) < 8 {
		return fmt.Errorf("what grows was looked at %d times in %s", len(looks), length)
	}
	of := func(name string, may, most float64, value func(look) float64) {
		g := growth{Name: name, May: may, Most: most, line: plot.Series{Name: name}}
		for _, l := range looks {
			g.line.X, g.line.Y = append(g.line.X, l.at), append(g.line.Y, value(l))
		}
		r.Growth = append(r.Growth, g)
	}
	for i := range looks[0].memory {
		of(fmt.Sprintf("resident memory of process %d, MB", i+1), memoryMay, 0, func(l look) float64 { return l.memory[i] })
	}
	of("responses stored", storedMay, 0, func(l look) float64 { return l.stored })
	most := 0.0
	if length >= bloatMostFrom {
		most = bloatMost
	}
	of("bytes a payment in "+tablesGrow, bloatMay, most, func(l look) float64 { return l.bloat })
	slower := growth{Name: "p95 of writes, ms", May: slowerMay, line: plot.Series{Name: "p95 of writes, ms"}}
	for _, s := range r.seconds {
		if len(s.durations) > 0 {
			slower.line.X = append(slower.line.X, s.at)
			slower.line.Y = append(slower.line.Y, percentile(slices.Sorted(slices.Values(s.durations)), 95))
		}
	}
	r.Growth = append(r.Growth, slower)
	for i := range r.Growth {
		g := &r.Growth[i]
		quarter := func(n float64) float64 {
			var in []float64
			for j, at := range g.line.X {
				if at >= (n-1)/4*length.Seconds() && at < n/4*length.Seconds() {
					in = append(in, g.line.Y[j])
				}
			}
			slices.Sort(in)
			return percentile(in, 50)
		}
		g.Second, g.Last = quarter(2), quarter(4)
		g.OK = g.Second > 0 && g.Last > 0 && g.Last <= g.May*g.Second && (g.Most == 0 || g.Last <= g.Most)
		r.OK = r.OK && g.OK
	}
	return nil
}

func (g growth) String() string {
	times := 0.0
	if g.Second > 0 {
		times = g.Last / g.Second
	}
	most := ""
	if g.Most > 0 {
		most = fmt.Sprintf(", and %.0f at most", g.Most)
	}
	return fmt.Sprintf("%s: %.1f in the second quarter, %.1f in the last: %.2f times, may be %.2f%s", g.Name, g.Second, g.Last,
		times, g.May, most)
}

// growthPlots are one for each, because their units differ.
func (r *report) growthPlots() (plots []template.HTML) {
	for _, g := range r.Growth {
		plots = append(plots, plot.Lines{Title: strings.ToUpper(g.Name[:1]) + g.Name[1:], X: "seconds", Series: []plot.Series{g.line}}.SVG())
	}
	return plots
}
