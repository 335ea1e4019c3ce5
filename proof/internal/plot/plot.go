// Package plot draws a few lines or bars as SVG, for a report that is one
// file: no script, no font, no network.
//
// It knows what the reports of this project need and nothing else. Text and axes
// take the colour of the page, so that they can be read on dark ones too; lines
// have colours that most colour-blind people tell apart.
package plot

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lines is a plot of lines over one axis.
type Lines struct {
	Title, X, Y string // what the axes measure, with the unit
	Series      []Series
	Log         bool // the vertical axis; then zero and less are not drawn
}

// Series is one line. Where Y is NaN, the line has a gap.
type Series struct {
	Name string
	X, Y []float64
}

// Bars is a plot of numbers with names.
type Bars struct {
	Title string
	Bars  []Bar
}

// Bar is one of them. A Wrong one is drawn in red.
type Bar struct {
	Name  string
	Value float64
	Kind  Kind
	Wrong bool
}

// Kind is what a bar stands for. Each kind has a colour; where a plot has several,
// a legend says which.
type Kind string

// The kinds of bars: this service, the least that its work costs without it, and
// what others do in its place.
const (
	Ours  Kind = ""
	Floor Kind = "floor"
	Peer  Kind = "peer"
)

var kinds = []struct {
	kind         Kind
	name, colour string
}{
	{Ours, "payonce", "#0072b2"},
	{Floor, "floor: what the service is compared with", "#8a8f98"},
	{Peer, "alternatives", "#e69f00"},
}

const (
	width, height           = 720, 260
	left, right, top, below = 64, 16, 34, 56
	inner, tall             = width - left - right, height - top - below
	ticks                   = 5
	barHeight, barStep      = 18, 26
	character               = 6.2 // wide, at most, on average: a browser's own font is not known here
	rates                   = 330 // room for bars and their values
	namesLeast              = 230 // room for the names of bars, or more if one is longer
	legendStep              = 18
)

var (
	colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"}
	wrong   = "#c1121f"
)

