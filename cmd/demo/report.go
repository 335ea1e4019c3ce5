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

// printer writes aligned lines, with colour only on a terminal: output in a file
// or a CI log has no escape codes.
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
	_, _ = fmt.Fprintf(p.w, format+"\n", args...) // a closed stdout must not stop the scenes
}

func (p *printer) title(name, motto string) { p.say("\n%s: %s\n", p.paint(bold, name), motto) }

// fact is a line about a part of the system.
func (p *printer) fact(name, format string, args ...any) {
	p.say("  %s%s", pad(name, nameWidth), p.paint(dim, fmt.Sprintf(format, args...)))
}

// longFact is one that may need several lines.
func (p *printer) longFact(name, text string) {
	for _, line := range wrap(text, lineWidth-nameWidth-2) {
		p.fact(name, "%s", line)
		name = ""
	}
}

func (p *printer) scene(number int, s scene) {
	p.say("\n%s", p.paint(bold, fmt.Sprintf("%2d  %s", number, s.title)))
	for _, line := range wrap(s.text, lineWidth-margin) {
		p.say("    %s", p.paint(dim, line))
	}
}

// Lines fit a terminal of a hundred columns.
const (
	lineWidth    = 100
	margin       = 4
	nameWidth    = 12
	whoWidth     = 7
	requestWidth = 53
)

// exchange is a line about a request and its answer.
func (p *printer) exchange(who, request, response string) {
	how := yellow
	switch {
	case strings.HasPrefix(response, "2") && !strings.HasPrefix(response, "202"):
		how = green
	case strings.HasPrefix(response, "no response"):
		how = red
	}
	request = pad(squeeze(request, requestWidth), requestWidth)
	p.say("    %s%s  %s", p.paint(cyan, pad(who, whoWidth)), request, p.paint(how, response))
}

// event is a line about what happens apart from requests.
func (p *printer) event(text string) { p.marked("*", yellow, text) }

// result is a line about what was checked.
func (p *printer) result(good bool, text string) {
	how := green
	if !good {
		how = red
	}
	p.marked("=", how, text)
}

// marked is a text that may need several lines.
func (p *printer) marked(mark string, how style, text string) {
	for _, line := range wrap(text, lineWidth-margin-whoWidth) {
		p.say("    %s%s", pad(mark, whoWidth), p.paint(how, line))
		mark = ""
	}
}

// report prints the tables, and returns whether every scene and every check passed.
func report(p *printer, runs []*sceneRun, checks []check, took time.Duration) (ok bool) {
	scenesOK := p.scenes(runs)
	checksOK := p.checks(checks)
	p.say("")
	ok = scenesOK && checksOK
	if ok {
		played := fmt.Sprintf("All %d scenes went as expected", len(runs))
		if len(runs) == 1 {
			played = "The scene went as expected"
		}
		text := fmt.Sprintf("%s, all %d invariants hold. %.1f s", played, len(checks), took.Seconds())
		p.say("%s", p.paint(green, text))
	} else {
		p.say("%s", p.paint(red, fmt.Sprintf("FAILED: see the lines marked FAILED above. %.1f s", took.Seconds())))
	}
	return ok
}

func (p *printer) scenes(runs []*sceneRun) (ok bool) {
	ok = true
	rows := [][]string{{"#", "scene", "requests", "responses", "charges at Stripe, per order"}}
	for i, s := range runs {
		charges := s.chargesColumn()
		if s.failure != "" {
			charges, ok = charges+"  FAILED", false
		}
		row := []string{fmt.Sprint(i + 1), s.scene.title, fmt.Sprint(s.requests), s.responseCounts(), charges}
		rows = append(rows, row)
	}
	p.say("\n%s\n", p.paint(bold, "What happened"))
	p.table(rows, func(row int, line string) string {
		switch {
		case row == 0:
			return p.paint(dim, line)
		case runs[row-1].failure != "":
			return p.paint(red, line)
		}
		return line
	})
	for i, s := range runs {
		if s.failure != "" {
			p.say("%s", p.paint(red, fmt.Sprintf("\n  FAILED scene %d: %s", i+1, s.failure)))
		}
	}
	return ok
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

func (p *printer) checks(checks []check) (ok bool) {
	ok = true
	p.say("\n%s\n", p.paint(bold, "Invariants"))
	for _, f := range checks {
		if len(f.violations) == 0 {
			p.say("  %s  %s", p.paint(green, "ok"), f.name)
			continue
		}
		ok = false
		p.say("  %s", p.paint(red, "FAILED  "+f.name))
		for _, o := range f.violations[:min(len(f.violations), 5)] {
			p.say("          %s", o)
		}
		if more := len(f.violations) - 5; more > 0 {
			p.say("          and %d more", more)
		}
	}
	return ok
}

// summarize counts equal texts: "201, 409 ×49".
func summarize(texts []string) string {
	count := map[string]int{}
	for _, w := range texts {
		count[w]++
	}
	var out []string
	for _, w := range slices.Compact(slices.Sorted(slices.Values(texts))) {
		if count[w] > 1 {
			w = fmt.Sprintf("%s ×%d", w, count[w])
		}
		out = append(out, w)
	}
	return strings.Join(out, ", ")
}

// squeeze removes the padding between columns, from the right, until a line fits.
func squeeze(line string, width int) string {
	for utf8.RuneCountInString(line) > width {
		at := strings.LastIndex(line, "   ")
		if at < 0 {
			break
		}
		line = line[:at] + line[at+1:]
	}
	return line
}

// wrap breaks a text between words.
func wrap(text string, width int) (lines []string) {
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
