package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// Page is where the results are shown.
	Page      = "docs/guarantees.md"
	pageBegin = "<!-- protocol: written by `go run -C proof ./protocol -write` -->\n"
	pageEnd   = "<!-- /protocol -->\n"
)

var errNoPlace = errors.New("the page has no place for the protocol")

// String is a result as it is printed: in one line, and the history of what is broken.
func (r Result) String() string {
	var b strings.Builder
	extent := "all"
	switch {
	case r.Broken != 0:
		extent = "as far as the first violation"
	case !r.Complete:
		extent = "nothing is broken so far, and there is more"
	}
	fmt.Fprintf(&b, "%s: %s states, %s transitions, %s histories, %d steps deep (%s), %s", r.Scope,
		thousands(r.States), thousands(r.Transitions), power(r.Histories), r.Depth, extent,
		r.Took.Round(10*time.Millisecond))
	if r.Broken == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n%s is broken: %s\nThe shortest history:\n", r.Broken, r.Broken.Says())
	for _, line := range r.History {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// bounds are a scope's budgets, as the page has them.
func (s Scope) bounds() string {
	list := []string{count(s.Tries, "request") + " of each client", count(s.Faults, "fault")}
	if s.Acts > 0 {
		list = append(list, count(s.Acts, "act")+" of others")
	}
	if s.Ticks > 0 {
		list = append(list, fmt.Sprintf("%d h", time.Duration(s.Ticks)*tick/time.Hour))
	}
	if s.Copies > 0 {
		list = append(list, "a backup")
	}
	return strings.Join(list, ", ")
}

func count(n uint8, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// row is a scope as the page shows it, without what the exploration found.
func (s Scope) row() string { return fmt.Sprintf("| %s | %s | %s |", s.Name, s.What, s.bounds()) }

// row is a rule as the page shows it, without the length of its history.
func (l Left) row() string { return fmt.Sprintf("| `%s` | %s | %s |", l.Name, l.What, l.Breaks) }

// Write puts the results of all scopes, and of the protocol without each rule, into a page.
func Write(page string, results []Result, without []Result) (string, error) {
	before, _, after, err := cut(page)
	if err != nil {
		return "", err
	}
	if len(results) != len(Scopes) || len(without) != len(Rules) {
		return "", errors.New("only the results of all scopes and all rules are written down")
	}
	var b strings.Builder
	b.WriteString("| scope | what is asked for | bounds | states | transitions | histories | longest |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	states, transitions := 0, 0
	for n, r := range results {
		if r.Broken != 0 || !r.Complete {
			return "", fmt.Errorf("%s was not explored to its end without a violation", r.Scope)
		}
		states, transitions = states+r.States, transitions+r.Transitions
		fmt.Fprintf(&b, "%s %s | %s | %s | %d steps |\n", Scopes[n].row(), thousands(r.States),
			thousands(r.Transitions), power(r.Histories), r.Depth)
	}
	fmt.Fprintf(&b, "\nTogether %s states and %s transitions.\n\n", thousands(states), thousands(transitions))
	b.WriteString("| left out | rule | breaks | shortest history |\n| --- | --- | --- | --- |\n")
	for n, r := range without {
		if r.Broken != Rules[n].Breaks {
			return "", fmt.Errorf("without %s, %q is broken", Rules[n].Name, r.Broken)
		}
		fmt.Fprintf(&b, "%s %s |\n", Rules[n].row(), count(uint8(min(r.Depth, 255)), "step"))
	}
	return before + pageBegin + b.String() + pageEnd + after, nil
}

// Rows are the scopes and rules that a page shows, without what an exploration found.
func Rows(page string) (rows []string, err error) {
	_, table, _, err := cut(page)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(table) {
		if cells := strings.SplitN(line, "|", 5); len(cells) == 5 && !strings.HasPrefix(cells[1], " ---") {
			rows = append(rows, strings.Join(cells[:4], "|")+"|")
		}
	}
	return rows, nil
}

func cut(page string) (before, table, after string, err error) {
	before, rest, begins := strings.Cut(page, pageBegin)
	table, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", "", "", errNoPlace
	}
	return before, table, after, nil
}

// thousands is a number with spaces between its thousands.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + " " + text[at:]
	}
	return text
}

// power is a large number to two digits.
func power(n float64) string {
	if n < 1e6 {
		return thousands(int(n))
	}
	digits, exponent, _ := strings.Cut(fmt.Sprintf("%.1e", n), "e+")
	return digits + " · 10^" + strings.TrimPrefix(exponent, "0")
}
