package main

import (
	"context"
	"net/http"
)

// Insert the payment; if it is there already, it was done: say so.
//
// Who teaches it: [2], whose worker creates the row, calls the gateway, and takes
// a violated unique index for "it ran before, move on". It looks right because
// no customer is ever charged twice, and because it even gives the provider a key.
//
// Why it fails: the row says that a process began. If that process was killed before
// the gateway was called, every retry believes it was done. The order ships, and
// the money never comes. It is the quietest bug in this house: no customer
// complains about it.
//
// The cure: begun and finished are two different things in the row, and what
// was begun is taken up from its last recovery point.
var existsMeansDone = exhibit{
	name: "exists_means_done", pattern: "\"the row exists\" taken for \"it was done\"", taught: "[2]",
	cure:     "internal/payments/payment_resume.go: recovery points",
	scenario: crashBeforeCharge, shows: neverCharged,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE charges (order_id text PRIMARY KEY, body bytea NOT NULL)`)
		return shop{Pay: func(ctx context.Context, r request) answer {
			a := receipt(r, "")
			if exec(ctx, s.DB, `INSERT INTO charges VALUES ($1, $2) ON CONFLICT DO NOTHING`, r.Order, a.Body) == 0 {
				found(s.DB.QueryRow(ctx, `SELECT body FROM charges WHERE order_id = $1`, r.Order), &a.Body)
				return answer{http.StatusCreated, a.Body}
			}
			s.charge(ctx, "charge_"+r.Order, r)
			return a
		}}
	},
}
