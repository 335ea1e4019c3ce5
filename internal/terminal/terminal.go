// Package terminal makes text from outside fit for a terminal.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
)

// Text is text from outside as a terminal may show it. A tenant or a customer chooses metadata and references,
// and Stripe and the database quote them in errors. An escape sequence in one could overwrite the line above, which
// says that something is wrong, and a bidirectional control could reorder it. So what is not printable is escaped, as
// in a literal of Go.
func Text(s string) string {
	if strings.IndexFunc(s, Unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s { // a byte that is not UTF-8 is U+FFFD
		switch {
		case !Unprintable(r):
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

// Unprintable reports whether a terminal may do something else with r than show it.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) }
