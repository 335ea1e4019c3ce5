package idempotency

import (
	"encoding/json"
	"fmt"
)

// Decode reads a request that this program encoded and stored (Request.Body, Claim.Request). It panics if it cannot:
// the HTTP edge has validated what a client sent, so such a row is a bug of ours, and a guess could move money.
func Decode[T any](body []byte) T {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		panic(fmt.Sprintf("bug: a stored request cannot be decoded as %T: %v", v, err))
	}
	return v
}

// Encode is the inverse of Decode, for a request that this program makes itself.
func Encode(request any) []byte {
	body, err := json.Marshal(request)
	if err != nil {
		panic(fmt.Sprintf("bug: a request cannot be encoded as %T: %v", request, err))
	}
	return body
}
