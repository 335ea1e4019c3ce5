package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// printer writes for a person: aligned, in plain words, with colour only where
// somebody sees it.
type printer struct {
	mu    sync.Mutex
	w     io.Writer
	color bool
}

func newPrinter(w io.Writer, getenv func(string) string) *printer {
	file, ok := w.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return &printer{w: w}
	}
	info, err := file.Stat()
	return &printer{w: w, color: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

func (p *printer) paint(s style, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, format+"\n", args...) // if nobody reads it, nobody misses it
}

func (p *printer) title(name, motto string) { p.say("\n%s: %s\n", p.paint(bold, name), motto) }

// fact is a line about what the demo runs on.
func (p *printer) fact(name, format string, args ...any) {
	p.say("  %s%s", pad(name, nameWidth), p.paint(dim, fmt.Sprintf(format, args...)))
}

// longFact is one that may need several lines.
func (p *printer) longFact(name, text string) {
	for _, line := range wrapped(text, lineWidth-nameWidth-2) {
		p.fact(name, "%s", line)
		name = ""
	}
}

func (p *printer) scene(number int, s scene) {
	p.say("\n%s", p.paint(bold, fmt.Sprintf("%2d  %s", number, s.title)))
	for line := range strings.Lines(s.why) {
		p.say("    %s", p.paint(dim, strings.TrimSpace(line)))
	}
}

// Lines fit a terminal of a hundred columns.
const (
	lineWidth = 100
	margin    = 4
	nameWidth = 12
	whoWidth  = 7
	sentWidth = 53
)

// exchange is a line about a request and its answer.
func (p *printer) exchange(who, sent, came string) {
	how := yellow
	switch {
	case strings.HasPrefix(came, "2") && !strings.HasPrefix(came, "202"):
		how = green
	case strings.HasPrefix(came, "no answer"):
		how = red
	}
	p.say("    %s%s  %s", p.paint(cyan, pad(who, whoWidth)), pad(squeezed(sent, sentWidth), sentWidth), p.paint(how, came))
}

// event is a line about what happens outside of requests.
func (p *printer) event(text string) { p.marked("*", yellow, text) }

// result is a line about what is true now.
func (p *printer) result(good bool, text string) {
	how := green
	if !good {
		how = red
	}
	p.marked("=", how, text)
}

// marked is a text that may need several lines.
func (p *printer) marked(mark string, how style, text string) {
	for _, line := range wrapped(text, lineWidth-margin-whoWidth) {
		p.say("    %s%s", pad(mark, whoWidth), p.paint(how, line))
		mark = ""
	}
}

// report prints the tables, and returns whether everything held.
func report(p *printer, shows []*show, findings []finding, took time.Duration) (held bool) {
	behaved := p.scenes(shows)
	sound := p.findings(findings)
	p.say("")
	if behaved && sound {
		played := fmt.Sprintf("All %d scenes went as they should", len(shows))
		if len(shows) == 1 {
			played = "The scene went as it should"
		}
		p.say("%s", p.paint(green, fmt.Sprintf("%s, all %d invariants hold. %.1f s", played, len(findings), took.Seconds())))
	} else {
		p.say("%s", p.paint(red, fmt.Sprintf("NOT GOOD: see what is marked FAILED above. %.1f s", took.Seconds())))
	}
	return behaved && sound
}

func (p *printer) scenes(shows []*show) (good bool) {
	good = true
	rows := [][]string{{"#", "scene", "requests", "answers", "charges at Stripe, per order"}}
	for i, s := range shows {
		charges := s.charges()
		if s.failure != "" {
			charges, good = charges+"  FAILED", false
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), s.scene.title, fmt.Sprint(s.requests), s.tally(), charges})
	}
	p.say("\n%s\n", p.paint(bold, "What happened"))
	p.table(rows, func(row int, line string) string {
		switch {
		case row == 0:
			return p.paint(dim, line)
		case shows[row-1].failure != "":
			return p.paint(red, line)
		}
		return line
	})
	for i, s := range shows {
		if s.failure != "" {
			p.say("%s", p.paint(red, fmt.Sprintf("\n  FAILED scene %d: %s", i+1, s.failure)))
		}
	}
	return good
}

// table aligns columns: numbers to the right, words to the left.
func (p *printer) table(rows [][]string, paint func(row int, line string) string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, row := range rows {
		var cells []string
		for j, cell := range row {
			if j == 0 || rows[0][j] == "requests" {
				cell = strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)) + cell
			} else {
				cell = pad(cell, widths[j])
			}
			cells = append(cells, cell)
		}
		p.say("  %s", paint(i, strings.TrimRight(strings.Join(cells, "  "), " ")))
	}
}

func (p *printer) findings(findings []finding) (good bool) {
	good = true
	p.say("\n%s\n", p.paint(bold, "What must always be true"))
	for _, f := range findings {
		if len(f.offenders) == 0 {
			p.say("  %s  %s", p.paint(green, "ok"), f.name)
			continue
		}
		good = false
		p.say("  %s", p.paint(red, "FAILED  "+f.name))
		for _, o := range f.offenders[:min(len(f.offenders), 5)] {
			p.say("          %s", o)
		}
		if more := len(f.offenders) - 5; more > 0 {
			p.say("          and %d more", more)
		}
	}
	return good
}

// tallied puts the same words together: "201, 409 ×49".
func tallied(words []string) string {
	count := map[string]int{}
	for _, w := range words {
		count[w]++
	}
	var out []string
	for _, w := range slices.Compact(slices.Sorted(slices.Values(words))) {
		if count[w] > 1 {
			w = fmt.Sprintf("%s ×%d", w, count[w])
		}
		out = append(out, w)
	}
	return strings.Join(out, ", ")
}

// squeezed takes space out of columns, the last ones first, until a line fits.
func squeezed(line string, width int) string {
	for utf8.RuneCountInString(line) > width {
		at := strings.LastIndex(line, "   ")
		if at < 0 {
			break
		}
		line = line[:at] + line[at+1:]
	}
	return line
}

// wrapped breaks a text between words.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// pad counts characters; Printf's width would count bytes.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
