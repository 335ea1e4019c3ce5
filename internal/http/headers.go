package http

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/payonce/internal/cards"
)

// The two request headers that concern keys, parsed without looking anything up.

const (
	keyMax  = 200
	waitMax = 10 * time.Second
)

// idempotencyKey reads the key of a request. It may be bare (abc) or a structured-field
// string ("abc", RFC 9651); both are the same key. It is not trimmed and its case is
// not folded, because two keys that differ must never become one.
func idempotencyKey(h http.Header) (string, error) {
	lines := h.Values("Idempotency-Key")
	switch {
	case len(lines) == 0:
		return "", &problem{code: codeIdempotencyKeyMissing, detail: "A POST needs the header Idempotency-Key."}
	case len(lines) > 1:
		return "", badKey("The header Idempotency-Key was sent more than once.")
	}
	key := lines[0]
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem(lines)
		quoted, isString := item.Value.(string)
		if err != nil || !isString || len(item.Params.Names()) > 0 {
			return "", badKey("A key that begins with a quote must be a string of RFC 9651, without parameters.")
		}
		key = quoted
	}
	return key, checkKey(key)
}

// checkKey accepts only characters that look the same in a header, a log, a path and
// Stripe's dashboard. The length leaves room for what the service adds before it passes
// the key on to Stripe, whose limit is 255.
func checkKey(key string) error {
	if key == "" || len(key) > keyMax {
		return badKey("A key has 1 to 200 characters.")
	}
	for _, b := range []byte(key) {
		if b < '!' || b > '~' {
			return badKey("A key consists of visible ASCII characters.")
		}
	}
	if cards.NumberIn(key) {
		return badKey(cardInKey)
	}
	return nil
}

func badKey(detail string) error { return &problem{code: codeIdempotencyKeyInvalid, detail: detail} }

// preferredWait reads Prefer: wait=N (RFC 7240), the time that a duplicate is willing to
// wait for the first request's response. A malformed preference is ignored, as the RFC
// requires.
func preferredWait(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value, _, _ = strings.Cut(value, ";")
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err != nil && !errors.Is(err, strconv.ErrRange) { // Out of range, seconds is the largest number.
				return 0
			}
			return min(time.Duration(seconds)*time.Second, waitMax)
		}
	}
	return 0
}
