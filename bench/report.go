package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"example.com/payonce/internal/plot"
)

func (g group) find(name string) *measurement {
	for _, m := range g.list {
		if m.name == name {
			return m
		}
	}
	panic("bug: no measurement is called " + name)
}

// ratios are round by round: what slows a round down slows both.
func (g group) ratios(m *measurement) (list []float64) {
	if m.floor == "" {
		return nil
	}
	floor := g.find(m.floor)
	for i := range m.samples {
		list = append(list, m.samples[i].rate/floor.samples[i].rate)
	}
	return list
}

func (m *measurement) rates() (list []float64) {
	for _, s := range m.samples {
		list = append(list, s.rate)
	}
	return list
}

// costs are the median costs of one operation, in words.
func (m *measurement) costs() string {
	var cpu, load, wal []float64
	var note string
	for _, s := range m.samples {
		cpu, load, wal = append(cpu, float64(s.cpu.Microseconds())), append(load, float64(s.load.Microseconds())), append(wal, s.wal)
		note = s.note
	}
	var parts []string
	if c := median(cpu); c > 0 {
		parts = append(parts, fmt.Sprintf("%.0f µs of processor, and %.0f µs of the driver's", c, median(load)))
	}
	if w := median(wal); w >= 0 && median(cpu) > 0 {
		parts = append(parts, fmt.Sprintf("%.0f bytes of WAL", w))
	}
	if note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, ", ")
}

func (g group) print() {
	fmt.Printf("\n  %-48s %10s %21s %9s  %s\n", "median of the rounds", "a second", "from – to", "of floor", "each")
	for _, m := range g.list {
		ratio := ""
		if list := g.ratios(m); list != nil {
			ratio = fmt.Sprintf("%.2f", median(list))
		}
		fmt.Printf("  %-48s %10.0f %10.0f – %-8.0f %9s  %s\n", m.name, median(m.rates()), slices.Min(m.rates()), slices.Max(m.rates()), ratio, m.costs())
	}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

const (
	begin = "<!-- bench: written by go run ./bench -write docs -->\n"
	end   = "<!-- end of bench -->\n"
)

// write replaces what an earlier run wrote into performance.md, and its plots.
func write(dir string, s settings, groups []group) error {
	file := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return errors.New(file + " has no place for it")
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(begin)
	fmt.Fprintf(&b, "\nMedians of %d interleaved rounds of %d s, %d connections, %d processors shared by driver, service and database.\n",
		s.rounds, s.seconds, s.connections, runtime.NumCPU())
	for _, g := range groups {
		image := "bench-" + strings.ReplaceAll(g.name, " ", "-") + ".svg"
		fmt.Fprintf(&b, "\n### %s\n\n![%s: medians](img/%s)\n\n| what | a second | from – to | of its floor | target | each costs |\n| --- | --- | --- | --- | --- | --- |\n",
			strings.ToUpper(g.name[:1])+g.name[1:], g.name, image)
		bars := plot.Bars{Title: g.name + ", a second"}
		for _, m := range g.list {
			ratio, target := "", ""
			if list := g.ratios(m); list != nil {
				ratio = fmt.Sprintf("%.2f (%.2f – %.2f)", median(list), slices.Min(list), slices.Max(list))
			}
			if m.target > 0 {
				target = fmt.Sprintf("%.2f", m.target)
			}
			fmt.Fprintf(&b, "| %s | %.0f | %.0f – %.0f | %s | %s | %s |\n", m.name, median(m.rates()), slices.Min(m.rates()), slices.Max(m.rates()), ratio, target, m.costs())
			bars.Bars = append(bars.Bars, plot.Bar{Name: m.name, Value: median(m.rates())})
		}
		// A picture in a page of its own has no colour to take over.
		svg := strings.Replace(string(bars.SVG()), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" style="background:#fff;color:#222" `, 1)
		if err := os.MkdirAll(filepath.Join(dir, "img"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "img", image), []byte(svg+"\n"), 0o644); err != nil {
			return err
		}
	}
	b.WriteString("\n" + end)
	b.Write(after)
	return os.WriteFile(file, b.Bytes(), 0o644)
}
