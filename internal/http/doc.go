// Package http is the HTTP edge and nothing else: it authenticates, limits, parses,
// validates and fingerprints requests, hands them to package payments, and writes the
// answers. Importers call it httpapi.
//
// A request is checked in a fixed order: route, API key, size, media type,
// Idempotency-Key, body. Only then is the key looked up, so that a refused request
// leaves no trace and the same key can be used for the corrected one.
//
// Every POST that changes something is declared in the route table together with its
// operation; there is no other way to add one (routes.go). idempotency.go is what all
// of them go through: look the key up, then replay, refuse, resume or begin.
package http
