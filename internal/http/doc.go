// Package http is the HTTP edge and nothing else: it authenticates, limits,
// parses, validates and takes fingerprints, hands over to package payments, and
// writes what comes back. Importers call it httpapi.
//
// What is wrong with a request is judged in a fixed order: route, API key, size,
// media type, Idempotency-Key, body. Only then is the key looked up, so that a
// refused request has left no trace and the same key is good for the corrected
// one.
//
// Every POST that changes something is declared in the route table together
// with its operation; there is no other way to add one (routes.go).
package http
