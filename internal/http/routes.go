package http

import "net/http"

// route is one line of the API. A POST names its operation and how its request is
// parsed, or says why it needs no key. There is no third way:
// TestEveryPostDeclaresItsIdempotency sees to that.
type route struct {
	method, pattern string

	operation string // of a POST with an Idempotency-Key
	parse     parse
	handle    http.HandlerFunc // of everything else

	// open routes need no API key. keyless says why a POST needs no
	// Idempotency-Key.
	open    bool
	keyless string
}

// part is what one resource adds to the API. Each resource declares its part in its
// own file, so that a service without the resource is one without the file and
// without its line in parts.
type part struct {
	routes func(*Server) []route

	// A part brings the problems that only it can cause; those of the rest are in
	// problem_types.go and problem.go.
	problems   []problemType
	problemFor func(error) *problem // nil for an error that is none of the part's
}

func parts() []part {
	return []part{
		ordersPart(),
		paymentsPart(),
		refundsPart(),
		checkoutsPart(), // and stock.go
		keysPart(),
		eventsPart(),
		webhooksPart(),
		healthPart(),
		docsPart(),
	}
}

func (s *Server) routes() []route {
	var all []route
	for _, p := range parts() {
		all = append(all, p.routes(s)...)
	}
	return all
}
