package operator

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
)

const (
	// tenantsMax is in how many tenants' rows an id is searched that no index has: of a registered operation, and of a
	// charge or PaymentIntent, of which the newest payments are searched.
	tenantsMax = 1000
	newestMax  = 100_000 // of all tenants together
	termMax    = 4 * 200 // bytes of the longest term, a customer reference
)

// findPage is the form alone. NotAnID: the address had something that is not an id.
type findPage struct{ NotAnID bool }

// findForm takes an id from the address, so that a link to it can be shared. Anything
// else may be a caller's key and is not searched for: people would share that address.
func (s *Server) findForm(w http.ResponseWriter, r *http.Request) {
	term := strings.TrimSpace(r.URL.Query().Get("q"))
	if !isOwnID(term) && !stripeID.MatchString(term) {
		s.render(w, r, http.StatusOK, "find", "Find", findPage{NotAnID: term != ""})
		return
	}
	s.findTerm(w, r, term, false)
}

// stripeID is what an id looks like at Stripe: of a PaymentIntent, a charge, a refund or a dispute.
var stripeID = regexp.MustCompile(`^(pi|ch|py|re|pyr|du|dp)_[A-Za-z0-9]{8,64}$`)

// find takes an id or a key from the form, which uses POST, so that a key appears in no
// address, history or access log.
func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	s.findTerm(w, r, strings.TrimSpace(r.PostFormValue("what")), true)
}

// findTerm redirects to the page of an id: one of ours, one of Stripe's, or one of a
// registered operation. A key's history it shows itself.
func (s *Server) findTerm(w http.ResponseWriter, r *http.Request, term string, keysToo bool) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	var err error
	switch {
	case term == "" || len(term) > termMax || strings.ContainsRune(term, 0) || !utf8.ValidString(term):
		s.renderError(w, r, http.StatusBadRequest, "Enter an id, a key or a customer reference.",
			"An id of ours: ord_, pay_, rfd_, dsp_, chk_; one of Stripe: pi_, ch_, re_, du_; an idempotency key; or the "+
				"customer_reference of an order.")
		return
	case isObjectID(term):
		var tenants []string
		if tenants, err = s.o.Pool.OperatorFindObject(ctx, term); err == nil && len(tenants) > 0 {
			redirect(w, r, objectHref(tenants[0], term))
			return
		}
	case isStripeID(term):
		if s.findAtStripe(ctx, w, r, term) {
			return
		}
	case strings.HasPrefix(term, "re_") || strings.HasPrefix(term, "pyr_"):
		var found []db.OperatorFindRefundRow
		if found, err = s.o.Pool.OperatorFindRefund(ctx, term); len(found) > 0 {
			redirect(w, r, objectHref(found[0].TenantID, found[0].ID))
			return
		}
	// part: disputes {
	case stripeDisputeID.MatchString(term):
		var found bool
		if found, err = s.findDispute(ctx, w, r, term); found {
			return
		}
	// part: disputes }
	case isOwnID(term):
		var tenant string
		if tenant, err = s.findOwn(ctx, term); tenant != "" {
			redirect(w, r, objectHref(tenant, term))
			return
		}
	}
	if err == nil && !keysToo {
		s.renderError(w, r, http.StatusNotFound, "Nothing found.", "No object has this id. Keys and customer references are found by the form.")
		return
	}
	if err == nil { // A caller may use anything as a key or a reference, also what looks like an id.
		err = s.findKey(ctx, w, r, term)
	}
	if err != nil {
		s.renderReadError(w, r, err)
	}
}

func isStripeID(id string) bool {
	return strings.HasPrefix(id, "pi_") || strings.HasPrefix(id, "ch_") || strings.HasPrefix(id, "py_")
}

// isOwnID reports whether an id could be of a registered operation, such as tip_….
func isOwnID(id string) bool {
	kind := ids.Kind(id)
	return kind != "" && ids.Is(kind, id)
}

// findOwn returns the tenant with a charge of a registered operation, or "". Such an
// operation reads its rows by tenant, so each tenant is tried.
func (s *Server) findOwn(ctx context.Context, id string) (string, error) {
	tenants, err := s.o.Pool.OperatorTenants(ctx, tenantsMax)
	if err != nil {
		return "", err
	}
	for _, tenant := range tenants {
		_, err := s.o.Payments.OrderOfCharge(ctx, tenant, id)
		switch {
		case err == nil:
			return tenant, nil
		case !errors.Is(err, payments.ErrNotFound):
			return "", err
		}
	}
	return "", nil
}

// redirect leads to another of these pages.
func redirect(w http.ResponseWriter, r *http.Request, href string) {
	//nolint:gosec // every href begins with /operator/, so it cannot lead to another host
	http.Redirect(w, r, href, http.StatusSeeOther)
}

// findNewest returns a payment of a PaymentIntent or charge, if it is among the newest.
func (s *Server) findNewest(ctx context.Context, id string) ([]db.OperatorFindAtStripeRow, error) {
	tenants, err := s.o.Pool.OperatorTenants(ctx, tenantsMax)
	if err != nil || len(tenants) == 0 {
		return nil, err
	}
	return s.o.Pool.OperatorFindAtStripe(ctx, db.OperatorFindAtStripeParams{
		TenantIds: tenants, NewestOfEach: newestMax / int32(len(tenants)), ID: id, //nolint:gosec // at most tenantsMax
	})
}

// findAtStripe reads the intent from Stripe, whose metadata name the tenant and the
// order, because this database has no index on it. Only a charge, and an intent if Stripe
// cannot be read, is searched for in this database, among the newest payments.
func (s *Server) findAtStripe(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) bool {
	isIntent := strings.HasPrefix(id, "pi_")
	if isIntent && s.findIntent(ctx, w, r, id) {
		return true
	}
	rows, err := s.findNewest(ctx, id)
	switch {
	case err == nil && len(rows) > 0:
		redirect(w, r, objectHref(rows[0].TenantID, rows[0].ID))
	case isIntent:
		// The intent's page shows why Stripe could not be read.
		redirect(w, r, "/operator/intents/"+url.PathEscape(id))
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
	href := "/operator/intents/" + url.PathEscape(id)
	if view.Agrees {
		_, err := s.o.Pool.OrderGet(ctx, db.OrderGetParams{TenantID: view.Intent.TenantID, ID: view.Intent.OrderID})
		if err == nil {
			href = objectHref(view.Intent.TenantID, view.Intent.OrderID)
		}
	}
	redirect(w, r, href)
	return true
}
