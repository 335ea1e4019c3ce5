package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// goal is a target that was set before anything was built: what is wanted of a
// value that every round yields.
type goal struct {
	id, what string
	want     float64
	atMost   bool
	unit     string                // "" is a ratio
	of       func(group) []float64 // nil when -only has left a line of it out
}

// ratio is one rate against another, round by round: what slows a round down
// slows both.
func ratio(of, against string) func(group) []float64 {
	return func(g group) (list []float64) {
		a, b := g.find(of), g.find(against)
		if a == nil || b == nil {
			return nil
		}
		for i := range a.samples {
			list = append(list, a.samples[i].rate/b.samples[i].rate)
		}
		return list
	}
}

// each is something else about a measurement.
func each(of string, value func(sample) float64) func(group) []float64 {
	return func(g group) (list []float64) {
		if m := g.find(of); m != nil {
			for _, s := range m.samples {
				list = append(list, value(s))
			}
		}
		return list
	}
}

func cpuMicros(s sample) float64 { return float64(s.cpu.Microseconds()) }

func walBytes(s sample) float64 { return s.wal }

func p99Millis(s sample) float64 { return float64(s.p99.Microseconds()) / 1000 }

// outcome is a goal and the value that was reached.
type outcome struct {
	ID, What, Unit string
	Want           float64
	AtMost         bool
	Reached        []float64
}

func (o outcome) met() bool {
	got := o.rounded(median(o.Reached))
	if o.AtMost {
		return got <= o.Want
	}
	return got >= o.Want
}

// rounded is a value as exact as it is shown, so that what reads as reached is.
func (o outcome) rounded(v float64) float64 {
	if o.Unit == "" {
		return math.Round(v*100) / 100
	}
	return math.Round(v)
}

func (o outcome) shown(v float64) string {
	if o.Unit == "" {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f %s", v, o.Unit)
}

func (o outcome) target() string {
	if o.AtMost {
		return "≤ " + o.shown(o.Want)
	}
	return "≥ " + o.shown(o.Want)
}

func (o outcome) reached() string {
	from, to := slices.Min(o.Reached), slices.Max(o.Reached)
	if len(o.Reached) == 1 || o.shown(from) == o.shown(to) {
		return o.shown(median(o.Reached))
	}
	return fmt.Sprintf("%s (%s – %s)", o.shown(median(o.Reached)), o.shown(from), o.shown(to))
}

func (o outcome) verdict() string {
	if o.met() {
		return "yes"
	}
	return "**no**"
}

// byID puts P1b behind P1, and P10 behind P9.
func byID(a, b outcome) int {
	number := func(id string) (n int) {
		_, _ = fmt.Sscanf(id, "P%d", &n)
		return n
	}
	return cmp.Or(cmp.Compare(number(a.ID), number(b.ID)), cmp.Compare(a.ID, b.ID))
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
