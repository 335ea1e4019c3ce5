package postgres

import "strings"

const errorTextMax = 1000 // bytes of an error worth keeping in a row

// ErrorText is err as a text column takes it: an error may quote what a stranger
// sent, and a failure that cannot be recorded would be tried again for ever.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return Text(text[:min(len(text), errorTextMax)])
}

// Text is a stranger's text as a text column takes it: PostgreSQL refuses NUL and
// invalid UTF-8.
func Text(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
}
