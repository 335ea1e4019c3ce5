// Package http is the HTTP edge and nothing else: it authenticates, limits, parses,
// validates and fingerprints requests, passes them to package payments, and writes the
// responses. Importers call it httpapi.
//
// A request is checked in a fixed order: route, API key, size, media type,
// Idempotency-Key, body. Only then is the key looked up, so that a refused request
// changes nothing and the same key can be used for the corrected one.
//
// Each resource has one file with its routes, its parsing and its reads: orders.go,
// payments.go, refunds.go and so on. routes.go lists them. Every POST that changes
// something names its operation in its route; a POST cannot be added without one.
// idempotency.go is what all of them share: look the key up, then replay, refuse,
// resume or start.
package http
