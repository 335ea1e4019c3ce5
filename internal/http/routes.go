package http

import "net/http"

// route is one method of one path. A POST names its operation and how its request is
// parsed, or the reason why it needs no key, because a retry of a POST without either
// would be executed twice. TestEveryPostDeclaresItsIdempotency checks that.
type route struct {
	method, pattern string

	operation string // of a POST with an Idempotency-Key
	parse     parse
	handle    http.HandlerFunc // of all other routes

	query    bool   // a GET that reads its query (readQuery); the others have no parameters
	open     bool   // needs no API key
	document bool   // open, and the same for every client
	keyless  string // the reason why a POST needs no Idempotency-Key
}

// part is what one resource adds to the API. Each resource declares its part in its own
// file. To remove the resource from a service, delete the file and its line in parts.
type part struct {
	routes func(*Server) []route
	// served is false if Options lacks what the part needs; its routes then answer 404.
	// Nil: the part is always served.
	served func(*Server) bool

	// Problems that only this part can cause. All others are in problem_types.go and
	// problem.go.
	problems   []problemType
	problemFor func(error) *problem // nil if the error is not one of this part's
}

// parts lists all resources. It is a function and not a variable, because the handlers
// refer to the problems and the problems come from here.
func parts() []part {
	return []part{
		ordersPart(),
		paymentsPart(),
		refundsPart(),
		disputesPart(),  // part: disputes
		checkoutsPart(), // part: checkouts
		ownPart(),
		keysPart(),             // part: history
		eventsPart(),           // part: events
		webhookEndpointsPart(), // part: webhooks
		webhooksPart(),
		healthPart(),
		docsPart(), // part: docs
	}
}

// routes are the routes of all parts, whether or not they are served.
func (s *Server) routes() []route {
	var all []route
	for _, p := range parts() {
		all = append(all, p.routes(s)...)
	}
	return all
}

// servedRoutes are the routes of the parts that the service was wired with.
func (s *Server) servedRoutes() []route {
	var all []route
	for _, p := range parts() {
		if p.served == nil || p.served(s) {
			all = append(all, p.routes(s)...)
		}
	}
	return all
}
