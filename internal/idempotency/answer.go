package idempotency

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// Answer is what a client receives. A final answer is stored and replayed byte for
// byte; an interim one is true now and may be different at the next request.
type Answer struct {
	Status      int
	ContentType string
	Location    string // empty: none
	Body        []byte
}

// answerVersion says how headers are encoded in the row. A program that meets a
// version it does not know must refuse to replay, not guess.
const answerVersion = 1

// encodeHeaders writes the headers that belong to the answer, sorted by name.
// The list is closed: whatever describes one delivery (Date, Request-Id,
// Set-Cookie, anything hop-by-hop) must not be replayed.
func (a Answer) encodeHeaders() ([]byte, error) {
	var b strings.Builder
	for _, h := range []struct{ name, value string }{{"Content-Type", a.ContentType}, {"Location", a.Location}} {
		if strings.ContainsAny(h.value, "\r\n\x00") {
			return nil, fmt.Errorf("header %s holds a line break", h.name)
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
			return Answer{}, errors.New("stored answer has a broken header")
		}
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Content-Type":
			a.ContentType = value
		case "Location":
			a.Location = value
		default:
			return Answer{}, fmt.Errorf("stored answer has the header %q, which is not replayed", name)
		}
		rest = after
	}
	return a, nil
}
