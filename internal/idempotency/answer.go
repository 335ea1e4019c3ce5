package idempotency

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// Answer is the response to a client. A final one is stored and replayed byte for byte; an interim one shows the
// present state, and may be different at the next request.
type Answer struct {
	Status      int
	ContentType string
	Location    string // empty: none
	Body        []byte
}

// answerVersion is the encoding of headers in the row. A program that reads an unknown version must fail: a response
// that is not byte for byte the stored one could contradict it.
const answerVersion = 1

// encodeHeaders writes the headers that are part of the answer, sorted by name. The list is closed: headers of one
// delivery (Date, Request-Id, Set-Cookie, all hop-by-hop headers) must not be replayed.
func (a Answer) encodeHeaders() ([]byte, error) {
	var b strings.Builder
	for _, h := range []struct{ name, value string }{{"Content-Type", a.ContentType}, {"Location", a.Location}} {
		if strings.ContainsAny(h.value, "\r\n\x00") {
			return nil, fmt.Errorf("header %s contains a line break", h.name)
		}
		if h.value != "" {
			b.WriteString(h.name + ": " + h.value + "\r\n")
		}
	}
	return []byte(b.String()), nil
}

func decodeAnswer(version, status int, headers, body []byte) (Answer, error) {
	if version != answerVersion {
		return Answer{}, fmt.Errorf("stored answer has version %d, this program reads %d", version, answerVersion)
	}
	a := Answer{Status: status, Body: body}
	for rest := string(headers); rest != ""; {
		line, after, ok := strings.Cut(rest, "\r\n")
		name, value, colon := strings.Cut(line, ": ")
		if !ok || !colon {
			return Answer{}, errors.New("stored answer has a malformed header")
		}
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Content-Type":
			a.ContentType = value
		case "Location":
			a.Location = value
		default:
			return Answer{}, fmt.Errorf("stored answer has the header %q, which must not be replayed", name)
		}
		rest = after
	}
	return a, nil
}
