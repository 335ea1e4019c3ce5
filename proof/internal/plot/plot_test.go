package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLines(t *testing.T) {
	t.Parallel()
	svg := string(Lines{Title: `5 < 6 & "so on"`, X: "s", Y: "ms", Series: []Series{
		{Name: "p50 <b>", X: []float64{0, 1, 2, 3}, Y: []float64{1, math.NaN(), 50, 100}},
		{Name: "none"},
	}}.SVG())
	requireXML(t, svg)
	require.NotContains(t, svg, "<b>", "a name is text")
	require.NotContains(t, svg, "NaN")
	require.Equal(t, 2, strings.Count(path(t, svg), "M"), "a gap lifts the pen")
}

func TestLinesOnALogarithmicAxis(t *testing.T) {
	t.Parallel()
	svg := string(Lines{Log: true, Series: []Series{{Name: "a", X: []float64{0, 1, 2}, Y: []float64{0, 5, 700}}}}.SVG())
	requireXML(t, svg)
	for _, decade := range []string{">1<", ">10<", ">100<", ">1000<"} {
		require.Contains(t, svg, decade)
	}
	require.NotContains(t, path(t, svg), "Inf", "zero has no logarithm")
}

// Nothing was measured, or one thing once: a page must still come of it.
func TestLittleToDraw(t *testing.T) {
	t.Parallel()
	for _, p := range []Lines{{}, {Log: true}, {Series: []Series{{Name: "a", X: []float64{4}, Y: []float64{7}}}},
		{Series: []Series{{Name: "a", X: []float64{1, 2}, Y: []float64{0, 0}}}}} {
		svg := string(p.SVG())
		requireXML(t, svg)
		require.NotContains(t, svg, "NaN")
		require.NotContains(t, svg, "Inf")
	}
	requireXML(t, string(Bars{}.SVG()))
}

func TestBars(t *testing.T) {
	t.Parallel()
	svg := string(Bars{Bars: []Bar{{Name: "charged once", Value: 40}, {Name: "charged twice", Value: 1, Wrong: true},
		{Name: "never", Value: 0}}}.SVG())
	requireXML(t, svg)
	require.Equal(t, 1, strings.Count(svg, wrong))
	require.Contains(t, svg, "charged twice")
}

func path(t *testing.T, svg string) string {
	t.Helper()
	_, rest, found := strings.Cut(svg, ` d="`)
	require.True(t, found)
	d, _, _ := strings.Cut(rest, `"`)
	return d
}

func requireXML(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err, svg)
		}
	}
}
