package operator

import (
	"context"
	"net/http"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/keyhistory"
)

// history is what happened under one idempotency key. A caller's key is not shown.
type history struct {
	keyhistory.History
	KeyHash  string
	Internal bool // a key of the service itself, which may be shown
}

// historyOf reads the history of a key. Keys of the service contain a space, which no
// caller's key can.
func (s *Server) historyOf(ctx context.Context, tenantID, key string) (history, error) {
	found, err := s.o.History.GetAny(ctx, tenantID, key)
	return history{History: found, KeyHash: idempotency.HashForLog(key), Internal: strings.Contains(key, " ")}, err
}

// StripeKey is the idempotency key that was sent to Stripe, without the caller's part.
func (h history) StripeKey(c keyhistory.Call) string {
	if h.Internal {
		return c.StripeKey
	}
	return strings.Replace(c.StripeKey, ":"+h.Key+":", ":…:", 1)
}

// keyPage is the history of a key in each tenant that has used it, and the orders of a customer reference: nothing tells
// one from the other.
type keyPage struct {
	Histories []tenantHistory
	Orders    []db.OperatorFindReferenceRow
	MoreThan  int // so many orders are shown, and there may be more; 0: all are
}

type tenantHistory struct {
	TenantID string
	history
}

// findKey shows the history of a key and the orders of a customer reference. It is the last thing
// that find tries.
func (s *Server) findKey(ctx context.Context, w http.ResponseWriter, r *http.Request, key string) error {
	rows, err := s.o.Pool.OperatorFindKey(ctx, db.OperatorFindKeyParams{Key: key, LimitRows: historiesMax})
	if err != nil {
		return err
	}
	var page keyPage
	for _, row := range rows {
		h, err := s.historyOf(ctx, row.TenantID, row.Key)
		if err != nil {
			return err
		}
		page.Histories = append(page.Histories, tenantHistory{row.TenantID, h})
	}
	page.Orders, err = s.o.Pool.OperatorFindReference(ctx, db.OperatorFindReferenceParams{
		Reference: key, LimitRows: paymentsMax,
	})
	if err != nil {
		return err
	}
	if len(page.Orders) == paymentsMax {
		page.MoreThan = paymentsMax
	}
	switch {
	case len(page.Histories) == 0 && len(page.Orders) == 0 && isStripeID(key):
		s.renderError(w, r, http.StatusNotFound, "Nothing found.",
			"No key and no customer reference is the same, and none of the newest payments has this id. Older payments are "+
				"found by their PaymentIntent, which Stripe’s dashboard shows.")
	case len(page.Histories) == 0 && len(page.Orders) == 0:
		s.renderError(w, r, http.StatusNotFound, "Nothing found.",
			"Nothing here has this id, no order names it as its customer reference, and no tenant has used it as a key. "+
				"Keys are kept for ten years, so a key that is not here was never used.")
	case len(page.Histories) == 0:
		s.render(w, r, http.StatusOK, "key", "Orders of a customer", page)
	default:
		s.render(w, r, http.StatusOK, "key", "Key history", page)
	}
	return nil
}
