// Package idemcheck asks an HTTP API what it promises about idempotency keys, and holds it to that.
//
// A [Profile] says how the API is called, which header has the key, which responses it promises, and how effects are
// counted: at a URL of the API or of what stands behind it, or by a command. Nothing is believed that the API says of
// itself: a check whose effects cannot be counted is not asked, and never passes.
//
// The statuses that a profile does not name are those of draft-ietf-httpapi-idempotency-key-header-07: 400 for a missing
// key (section 2.7), 409 while the first request is in progress and 422 for another request (section 2.7).
//
// Every check is bounded: by the number of its requests, and by a deadline.
package idemcheck
