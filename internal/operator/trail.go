package operator

import (
	"net/http"

	"example.com/payonce/db"
)

// trailMax is how many actions the audit trail shows.
const trailMax = 100

// actionPage is one action of the audit trail; it is also where a form leads.
type actionPage struct {
	db.OperatorAction
	Back string
}

func (s *Server) action(w http.ResponseWriter, r *http.Request) {
	row, err := s.o.Pool.OperatorActionGet(r.Context(), r.PathValue("id"))
	if err != nil {
		s.renderReadError(w, r, err)
		return
	}
	page := actionPage{row, nextOf(r.FormValue("back"))}
	s.render(w, r, http.StatusOK, "action", actionLabel(row.Kind, row.Subject), page)
}

func (s *Server) actions(w http.ResponseWriter, r *http.Request) {
	rows, err := s.o.Pool.OperatorActionsLatest(r.Context(), trailMax)
	if err != nil {
		s.renderReadError(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "actions", "Audit trail", actionsPanel{List: rows})
}

// outcomeOf is empty for an action without an outcome, which only a row that is being
// written can be.
func outcomeOf(a db.OperatorAction) string {
	if a.Outcome == nil {
		return ""
	}
	return string(*a.Outcome)
}
