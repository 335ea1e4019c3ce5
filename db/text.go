package db

import "strings"

const errorTextMax = 1000 // bytes of an error worth keeping in a row

// ErrorText is err as a text column takes it. An error may quote what a stranger
// sent, and PostgreSQL refuses NUL and invalid UTF-8; a failure that cannot be
// recorded would be tried again for ever.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), errorTextMax)], "?")
}
