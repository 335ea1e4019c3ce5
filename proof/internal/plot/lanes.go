package plot

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// Lanes is a plot of what happened when, to whom: a lane for each of them, and
// on it a span for each thing that happened.
type Lanes struct {
	Title, X string
	Names    []string // of the lanes, from the top
	Kinds    []string // of what happens, in the order of the legend
	Until    float64  // where the axis ends
	Spans    []Span
	Shades   []Shade
}

// Span is one thing that happened. A short one is drawn as wide as the eye needs.
type Span struct {
	Lane, Kind  string
	From, Until float64
}

// Shade is a part of the time that has a name.
type Shade struct {
	Name        string
	From, Until float64
}

const (
	laneHeight, laneStep = 20, 26
	shortest             = 2.0
	laneNames            = 84 // room for the names of lanes, or more if one is longer
)

// names is how much room the longest name needs.
func (p Lanes) names() int {
	longest := 0
	for _, name := range p.Names {
		longest = max(longest, len([]rune(name)))
	}
	return max(laneNames, 8+longest*7)
}

// SVG is the plot as an element to put into a page.
func (p Lanes) SVG() template.HTML {
	var b strings.Builder
	tall := laneStep * len(p.Names)
	legend := p.legend()
	left := p.names()
	room := float64(width - left - right)
	open(&b, p.Title, width, top+tall+40+16*len(legend))
	until := max(p.Until, 1e-9)
	x := func(v float64) float64 { return float64(left) + room*min(max(v, 0), until)/until }
	for _, s := range p.Shades {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="currentColor" fill-opacity=".06"/>`,
			x(s.From), top-4, x(s.Until)-x(s.From), tall)
		text(&b, x(s.Until)-4, top-8, "end", s.Name)
	}
	for i, name := range p.Names {
		y := top + laneStep*i
		fmt.Fprintf(&b, `<line x1="%d" x2="%.0f" y1="%d" y2="%d" stroke="currentColor" stroke-opacity=".15"/>`, left,
			float64(left)+room, y+laneHeight/2, y+laneHeight/2)
		text(&b, float64(left)-8, float64(y)+laneHeight/2+4, "end", name)
	}
	for _, s := range p.Spans {
		lane, kind := slices.Index(p.Names, s.Lane), slices.Index(p.Kinds, s.Kind)
		if lane < 0 || kind < 0 {
			continue
		}
		// Each kind has its own height on the lane, so that what happens at once is seen at once.
		high := float64(laneHeight) / float64(len(p.Kinds))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`,
			x(s.From), float64(top+laneStep*lane)+high*float64(kind), max(x(s.Until)-x(s.From), shortest), max(high, 3),
			colours[kind%len(colours)])
	}
	for _, v := range nice(0, until) {
		text(&b, x(v), float64(top+tall+12), "middle", label(v))
	}
	text(&b, float64(left)+room, float64(top+tall+26), "end", p.X)
	for row, kinds := range legend {
		at := float64(left)
		for _, kind := range kinds {
			y := top + tall + 32 + 16*row
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="10" height="10" rx="2" fill="%s"/>`, at, y,
				colours[slices.Index(p.Kinds, kind)%len(colours)])
			text(&b, at+14, float64(y+9), "start", kind)
			at += 30 + 6.6*float64(len([]rune(kind)))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it was escaped above
}

// legend is the kinds, in rows as wide as the plot.
func (p Lanes) legend() (rows [][]string) {
	at := float64(width)
	for _, kind := range p.Kinds {
		wide := 30 + 6.6*float64(len([]rune(kind)))
		if at+wide > width-right {
			rows, at = append(rows, nil), float64(p.names())
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], kind)
		at += wide
	}
	return rows
}