// SVG is the plot as an element to put into a page.
func (p Lines) SVG() template.HTML {
	var b strings.Builder
	names := make([]string, len(p.Series))
	for i, s := range p.Series {
		names[i] = s.Name
	}
	marks, rows := legend(names, left, width)
	open(&b, p.Title, width, height+legendStep*max(0, rows-1))
	minX, maxX, minY, maxY := p.bounds()
	x := func(v float64) float64 { return left + inner*(v-minX)/(maxX-minX) }
	y := func(v float64) float64 { return top + tall*(1-(v-minY)/(maxY-minY)) }
	if p.Log {
		y = func(v float64) float64 {
			return top + tall*(1-(math.Log10(v)-math.Log10(minY))/(math.Log10(maxY)-math.Log10(minY)))
		}
	}
	for _, v := range p.ticksY(minY, maxY) {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, left,
			left+inner, y(v), y(v))
		text(&b, left-6, y(v)+4, "end", label(v))
	}
	for _, v := range nice(minX, maxX) {
		text(&b, x(v), top+tall+16, "middle", label(v))
	}
	text(&b, left+inner, top+tall+32, "end", p.X)
	text(&b, left, top-6, "start", p.Y)
	for i, s := range p.Series {
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="1.6" stroke-linejoin="round" `+
			`d="%s"><title>%s</title></path>`,
			colours[i%len(colours)], p.path(s, x, y), template.HTMLEscapeString(s.Name))
	}
	for i, at := range marks {
		at.draw(&b, height-16, colours[i%len(colours)])
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it was escaped above
}

// path moves to the first point behind a gap, and draws to all others.
func (p Lines) path(s Series, x, y func(float64) float64) string {
	var b strings.Builder
	pen := "M"
	for i, v := range s.Y {
		if !p.drawn(v) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, x(s.X[i]), y(v))
		pen = "L"
	}
	return b.String()
}

func (p Lines) drawn(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!p.Log || v > 0)
}

func (p Lines) bounds() (minX, maxX, minY, maxY float64) {
	minX, maxX, minY, maxY = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		for i, v := range s.Y {
			if p.drawn(v) {
				minX, maxX, minY, maxY = min(minX, s.X[i]), max(maxX, s.X[i]), min(minY, v), max(maxY, v)
			}
		}
	}
	if minX > maxX { // nothing to draw
		minX, maxX, minY, maxY = 0, 1, 1, 10
	}
	if minX == maxX {
		maxX = minX + 1
	}
	if p.Log {
		minY, maxY = math.Pow(10, math.Floor(math.Log10(minY))), math.Pow(10, math.Ceil(math.Log10(maxY)))
		if minY == maxY {
			maxY *= 10
		}
		return minX, maxX, minY, maxY
	}
	top := nice(0, max(maxY, 1e-9))
	return minX, maxX, min(0, minY), max(maxY, top[len(top)-1]) // a line that does not begin at zero lies
}

func (p Lines) ticksY(from, to float64) (list []float64) {
	if !p.Log {
		return nice(from, to)
	}
	for v := from; v <= to*1.001; v *= 10 {
		list = append(list, v)
	}
	return list
}

// nice is about so many round numbers between two.
func nice(from, to float64) (list []float64) {
	raw := (to - from) / ticks
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{5, 2} {
		if raw/step >= m {
			step *= m
			break
		}
	}
	for v := math.Ceil(from/step) * step; v <= to+step/1e6; v += step {
		list = append(list, v)
	}
	return list
}

// SVG is the plot as an element to put into a page. It is as wide as its longest
// name needs.
func (p Bars) SVG() template.HTML {
	var b strings.Builder
	most, names := 1e-9, float64(namesLeast)
	for _, bar := range p.Bars {
		most, names = max(most, bar.Value), max(names, 12+widthOf(bar.Name))
	}
	wide := int(names) + rates + 70
	marks, colours := p.legend(wide)
	tall := top + barStep*len(p.Bars) + 6
	rows := 0
	if len(marks) > 1 {
		rows = marks[len(marks)-1].row + 1
	}
	open(&b, p.Title, wide, tall+legendStep*rows)
	for i, bar := range p.Bars {
		y, colour := float64(top+barStep*i), colourOf(bar)
		text(&b, names-8, y+13, "end", bar.Name)
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%.1f" height="%d" rx="2" fill="%s"/>`, names, y,
			max(rates*bar.Value/most, 1), barHeight, colour)
		text(&b, names+rates*bar.Value/most+6, y+13, "start", label(bar.Value))
	}
	if rows > 0 {
		for i, at := range marks {
			at.draw(&b, tall, colours[i])
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it was escaped above
}

// legend names the kinds that the plot has.
func (p Bars) legend(wide int) (marks []mark, colours []string) {
	var names []string
	for _, k := range kinds {
		if slices.ContainsFunc(p.Bars, func(b Bar) bool { return b.Kind == k.kind && !b.Wrong }) {
			names, colours = append(names, k.name), append(colours, k.colour)
		}
	}
	marks, _ = legend(names, 0, wide)
	return marks, colours
}

func colourOf(b Bar) string {
	if b.Wrong {
		return wrong
	}
	for _, k := range kinds {
		if k.kind == b.Kind {
			return k.colour
		}
	}
	return colours[0]
}

// mark is a name in a legend, and where it stands.
type mark struct {
	name string
	x    float64
	row  int
}

// legend puts names side by side, and begins a new row where one would be cut off.
func legend(names []string, from, wide int) (marks []mark, rows int) {
	at, row := float64(from), 0
	for i, name := range names {
		needs := 30 + widthOf(name)
		if i > 0 && at+needs > float64(wide) {
			at, row = float64(from), row+1
		}
		marks = append(marks, mark{name, at, row})
		at += needs
	}
	return marks, row + 1
}

func (m mark) draw(b *strings.Builder, y int, colour string) {
	y += legendStep * m.row
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="10" height="10" rx="2" fill="%s"/>`, m.x, y, colour)
	text(b, m.x+14, float64(y)+9, "start", m.name)
}

func widthOf(s string) float64 { return character * float64(len([]rune(s))) }

func open(b *strings.Builder, title string, width, height int) {
	fmt.Fprintf(b, `<svg role="img" aria-label="%s" viewBox="0 0 %d %d" font-family="system-ui,sans-serif" `+
		`font-size="11" fill="currentColor">`, template.HTMLEscapeString(title), width, height)
	fmt.Fprintf(b, `<text x="0" y="13" font-size="13" font-weight="600">%s</text>`, template.HTMLEscapeString(title))
}

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(s))
}

// label writes a number as briefly as it can be read.
func label(v float64) string {
	if (v == math.Trunc(v) || math.Abs(v) >= 100) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
