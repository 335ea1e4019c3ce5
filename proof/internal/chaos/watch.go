package chaos

import (
	"bufio"
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/stripesim"
)

const (
	scrapeEvery = 250 * time.Millisecond
	sampleEvery = 500 * time.Millisecond
)

// watch reads what the processes count. They die, and their counts with them, so
// it reads often and adds up what was added: what a process counted in its last
// quarter of a second is lost, and every sum is a lower bound.
type watch struct {
	world *world
	began time.Time

	mu      sync.Mutex
	last    map[string]map[string]float64 // by node
	sums    map[string]float64
	samples []Sample
	took    map[stripesim.Delivery]bool // webhooks that were answered with 2xx
}

// Sample is how much was under way at a time of the run. NaN, which JSON cannot
// say, is -1: the database did not answer.
type Sample struct {
	At          float64 `json:"at"`
	Unfinished  float64 `json:"unfinished_keys"`
	Unpublished float64 `json:"unpublished_events"`
	Unapplied   float64 `json:"unapplied_webhooks"`
}

func newWatch(w *world, began time.Time) *watch {
	return &watch{world: w, began: began, last: map[string]map[string]float64{}, sums: map[string]float64{},
		took: map[stripesim.Delivery]bool{}}
}

// run watches until ctx ends.
func (w *watch) run(ctx context.Context) {
	var all sync.WaitGroup
	every := func(d time.Duration, do func(context.Context)) {
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				rest(ctx, d)
			}
		})
	}
	for _, n := range w.world.nodes {
		every(scrapeEvery, func(ctx context.Context) { w.scrape(ctx, n) })
	}
	every(sampleEvery, w.sample)
	every(time.Second, w.webhooks)
	all.Wait()
}

// scrape adds what a node's process has counted since it was last asked.
func (w *watch) scrape(ctx context.Context, n *node) {
	now, err := n.metrics(ctx)
	if err != nil {
		return // It is dead, or frozen.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for series, value := range now {
		before := w.last[n.name][series]
		if value < before { // another process
			before = 0
		}
		w.sums[series] += value - before
	}
	w.last[n.name] = now
}

// counted is the sum of all series of a counter whose labels have each of the texts.
func (w *watch) counted(name string, labels ...string) (sum float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sumOf(w.sums, name, labels...)
}

func sumOf(series map[string]float64, name string, labels ...string) (sum float64) {
	for s, v := range series {
		base, rest, _ := strings.Cut(s, "{")
		fits := base == name
		for _, l := range labels {
			fits = fits && strings.Contains(rest, l)
		}
		if fits {
			sum += v
		}
	}
	return sum
}

// sample asks the database what is under way.
func (w *watch) sample(ctx context.Context) {
	s := Sample{At: time.Since(w.began).Seconds(), Unfinished: -1, Unpublished: -1, Unapplied: -1}
	ctx, cancel := context.WithTimeout(ctx, sampleEvery)
	defer cancel()
	_ = w.world.pool.Raw().QueryRow(ctx,
		`SELECT (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL)::float8,
		(SELECT count(*) FROM outbox_events WHERE published_at IS NULL)::float8, (SELECT count(*) FROM inbox_events
		WHERE status = 'pending')::float8`).Scan(&s.Unfinished, &s.Unpublished, &s.Unapplied)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
}

// webhooks notes which webhooks were acknowledged: its own log of it is not long.
func (w *watch) webhooks(context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.world.sim.Deliveries() {
		if d.Status/100 == 2 {
			w.took[d] = true
		}
	}
}

// acknowledged is how often each event was answered with 2xx.
func (w *watch) acknowledged() map[string]int {
	w.webhooks(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	times := map[string]int{}
	for d := range w.took {
		times[d.EventID]++
	}
	return times
}

// metrics reads all series of a node's process.
func (n *node) metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return parseMetrics(res.Body)
}

func parseMetrics(r io.Reader) (map[string]float64, error) {
	m := map[string]float64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil && !math.IsNaN(v) {
			m[lines.Text()[:at]] = v
		}
	}
	return m, lines.Err()
}
