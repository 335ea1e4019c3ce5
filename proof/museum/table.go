package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// articles teach some of the patterns. They are good reading, and right about
// most things; each is here for the lines that its readers will copy.
var articles = []string{
	"Idempotency by Design: Building 'Exactly-Once' Effects on 'At-Least-Once' Rails, by Yusuf Elborey",
	"Idempotency in real systems",
	"Idempotency Layers for Asynchronous Event-Driven Systems, by Goh Ling Yong",
	"Idempotency Patterns: Building Retry-Safe Distributed Systems, by the BackendBytes Engineering Team",
	"Idempotency Keys, at 100c1",
}

// beside is what is beside the damage.
func (f finding) beside() string {
	return fmt.Sprintf("%d of %d", f.right.total(), f.right[f.exhibit.shows].of)
}

// columns of the table in a terminal, a hundred characters wide; the cure stands
// below them.
var columns = []struct {
	title string
	width int
	cell  func(f finding) string
}{
	{"pattern", 34, func(f finding) string { return f.exhibit.pattern }},
	{"taught by", 15, func(f finding) string { return f.exhibit.taught }},
	{"what went wrong", 38, func(f finding) string { return f.wrong.String() }},
	{"payonce", 7, finding.beside},
}

const (
	cureMark  = "  cure: "
	cureWidth = 100 - len(cureMark)
)

// heading begins the table.
func heading(w io.Writer) {
	var titles, rules []string
	for _, c := range columns {
		titles, rules = append(titles, c.title), append(rules, strings.Repeat("-", c.width))
	}
	line(w, titles)
	line(w, rules)
}

// row prints a finding, on as many lines as it takes.
func row(w io.Writer, f finding) {
	var cells [][]string
	height := 0
	for _, c := range columns {
		lines := wrap(c.cell(f), c.width)
		cells, height = append(cells, lines), max(height, len(lines))
	}
	for i := range height {
		var texts []string
		for _, lines := range cells {
			texts = append(texts, at(lines, i))
		}
		line(w, texts)
	}
	mark := cureMark
	for _, text := range wrap(f.exhibit.cure, cureWidth) {
		fmt.Fprintln(w, mark+text)
		mark = strings.Repeat(" ", len(cureMark))
	}
}

func line(w io.Writer, texts []string) {
	var b strings.Builder
	for i, text := range texts {
		b.WriteString(text + strings.Repeat(" ", max(0, columns[i].width-utf8.RuneCountInString(text))+2))
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

func footnotes(w io.Writer) {
	for i, a := range articles {
		fmt.Fprintf(w, "[%d] %s\n", i+1, a)
	}
}

// markdown is the same for README.md.
func markdown(w io.Writer, tour []tourOf) {
	for _, t := range tour {
		fmt.Fprintf(w, "\n### %s\n\n", t.room)
		fmt.Fprintln(w, "| pattern | taught by | what went wrong, measured | beside it, payonce | the cure |")
		fmt.Fprintln(w, "| --- | --- | --- | --- | --- |")
		for _, f := range t.findings {
			fmt.Fprintf(w, "| [%s](%s.go) | %s | %s | %s | %s |\n", escape(f.exhibit.pattern), f.exhibit.name,
				f.exhibit.taught, escape(f.wrong.String()), f.beside(), links(f.exhibit.cure))
		}
	}
	fmt.Fprintln(w)
	for i, a := range articles {
		fmt.Fprintf(w, "- [%d] %s\n", i+1, a)
	}
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// links makes links of the files that a cure names.
func links(cure string) string {
	words := strings.Fields(cure)
	for i, word := range words {
		if path := strings.TrimRight(word, ",:;"); strings.Contains(path, "/") {
			words[i] = fmt.Sprintf("[%s](../../%s)%s", path[strings.LastIndex(path, "/")+1:], path, word[len(path):])
		}
	}
	return strings.Join(words, " ")
}

// wrap breaks a text into lines.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}
