package http

import (
	"bytes"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"example.com/payonce/internal/cards"
)

// A card number that a client sends by mistake is refused wherever it is: in the body, in
// the key and in a path. The service must not keep it, so it must not be in a row, a log
// line or a response either. What refuses it is one check of the whole body and no rule of
// each field, so that a new field cannot be forgotten.

const (
	cardMessage = "must not contain a card number"
	cardInKey   = "A key must not contain what looks like a card number."
)

// withoutCards refuses a body in which a text or a name looks like a card number. The body
// has been decoded, so it is valid.
func withoutCards(body []byte) error {
	if !cards.Possible(body) {
		return nil
	}
	var c checks
	tokens := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		token, err := tokens.ReadToken()
		if err == io.EOF { //nolint:errorlint // documented to be returned unwrapped
			return c.err()
		}
		if err != nil {
			return invalidBody([]fieldError{{Message: "is not valid JSON"}})
		}
		if token.Kind() == '"' && cards.NumberIn(token.String()) {
			c.fail(string(tokens.StackPointer()), cardMessage)
		}
	}
}

// parameterMax is the longest name of a parameter that an error repeats. No parameter of ours is as long, and whoever sends one
// of many KiB has it searched for card numbers.
const parameterMax = 200

// withoutCardsIn returns the errors without the card numbers that are in their places: a
// pointer contains the names of members, which are the client's. It ends before such a name.
func withoutCardsIn(list []fieldError) []fieldError {
	copied := false
	for i, at := range list {
		if len(at.Parameter) > parameterMax {
			if !copied {
				list, copied = append([]fieldError(nil), list...), true
			}
			at.Parameter, list[i].Parameter = "", ""
		}
		if !cards.NumberIn(at.Pointer) && !cards.NumberIn(at.Parameter) {
			continue
		}
		if !copied {
			list, copied = append([]fieldError(nil), list...), true
		}
		for cards.NumberIn(list[i].Pointer) {
			list[i].Pointer = list[i].Pointer[:strings.LastIndexByte(list[i].Pointer, '/')]
		}
		if cards.NumberIn(at.Parameter) {
			list[i].Parameter = ""
		}
	}
	return list
}
