package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"example.com/payonce/internal/cards"
	"example.com/payonce/internal/terminal"
)

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
			b.WriteString(terminal.Text(cell))
		}
		b.WriteString(line[len(text):])
	}
	_, err := io.WriteString(w.Writer, b.String())
	return len(p), err
}

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
		case !terminal.Unprintable(r):
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
	case strings.IndexFunc(text, terminal.Unprintable) >= 0 || !utf8.ValidString(text):
		return fmt.Errorf("%s must consist of printable characters", what)
	}
	return nil
}
