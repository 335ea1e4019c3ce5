package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/payonce/internal/cards"
)

// forTerminal is text from outside as a terminal may show it. A tenant or a customer chooses metadata and references,
// and Stripe and the database quote them in errors. An escape sequence in one could overwrite the line above, which
// says that something is wrong, and a bidirectional control could reorder it. So what is not printable is escaped, as
// in a literal of Go.
func forTerminal(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s { // a byte that is not UTF-8 is U+FFFD
		switch {
		case !unprintable(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// linesForTerminal writes lines, and the tabs that indent them, as a terminal may show them. A write is whole lines.
type linesForTerminal struct{ io.Writer }

func (w linesForTerminal) Write(p []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(p)) {
		text := strings.TrimSuffix(line, "\n")
		for i, cell := range strings.Split(text, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(forTerminal(cell))
		}
		b.WriteString(line[len(text):])
	}
	_, err := io.WriteString(w.Writer, b.String())
	return len(p), err
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// printJSON prints one line. Its values are the same as without the escapes: JSON has its own, of which the encoder uses
// only those that it must.
func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case !unprintable(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default: // two surrogates
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}

// checkText refuses text that a command would store: a card number, or what a terminal would not print as it is.
func checkText(what, text string) error {
	switch {
	case cards.NumberIn(text):
		return fmt.Errorf("%s must not contain a card number", what)
	case strings.IndexFunc(text, unprintable) >= 0 || !utf8.ValidString(text):
		return fmt.Errorf("%s must consist of printable characters", what)
	}
	return nil
}
