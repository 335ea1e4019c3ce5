package http

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"

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

// disputeFilters has no list of statuses: Stripe may add to them.
var disputeFilters = map[string]*regexp.Regexp{
	"payment_id": regexp.MustCompile(`^pay_[0-9a-v]{26}$`), "order_id": regexp.MustCompile(`^ord_[0-9a-v]{26}$`),
	"status": regexp.MustCompile(`^[a-z_]{1,64}$`),
}

func (s *Server) listDisputes(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "payment_id", "order_id", "status", "starting_after")
	if err == nil {
		err = checkFilters(q, disputeFilters)
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

// checkFilters refuses a filter whose value cannot be one, such as none at all, because a list that is empty for a typing
// error looks like good news.
func checkFilters(q url.Values, filters map[string]*regexp.Regexp) error {
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		if q.Has(name) && !filters[name].MatchString(q.Get(name)) {
			return badQuery(name, "must match "+filters[name].String())
		}
	}
	return nil
}
