package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"time"
)

// Config of a run.
type Config struct {
	Duration  time.Duration
	Seed      uint64
	Processes int
	Clients   int
	Tenants   int
	Log       func(format string, args ...any)
}

// Report is what a run found. It is also the JSON that is kept.
type Report struct {
	Seed       uint64             `json:"seed"`
	Duration   string             `json:"duration"`
	Operations int                `json:"operations"`
	Outcomes   map[string]int     `json:"outcomes"`
	Keys       int                `json:"keys"`
	Charges    int                `json:"charges"`
	Checkouts  int                `json:"checkouts"`
	Refunds    int                `json:"refunds"`
	Faults     map[string]int     `json:"faults"`
	AtStripe   map[string]int     `json:"faults_at_stripe"`
	Suppressed map[string]float64 `json:"suppressed"`
	TakenOver  int                `json:"leases_taken_over"`
	QuietTook  string             `json:"time_to_quiet"`
	ToFinal    Spread             `json:"time_to_final_after_takeover"`
	Judged     int                `json:"history_judged"`
	Replays    int                `json:"replays_compared"`
	Violations []string           `json:"violations"`
	Missing    []string           `json:"injected_too_little"`
}

// Spread of a time, in milliseconds.
type Spread struct {
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
}

// OK reports whether the run proves something and found nothing.
func (r Report) OK() bool { return len(r.Violations) == 0 && len(r.Missing) == 0 }

// Run does a whole run. An error means that it could not be carried out; what it
// found is in the report.
func Run(ctx context.Context, c Config) (Report, error) {
	w, err := start(ctx, c)
	if err != nil {
		return Report{}, err
	}
	defer w.stop()
	h := newHistory()
	t, n := newTraffic(w, h), newNemesis(w, c.Seed)
	if err := w.webhooks(); err != nil {
		return Report{}, err
	}
	if err := t.stockUp(ctx); err != nil {
		return Report{}, err
	}
	n.atStripe(c.Seed)

	c.Log("seed=%d: %d processes, %d clients, %s of faults", c.Seed, c.Processes, c.Clients, c.Duration)
	faults, stop := context.WithTimeout(ctx, c.Duration)
	defer stop()
	suppressed := map[string]float64{}
	var all sync.WaitGroup
	var broken error
	all.Go(func() { broken = n.run(faults) })
	all.Go(func() { t.run(faults, c.Clients, c.Seed) })
	all.Wait()
	if broken != nil {
		return Report{}, fmt.Errorf("inject faults: %w", broken)
	}
	r := Report{Seed: c.Seed, Duration: c.Duration.String(), Faults: n.count, AtStripe: n.atProvider, Suppressed: suppressed, Outcomes: map[string]int{}}
	if err := w.ready(ctx, 20*time.Second); err != nil {
		return r, err
	}
	c.Log("faults: %s", counts(r.Faults))
	c.Log("at Stripe: %s", counts(r.AtStripe))

	took, err := w.quiet(ctx, lease+15*time.Second)
	r.QuietTook = took.Round(time.Millisecond).String()
	if err != nil {
		r.Violations = append(r.Violations, "I5 "+err.Error())
	}
	c.Log("quiet after %s", r.QuietTook)
	found, err := t.judge(ctx, 15*time.Second)
	if err != nil {
		return r, err
	}
	r.Violations = append(r.Violations, found...)
	replays, found := t.replayAll(ctx, rand.New(rand.NewPCG(c.Seed, 2)))
	r.Replays, r.Violations = replays, append(r.Violations, found...)
	r.Judged, found = h.judge(60 * time.Second)
	r.Violations = append(r.Violations, found...)
	w.counters(ctx, suppressed)
	return r, t.sum(ctx, &r, c)
}

// webhooks delivers every event of Stripe's to every process, at the same time
// and in no order: three deliveries of each, of which one counts.
func (w *world) webhooks() error {
	w.sim.SetWebhookRetry(200 * time.Millisecond)
	for _, p := range w.apis {
		if _, err := w.sim.AddWebhookEndpoint("sk_test_chaos", "http://"+p.addr+"/v1/webhooks/stripe", webhookSecret); err != nil {
			return err
		}
	}
	return nil
}

