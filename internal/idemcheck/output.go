package idemcheck

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"text/tabwriter"

	"example.com/payonce/internal/terminal"
)

// Print writes the report for people, and nothing of what the API has sent that is not printable. Of a run that could ask nothing, not even its first question, there is none.
func (r Report) Print(w io.Writer) error {
	if len(r.Results) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(w, "%s at %s\n\n", terminal.Text(r.Profile), terminal.Text(r.API))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, result := range r.Results {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", result.Verdict, terminal.Text(result.Check), terminal.Text(result.Evidence))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verb := "hold"
	if r.Count(Holds) == 1 {
		verb = "holds"
	}
	_, err := fmt.Fprintf(w, "\n%d %s, %d broken, %d not asked\n", r.Count(Holds), verb, r.Count(Broken), r.Count(NotAsked))
	return err
}

// JSON writes the report as JSON.
func (r Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// JUnit writes the report as a test suite: what is broken is a failure, what is not asked is skipped.
func (r Report) JUnit(w io.Writer) error {
	type message struct {
		Type string `xml:"type,attr,omitempty"`
		Text string `xml:"message,attr"`
	}
	type testcase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Seconds string   `xml:"time,attr"`
		Failure *message `xml:"failure,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
		Output  string   `xml:"system-out,omitempty"`
	}
	suite := struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"timestamp,attr"`
		Cases    []testcase `xml:"testcase"`
	}{
		Name: "idemcheck", Tests: len(r.Results), Failures: r.Count(Broken), Skipped: r.Count(NotAsked),
		Time: r.At.Format("2006-01-02T15:04:05"),
	}
	for _, result := range r.Results {
		c := testcase{Name: result.Check, Class: r.Profile, Seconds: fmt.Sprintf("%.3f", result.Took.Seconds())}
		switch result.Verdict {
		case Broken:
			c.Failure = &message{Type: string(Broken), Text: result.Evidence}
		case NotAsked:
			c.Skipped = &message{Text: result.Evidence}
		case Holds:
			c.Output = result.Evidence
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	return e.Encode(suite)
}

// Badge writes an SVG image: how many of all promises hold. It is red if one is broken, and grey if the essential checks
// were not asked.
func (r Report) Badge(w io.Writer) error {
	text, colour := fmt.Sprintf("%d of %d hold", r.Count(Holds), len(checks())), "#0b6e4f"
	switch n := r.Count(Broken); {
	case n > 0:
		text, colour = fmt.Sprintf("%d broken, %s", n, text), "#a3341f"
	case !r.Essential():
		colour = "#777"
	}
	const label, unit, pad = "idempotency", 7, 10
	left, right := len(label)*unit+2*pad, len(text)*unit+2*pad
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="20" role="img" aria-label="%s: %s">
<rect width="%d" height="20" fill="#444"/><rect x="%d" width="%d" height="20" fill="%s"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle"><text x="%d" y="14">%s</text><text x="%d" y="14">%s</text></g>
</svg>
`, left+right, label, text, left, left, right, colour, left/2, label, left+right/2, text)
	return err
}
