package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWrite: a run of some groups leaves what others have measured, and the words
// of the page stay as they were.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	groups := []group{{name: inWebhooks}, {name: inAgainst}}
	one := func(name, id, what string, rate, reached float64) []result {
		return []result{{Name: name, How: "Once.", Rows: []row{{Name: "rows of " + name, Rates: []float64{rate}}},
			Outcomes: []outcome{{ID: id, What: what, Want: 99, Reached: []float64{reached}},
				{ID: id, What: "no target any more", Reached: []float64{1}}}}}
	}
	webhooks := func(rate, reached float64) []result {
		return one(inWebhooks, "P10", "webhooks ÷ pgbench's insert", rate, reached)
	}
	require.NoError(t, write(dir, groups, one(inAgainst, "P12", "one client alone, median of a payment ÷ before", 20,
		1.0549)))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "| P10 | webhooks ÷ pgbench's insert | ≥ 0.90 | not measured |  |",
		"a target that was not measured is on the page")
	require.NoError(t, write(dir, groups, webhooks(10, 0.8949)))
	text, err = os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+begin+`
### Targets

| | what | target | reached | met |
| --- | --- | --- | --- | --- |
| P10 | webhooks ÷ pgbench's insert | ≥ 0.90 | 0.89 | **no** |
| P12 | one client alone, median of a payment ÷ before | ≤ 1.05 | 1.05 | yes |

Why some are missed:

- **P10, webhooks ÷ pgbench's insert:** not known yet.

### Webhooks

Once.

![webhooks](img/bench-webhooks.svg)

| what | per second | range | of its floor | cost per operation |
| --- | --- | --- | --- | --- |
| rows of webhooks | 10 | 10 – 10 |  |  |

### Another commit

Once.

![another commit](img/bench-another-commit.svg)

| what | per second | range | of its floor | cost per operation |
| --- | --- | --- | --- | --- |
| rows of another commit | 20 | 20 – 20 |  |  |

`+end+"after\n", string(text))
	require.FileExists(t, filepath.Join(dir, "img", "bench-webhooks.svg"))
	require.FileExists(t, filepath.Join(dir, "img", "bench-another-commit.svg"))

	require.NoError(t, write(dir, groups, webhooks(11, 0.95)))
	text, err = os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "| rows of webhooks | 11 |")
	require.NotContains(t, string(text), "| rows of webhooks | 10 |")
	require.NotContains(t, string(text), "Why some are missed")
	require.Contains(t, string(text), "| rows of another commit | 20 |")
}

// TestRender: what is published has every target, and a reason for each that is missed.
func TestRender(t *testing.T) {
	t.Parallel()
	render := func(t *testing.T, reached ...float64) (string, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "performance.md"), []byte(begin+end), 0o600))
		text, err := aLineEach([]result{{Name: inWebhooks, Rows: []row{{Name: "row", Rates: []float64{1}}},
			Outcomes: []outcome{{ID: "P10", What: "webhooks ÷ pgbench's insert", Reached: reached}}}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, kept), text, 0o600))
		err = render(dir, []group{{name: inWebhooks}})
		page, readErr := os.ReadFile(filepath.Join(dir, "performance.md"))
		require.NoError(t, readErr)
		return string(page), err
	}
	t.Run("Complete", func(t *testing.T) {
		t.Parallel()
		_, err := render(t, 0.91)
		require.NoError(t, err)
	})
	t.Run("NotMeasured", func(t *testing.T) {
		t.Parallel()
		page, err := render(t)
		require.EqualError(t, err, "P10, webhooks ÷ pgbench's insert: not measured")
		require.Contains(t, page, "not measured", "the page is written all the same")
	})
	t.Run("MissedWithoutAReason", func(t *testing.T) {
		t.Parallel()
		_, err := render(t, 0.5)
		require.EqualError(t, err, "P10, webhooks ÷ pgbench's insert: reached 0.50, the target is ≥ 0.90, "+
			"and goals.go has no reason why")
	})
}

func TestExplained(t *testing.T) {
	t.Parallel()
	require.NoError(t, explained([]outcome{
		{ID: "P1", Want: 1, Reached: []float64{0.5}, Reason: "known"},
		{ID: "P2", Want: 1, Reached: []float64{1}},
		{ID: "P3", Want: 1},
	}))
	err := explained([]outcome{
		{ID: "P4", What: "a", Want: 1, Reached: []float64{0.5}}, {ID: "P5", What: "b", Want: 1, Reached: []float64{0.6}},
	})
	require.ErrorContains(t, err, "P4, a: reached 0.50")
	require.ErrorContains(t, err, "P5, b: reached 0.60")
}