// sum fills in the figures and holds them against the minimums.
func (t *traffic) sum(ctx context.Context, r *Report, c Config) error {
	keys := map[ack]bool{}
	for _, op := range t.history.list {
		r.Outcomes[outcomeNames[op.outcome]]++
		keys[ack{op.tenant, op.key}] = true
	}
	r.Operations, r.Keys = len(t.history.list), len(keys)
	for _, e := range t.world.sim.Effects() {
		switch e.Kind {
		case "charge":
			r.Charges++
		case "refund":
			r.Refunds++
		}
	}
	kept := map[string]float64{}
	for name, v := range r.Suppressed {
		for _, want := range []string{"payonce_fenced_writes_total", "payonce_commits_in_doubt_total", `result="replay"`, "payonce_inbox_"} {
			if strings.Contains(name, want) && v > 0 {
				kept[name] = v
			}
		}
	}
	r.Suppressed = kept
	raw := t.world.pool.Raw()
	if err := raw.QueryRow(ctx, `SELECT coalesce(sum(deaths), 0) FROM idempotency_keys`).Scan(&r.TakenOver); err != nil {
		return err
	}
	if err := raw.QueryRow(ctx, `SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), 0)
		FROM (SELECT extract(epoch FROM finished_at - created_at) * 1000 AS ms FROM idempotency_keys WHERE deaths > 0 AND finished_at IS NOT NULL) x`).Scan(&r.ToFinal.Median, &r.ToFinal.P99); err != nil {
		return err
	}
	if err := raw.QueryRow(ctx, `SELECT count(*) FROM checkouts`).Scan(&r.Checkouts); err != nil {
		return err
	}
	r.Missing = t.missing(*r, c)
	return nil
}

// missing is what the run injected too little of: vacuous green is red. The
// minimums are for a minute and shrink with a shorter run.
func (t *traffic) missing(r Report, c Config) (list []string) {
	share := c.Duration.Minutes()
	for _, m := range []struct {
		what string
		got  int
		want float64
	}{
		{"kill -9", r.Faults["kill9"], 30 * share},
		{"pauses", r.Faults["pause"], 15 * share},
		{"restarts of PostgreSQL", r.Faults["pg_immediate"], 3 * share},
		{"SIGTERM", r.Faults["sigterm"], 3 * share},
		{"leases taken over", r.TakenOver, 50 * share},
		{"unknown answers, in tenths of a percent", r.Outcomes["unknown"] * 1000 / max(1, r.Operations), 10},
		{"final answers, in percent", r.Outcomes["final"] * 100 / max(1, r.Operations), 40},
		{"charges", r.Charges, 200 * share},
		{"refunds", r.Refunds, 10 * share},
		{"checkouts", r.Checkouts, 20 * share},
		{"calls that failed at Stripe", total(r.AtStripe), 30 * share},
	} {
		if float64(m.got) < m.want {
			list = append(list, fmt.Sprintf("%s: %d, at least %.0f", m.what, m.got, m.want))
		}
	}
	return list
}

var outcomeNames = map[outcome]string{unknown: "unknown", finalAnswer: "final", inProgress: "in_progress", mismatch: "mismatch", refused: "refused", away: "unavailable"}

// Print writes the report for a person.
func (r Report) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "seed=%d dur=%s ops=%d keys=%d  %s\n", r.Seed, r.Duration, r.Operations, r.Keys, counts(r.Outcomes))
	_, _ = fmt.Fprintf(w, "charges=%d refunds=%d checkouts=%d  leases taken over=%d  time to final after a takeover: median %.0f ms, p99 %.0f ms\n", r.Charges, r.Refunds, r.Checkouts, r.TakenOver, r.ToFinal.Median, r.ToFinal.P99)
	_, _ = fmt.Fprintf(w, "faults: %s\n        at Stripe: %s\n", counts(r.Faults), counts(r.AtStripe))
	_, _ = fmt.Fprintf(w, "history: %d operations judged, %d replays compared byte for byte, quiet after %s\n", r.Judged, r.Replays, r.QuietTook)
	for _, v := range r.Violations[:min(len(r.Violations), 20)] {
		_, _ = fmt.Fprintf(w, "VIOLATION %s\n", v)
	}
	for _, m := range r.Missing {
		_, _ = fmt.Fprintf(w, "TOO LITTLE %s\n", m)
	}
	_, _ = fmt.Fprintf(w, "violations=%d\n", len(r.Violations))
}

func counts(m map[string]int) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, fmt.Sprintf("%s=%d", name, n))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
