// Package idemcheck asks an HTTP API what it promises about idempotency keys, and holds it to that.
//
// A [Profile] says how the API is called, which header has the key, which responses it promises, and how effects are
// counted: at a URL of the API or of what stands behind it, or by a command. Nothing is believed that the API says of
// itself: a check whose effects cannot be counted is not asked, and never passes.
//
// The statuses that a profile does not name are those of draft-ietf-httpapi-idempotency-key-header-07: 400 for a missing
// key (section 2.7), 409 while the first request is in progress and 422 for another request (section 2.7).
//
// Duplicates count as such only if they overlapped: all of them have connections before the first is sent, and the report
// says how many were sent before the first response. A client that leaves has sent its whole request. Effects may come
// after the response, so a count is believed when it has not changed for the profile's time.
//
// Unless it is told that it may go anywhere, it connects to this machine only, and follows no redirect.
//
// Every check is bounded: by the number of its requests, and by a deadline.
package idemcheck
