package http

import (
	"net/http"
	"net/url"

	"example.com/payonce/internal/disputes"
)

// disputesPart only reads: a dispute is answered in Stripe's dashboard.
func disputesPart() part {
	return part{
		routes: func(s *Server) []route {
			return []route{
				{method: "GET", pattern: "/v1/disputes", handle: s.listDisputes},
				{method: "GET", pattern: "/v1/disputes/{id}", handle: s.getDispute},
			}
		},
		served: func(s *Server) bool { return s.o.Disputes != nil },
	}
}

func (s *Server) getDispute(w http.ResponseWriter, r *http.Request) {
	dispute, err := s.o.Disputes.Get(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, dispute, err)
}

func (s *Server) listDisputes(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "payment_id", "order_id", "status", "starting_after")
	if err == nil {
		err = notEmpty(q, "payment_id", "order_id", "status")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Disputes.List(r.Context(), tenantOf(r).id, disputes.Filter{
		PaymentID: q.Get("payment_id"), OrderID: q.Get("order_id"), Status: q.Get("status"),
	}, q.Get("starting_after"), limit)
	showList(s, w, r, list, more, err)
}

// notEmpty refuses a filter without a value: a client that has none to send does not ask for everything.
func notEmpty(q url.Values, filters ...string) error {
	for _, name := range filters {
		if q.Has(name) && q.Get(name) == "" {
			return badQuery(name, "must not be empty")
		}
	}
	return nil
}
