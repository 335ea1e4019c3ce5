package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// intentPage shows a PaymentIntent as Stripe has it now, compared with this database.
type intentPage struct {
	ID        string
	View      payments.IntentView
	ReadError string     // why Stripe could not be read
	Work      []workItem // unfinished refunds of a charge that matches no payment
	Histories []history  // of all such refunds
	Actions   []db.OperatorAction
}

// Agrees reports whether Stripe and this database agree about the intent.
func (p *intentPage) Agrees() bool { return p.View.Agrees }

// Summary is the sentence at the top of the page.
func (p *intentPage) Summary() string {
	switch i := p.View.Intent; {
	case len(p.Work) > 0:
		return "Refund in progress."
	case p.View.Adoptable:
		return "Charged at Stripe, missing in this database."
	case p.View.Unregistered:
		return "Unknown to this service."
	case p.View.Left > 0:
		return "This charge matches no payment."
	case i.ReceivedMinor > 0 && i.ReceivedMinor == i.RefundedMinor:
		return "Fully refunded."
	case p.Agrees():
		return "Stripe and this database agree."
	}
	return "Check the details."
}

// Severity is the colour of the summary.
func (p *intentPage) Severity() string {
	switch {
	case p.View.Adoptable || p.View.Left > 0 && len(p.Work) == 0:
		return "bad"
	case len(p.Work) == 0 && p.Agrees():
		return "good"
	}
	return "warn"
}

// intent reads from Stripe at every visit: what a page showed an hour ago is no basis
// for a refund.
func (s *Server) intent(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	page := &intentPage{ID: r.PathValue("id")}
	if !strings.HasPrefix(page.ID, "pi_") {
		s.renderReadError(w, r, payments.ErrNotFound)
		return
	}
	var err error
	page.View, err = s.o.Payments.Repairs().CompareIntent(ctx, page.ID)
	switch {
	case errors.Is(err, stripe.ErrNoSuchObject):
		page.ReadError = "Stripe has no PaymentIntent with this id in the account and mode of STRIPE_SECRET_KEY."
	case err != nil:
		page.ReadError = "Stripe could not be reached: " + postgres.ErrorText(err)
	}
	if page.ReadError == "" {
		err = s.readOrphanRefunds(ctx, page)
	} else {
		err = nil // The page shows it; the audit trail below can still be read.
	}
	if err == nil {
		page.Actions, err = s.o.Pool.OperatorActionsOf(ctx, db.OperatorActionsOfParams{
			Subjects: []string{page.ID}, LimitRows: actionsMax,
		})
	}
	if err != nil {
		s.renderReadError(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "intent", page.ID, page)
}

// readOrphanRefunds adds the refunds of a charge that matches no payment. They have no
// row in refunds, only a key of their own.
func (s *Server) readOrphanRefunds(ctx context.Context, page *intentPage) error {
	var open []string
	for _, refund := range page.View.Refunds {
		h, err := s.historyOf(ctx, page.View.Intent.TenantID, refund.Key)
		if err != nil {
			return err
		}
		page.Histories = append(page.Histories, h)
		if refund.FinishedAt == nil {
			open = append(open, refund.Key)
		}
	}
	if len(open) == 0 {
		return nil
	}
	now, err := s.o.Pool.OutboxNow(ctx)
	if err != nil {
		return err
	}
	rows, err := s.o.Pool.OperatorWork(ctx, db.OperatorWorkParams{
		ScanMax: scanMax, LimitRows: workMax, TenantID: page.View.Intent.TenantID, Keys: open,
	})
	page.Work = withoutAdvice(workItems(rows, now))
	return err
}

// intentOfRefundKey returns the PaymentIntent in the key of such a refund: the key is
// "<operation> <intent>", with ":<n>" after a rejected refund.
func intentOfRefundKey(key string) string {
	_, intent, _ := strings.Cut(key, " ")
	intent, _, _ = strings.Cut(intent, ":")
	return intent
}
