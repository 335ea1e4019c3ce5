package operator

import (
	"context"
	"net/http"
	"strings"

	"example.com/payonce/db"
)

// find redirects to the page of an id: one of ours, one of Stripe's, or a caller's key.
// The form uses POST, so that a key appears in no address, history or access log.
func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	term := strings.TrimSpace(r.PostFormValue("what"))
	var err error
	switch {
	case term == "" || len(term) > 255 || strings.ContainsRune(term, 0):
		s.renderError(w, r, http.StatusBadRequest, "Enter an id or a key.",
			"The id of an order, payment, refund or checkout; a pi_… or ch_… of Stripe; or an idempotency key.")
		return
	case isObjectID(term):
		var tenants []string
		if tenants, err = s.o.Pool.OperatorFindObject(ctx, term); err == nil && len(tenants) > 0 {
			http.Redirect(w, r, objectHref(tenants[0], term), http.StatusSeeOther)
			return
		}
	case strings.HasPrefix(term, "pi_"), strings.HasPrefix(term, "ch_"):
		if s.findAtStripe(ctx, w, r, term) {
			return
		}
	}
	if err == nil {
		err = s.findKey(ctx, w, r, term) // A caller may use anything as a key, also what looks like an id.
	}
	if err != nil {
		s.renderReadError(w, r, err)
	}
}

// findAtStripe reads the intent from Stripe, whose metadata name the tenant and the
// order, because this database has no index on it. Only if Stripe cannot be read are
// the rows of this database scanned.
func (s *Server) findAtStripe(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) bool {
	isIntent := strings.HasPrefix(id, "pi_")
	if isIntent && s.findIntent(ctx, w, r, id) {
		return true
	}
	rows, err := s.o.Pool.OperatorFindAtStripe(ctx, id)
	switch {
	case err == nil && len(rows) > 0:
		http.Redirect(w, r, objectHref(rows[0].TenantID, rows[0].ID), http.StatusSeeOther)
	case isIntent:
		// The intent's page shows why Stripe could not be read.
		http.Redirect(w, r, "/operator/intents/"+id, http.StatusSeeOther)
	default:
		return false
	}
	return true
}

// findIntent redirects to the order if both sides agree, else to the intent's page,
// which shows the difference. False: Stripe could not be read.
func (s *Server) findIntent(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) bool {
	// Half of the time, so that enough is left for the database if Stripe is slow.
	reading, cancel := context.WithTimeout(ctx, stripeWithin/2)
	defer cancel()
	view, err := s.o.Payments.Repairs().CompareIntent(reading, id)
	if err != nil {
		return false
	}
	href := "/operator/intents/" + id
	if view.Agrees {
		_, err := s.o.Pool.OrderGet(ctx, db.OrderGetParams{TenantID: view.Intent.TenantID, ID: view.Intent.OrderID})
		if err == nil {
			href = objectHref(view.Intent.TenantID, view.Intent.OrderID)
		}
	}
	http.Redirect(w, r, href, http.StatusSeeOther)
	return true
}