// TestPageOfReasons: a reason is shown only where the target is missed.
func TestPageOfReasons(t *testing.T) {
	t.Parallel()
	page := func(wal float64) string {
		return tables([]group{{name: inRequests}}, []result{{Name: inRequests,
			Rows:     []row{{Name: fresh, Rates: []float64{1}}},
			Outcomes: []outcome{{ID: "P11", What: "WAL of a payment", Reached: []float64{wal}}}}})
	}
	i := slices.IndexFunc(targets, func(t goal) bool { return t.id == "P11" })
	require.NotEmpty(t, targets[i].reason)
	require.Contains(t, page(5000), "\n- **P11, WAL of a payment:** "+targets[i].reason+"\n")
	require.NotContains(t, page(3000), targets[i].reason)
}

// TestPageBegins: the page begins with what a payment costs its user.
func TestPageBegins(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^
### What a payment costs a user

As it was measured\.

\| load \| added, median \| added, p99 \| added, p99\.9 \|
\| --- \| --- \| --- \| --- \|
\| 10 payments a second \| 4\.0 ms \| 9\.5 ms \| 20\.0 ms \|

As many as go: 1000 payments a second per core\.

### Targets
`, tables(nil, []result{{Name: inAdded, Says: "As it was measured.", Rows: []row{
		{Name: "10 payments a second", Rates: []float64{10, 10}, P50: []float64{3, 5}, P99: []float64{9, 10}, P999: 20},
		{Name: "as many as go", Unit: "payments a second per core", Rates: []float64{1000}},
	}}}))
}

func TestTargets(t *testing.T) {
	t.Parallel()
	t.Run("CanBeMeasured", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, checkTargets(targets, (&bench{}).groups()))
	})
	t.Run("OfAGroupThatIsNone", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, checkTargets([]goal{{id: "P1", what: "a", group: "gone"}}, (&bench{}).groups()),
			`P1, a: there is no group "gone"`)
	})
	t.Run("OfALineThatIsNone", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, checkTargets([]goal{{id: "P1", what: "a", group: inWebhooks, of: ratio(intake, "gone")}},
			(&bench{}).groups()), `P1, a: group "webhooks" has no line "gone"`)
	})
	t.Run("AreEachOne", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for _, g := range targets {
			require.False(t, seen[g.id+g.what], "%s, %s is there twice", g.id, g.what)
			seen[g.id+g.what] = true
		}
	})
}

func TestValues(t *testing.T) {
	t.Parallel()
	line := func(name string, samples ...sample) *measurement { return &measurement{name: name, samples: samples} }
	of := goal{id: "P1", what: "a of b", of: ratio("a", "b")}
	for _, c := range []struct {
		name  string
		group group
		goal  goal
		want  []float64
		err   string
	}{
		{name: "RoundByRound", group: group{list: []*measurement{
			line("a", sample{rate: 1}, sample{rate: 3}), line("b", sample{rate: 2}, sample{rate: 4})}},
			goal: of, want: []float64{0.5, 0.75}},
		{name: "AgainstTheFastestOfTheRound", group: group{list: []*measurement{
			line("a", sample{rate: 2}, sample{rate: 2}), line("b", sample{rate: 1}, sample{rate: 4}),
			line("c", sample{rate: 2}, sample{rate: 3})}},
			goal: goal{of: toBest("a", "b", "c")}, want: []float64{1, 0.5}},
		{name: "OfMedians", group: group{list: []*measurement{
			line("a", sample{p50: 3 * time.Millisecond}), line("b", sample{p50: 2 * time.Millisecond})}},
			goal: goal{of: medianRatio("a", "b")}, want: []float64{1.5}},
		{name: "LeftOut", group: group{list: []*measurement{line("a", sample{rate: 1})}, left: []string{"b"}}, goal: of},
		{name: "NoSuchLine", group: group{list: []*measurement{line("a", sample{rate: 1})}}, goal: of,
			err: `P1, a of b: "b" was not measured`},
		{name: "NoSample", group: group{list: []*measurement{line("a", sample{rate: 1}), line("b")}}, goal: of,
			err: `P1, a of b: "b" was not measured`},
		{name: "ARoundTooFew", group: group{list: []*measurement{
			line("a", sample{rate: 1}, sample{rate: 1}), line("b", sample{rate: 1})}}, goal: of,
			err: `P1, a of b: "b" was not measured in round 2`},
		{name: "NothingToCompareWith", group: group{list: []*measurement{line("a", sample{rate: 1}), line("b", sample{})}},
			goal: of, err: "P1, a of b: not measured in round 1"},
		{name: "NoProcessorTime", group: group{list: []*measurement{line("a", sample{rate: 1})}},
			goal: goal{id: "P8", what: "CPU", of: each("a", cpuMicros)}, err: "P8, CPU: not measured in round 1"},
		{name: "NoTime", group: group{list: []*measurement{line("a", sample{p50: 1}), line("b", sample{})}},
			goal: goal{id: "P12", what: "p50", of: medianRatio("a", "b")}, err: "P12, p50: not measured in round 1"},
		{name: "NoLag", group: group{list: []*measurement{line("a", sample{rate: 1})}},
			goal: goal{id: "P7", what: "lag", of: each("a", lagMillis)}, err: "P7, lag: not measured in round 1"},
		{name: "NoWALCounted", group: group{list: []*measurement{line("a", sample{wal: -1})}},
			goal: goal{id: "P11", what: "WAL", of: each("a", walBytes)}, err: "P11, WAL: not measured in round 1"},
		{name: "NoByteOfWAL", group: group{list: []*measurement{line("a", sample{wal: 0})}},
			goal: goal{of: each("a", walBytes)}, want: []float64{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.group.values(c.goal)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	t.Run("FailTheResult", func(t *testing.T) {
		t.Parallel()
		g := group{name: inWebhooks, list: []*measurement{line(intakeFloor, sample{}), line(intake, sample{rate: 1})}}
		_, err := g.result(&bench{})
		require.ErrorContains(t, err, "P10, webhooks ÷ pgbench's insert: not measured in round 1")
	})
}

// TestOnly: what is left out is known to be, so that its targets are not taken for lost.
func TestOnly(t *testing.T) {
	t.Parallel()
	g := (&bench{}).webhookGroup()
	require.Empty(t, g.only(matching(t, "^webhooks/an event inserted")).find(intake))
	require.Equal(t, []string{intake}, g.only(matching(t, "^webhooks/an event inserted")).left)
	require.Empty(t, g.only(matching(t, "^webhooks/an event verified")).left, "a line brings its floor")
}

// TestEnough: payments beside which too little happened are no measurement.
func TestEnough(t *testing.T) {
	t.Parallel()
	enough := meanwhile{published: 3, reaped: 2, delivered: 1, applied: 1, compared: 1}
	require.NoError(t, enough.enough(lagMax))
	for name, spoil := range map[string]func(*meanwhile) time.Duration{
		"events":      func(m *meanwhile) time.Duration { m.published = 2.49; return 0 },
		"reaped keys": func(m *meanwhile) time.Duration { m.reaped = 0.9; return 0 },
		"webhooks":    func(m *meanwhile) time.Duration { m.delivered = 0.8; return 0 },
		"applied":     func(m *meanwhile) time.Duration { m.applied = 0.8; return 0 },
		"comparisons": func(m *meanwhile) time.Duration { m.compared = 0.1; return 0 },
		"lag":         func(*meanwhile) time.Duration { return lagMax + 1 },
	} {
		m := enough
		require.Error(t, m.enough(spoil(&m)), name)
	}
	require.Equal(t, meanwhile{published: 2.5, reaped: 1, delivered: 0.5, applied: 0.25, compared: 2},
		meanwhile{published: 11, reaped: 5, delivered: 3, applied: 2, compared: 9}.
			since(meanwhile{published: 1, reaped: 1, delivered: 1, applied: 1, compared: 1}, 4))
}

// TestPlayed: a group that fails has no result, and says why.
func TestPlayed(t *testing.T) {
	t.Parallel()
	g := group{name: "fails", list: []*measurement{{name: "line",
		run: func(context.Context) (sample, error) { return sample{}, errors.New("too little happened") }}}}
	_, err := g.played(t.Context(), &bench{s: settings{rounds: 1}})
	require.EqualError(t, err, "line: too little happened")
}

func TestByID(t *testing.T) {
	t.Parallel()
	list := []outcome{{ID: "P10"}, {ID: "P1b"}, {ID: "P9"}, {ID: "P1"}}
	slices.SortFunc(list, byID)
	require.Equal(t, []outcome{{ID: "P1"}, {ID: "P1b"}, {ID: "P9"}, {ID: "P10"}}, list)
}

func TestMet(t *testing.T) {
	t.Parallel()
	require.True(t, outcome{Want: 150, AtMost: true, Unit: "µs", Reached: []float64{150.4}}.met(), "as it is shown")
	require.False(t, outcome{Want: 150, AtMost: true, Unit: "µs", Reached: []float64{150.6}}.met())
	require.True(t, outcome{Want: 2, Reached: []float64{1, 2, 9}}.met(), "the median")
}
