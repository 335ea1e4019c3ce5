package postgres

import "strings"

const errorTextMax = 1000 // bytes of an error worth keeping in a row

// ErrorText is err as a text column accepts it: an error may quote what a client sent, and a failure that cannot be recorded
// would be retried for ever.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return Text(text[:min(len(text), errorTextMax)])
}

// Text is untrusted text as a text column accepts it: PostgreSQL rejects NUL and invalid UTF-8.
func Text(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
}
