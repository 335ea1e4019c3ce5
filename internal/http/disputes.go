package http

import (
	"errors"
	"net/http"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/ids"
)

// disputesPart only reads: a dispute is answered in Stripe's dashboard.
func disputesPart() part {
	return part{
		routes: func(s *Server) []route {
			return []route{
				{method: "GET", pattern: "/v1/disputes", handle: s.listDisputes, query: true},
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
	f := disputes.Filter{PaymentID: q.Get("payment_id"), OrderID: q.Get("order_id"), Status: q.Get("status")}
	if err == nil {
		err = idFilter(q, "payment_id", ids.Payment)
	}
	if err == nil {
		err = idFilter(q, "order_id", ids.Order)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Disputes.List(r.Context(), tenantOf(r).id, f, q.Get("starting_after"), limit)
	if errors.Is(err, disputes.ErrUnknownStatus) { // Stripe decides which there are.
		err = badQuery("status", "must be a status that Stripe's disputes have")
	}
	showList(s, w, r, list, more, err)
}
