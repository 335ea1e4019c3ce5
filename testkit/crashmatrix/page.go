package crashmatrix

import (
	"fmt"
	"strings"
)

// Table is the matrix in Markdown: a row for each place and answer of Stripe's, and in each field the ways back that are
// run from there. source is the file of TestCrashMatrix, as a link.
func Table(source string) string {
	var b strings.Builder
	var table strings.Builder
	cells := 0
	for _, o := range operations() {
		fmt.Fprintf(&table, "\n#### A %s\n\n", o.name)
		for _, out := range o.outcomes {
			fmt.Fprintf(&table, "- *%s*: %s; ends in %s\n", out.name, out.means, out.end())
		}
		table.WriteString("\n| place | Stripe | killed | cut before the commit | cut after it | delayed past the " +
			"lease | test |\n| --- | --- | --- | --- | --- | --- | --- |\n")
		for _, p := range o.places {
			for _, out := range p.reached(o.outcomes) {
				name := strings.ReplaceAll("TestCrashMatrix/"+o.name+"/"+p.name+"/"+out.name, " ", "_")
				if p.name == "none" {
					ways := o.back(p, out, "undisturbed")
					cells += len(ways)
					fmt.Fprintf(&table, "| none: %s | %s | | | | | [`%s`](%s) |\n", letters(ways), out.name, name, source)
					continue
				}
				fmt.Fprintf(&table, "| %s | %s |", p.name, out.name)
				for _, disturbance := range disturbances {
					var ways []string
					for _, d := range p.disturbed() {
						if d == disturbance {
							ways = o.back(p, out, d)
						}
					}
					cells += len(ways)
					fmt.Fprintf(&table, " %s |", letters(ways))
				}
				fmt.Fprintf(&table, " [`%s`](%s) |\n", name, source)
			}
		}
	}
	fmt.Fprintf(&b, "%d cells. R: the client retries, C: the completer of another process, W: a webhook of "+
		"Stripe's, long before the completer would have resumed it. —: there is no such cell, because nothing "+
		"is committed there, or Stripe sends no webhook.\n", cells)
	return b.String() + table.String()
}

func letters(ways []string) string {
	if len(ways) == 0 {
		return "—"
	}
	var l []string
	for _, w := range ways {
		l = append(l, strings.ToUpper(w[:1]))
	}
	return strings.Join(l, " ")
}

// end is how it ends with this answer of Stripe's, wherever it was disturbed.
func (o outcome) end() string {
	if o.problem != "" {
		return fmt.Sprintf("%d `%s`", o.final, o.problem)
	}
	return fmt.Sprint(o.final)
}
