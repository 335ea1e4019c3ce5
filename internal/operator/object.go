package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

const (
	storiesMax  = 12
	paymentsMax = 50
)

// objectPage is everything that is known of one order, by whichever of its
// objects it was asked for.
type objectPage struct {
	Now      time.Time
	TenantID string
	ID       string // as asked for
	Order    *db.Order
	Payments []paymentView
	Checkout *payments.Checkout
	Work     []workItem
	Stories  []story
	Findings []db.Discrepancy
	Actions  []db.OperatorAction
}

type paymentView struct {
	db.Payment
	Refunds []db.Refund
}

// Left is what can still be refunded.
func (p paymentView) Left() int64 {
	if p.Status != db.PaymentStatusSucceeded {
		return 0
	}
	return p.AmountMinor - p.AmountRefundingMinor
}

// Open: it has not ended.
func (p paymentView) Open() bool {
	return p.Status == db.PaymentStatusProcessing || p.Status == db.PaymentStatusRequiresAction
}

// story is what happened under one key, without the key.
type story struct {
	payments.KeyStory
	KeyHash string
	Own     bool // a key of ours: nobody asked
}

// StripeKey is the key of a call to Stripe, without the caller's.
func (s story) StripeKey(c payments.StoryCall) string {
	if s.Own {
		return c.StripeKey
	}
	return strings.Replace(c.StripeKey, ":"+s.Key+":", ":…:", 1)
}

// isAnObject reports whether an id has a page.
func isAnObject(id string) bool {
	return slices.ContainsFunc([]string{"ord_", "pay_", "rfd_", "chk_"}, func(kind string) bool { return strings.HasPrefix(id, kind) })
}

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	page, err := s.readObject(ctx, r.PathValue("tenant"), r.PathValue("id"))
	if errors.Is(err, db.ErrNoRows) && strings.HasPrefix(r.PathValue("id"), "rfd_") {
		if key, err := s.o.Pool.OperatorOrphanRefund(ctx, db.OperatorOrphanRefundParams{TenantID: r.PathValue("tenant"), ID: r.PathValue("id")}); err == nil {
			http.Redirect(w, r, "/operator/intents/"+ghostOf(key), http.StatusSeeOther)
			return
		}
	}
	if err != nil {
		s.troubled(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "object", page.ID, page)
}

func (s *Server) readObject(ctx context.Context, tenantID, id string) (*objectPage, error) {
	q := s.o.Pool.Queries
	p := &objectPage{TenantID: tenantID, ID: id}
	var err error
	if p.Now, err = q.OutboxNow(ctx); err != nil {
		return nil, err
	}
	orderID, err := s.orderBehind(ctx, p)
	if err != nil {
		return nil, err
	}
	if orderID != "" {
		if err := p.readOrder(ctx, q, orderID); err != nil {
			return nil, err
		}
	}
	owners, err := q.OperatorOrderKeys(ctx, db.OperatorOrderKeysParams{TenantID: tenantID, OrderID: orderID, ID: id, LimitRows: storiesMax})
	if err != nil {
		return nil, err
	}
	subject := id
	if orderID != "" {
		subject = orderID
	}
	work, err := q.OperatorWork(ctx, db.OperatorWorkParams{ScanMax: scanMax, LimitRows: workMax, TenantID: tenantID, ResourceID: subject, Keys: owners})
	if err != nil {
		return nil, err
	}
	p.Work = told(workItems(work, p.Now))
	for _, item := range work {
		if !slices.Contains(owners, item.Key) {
			owners = append(owners, item.Key)
		}
	}
	for _, key := range owners {
		told, err := s.tell(ctx, tenantID, key)
		if err != nil {
			return nil, err
		}
		p.Stories = append(p.Stories, told)
	}
	p.Actions, err = q.OperatorActionsOf(ctx, db.OperatorActionsOfParams{Subjects: p.subjects(), LimitRows: actionsMax})
	return p, err
}

// orderBehind finds the order of an object; empty for a checkout that has made none.
func (s *Server) orderBehind(ctx context.Context, p *objectPage) (string, error) {
	q := s.o.Pool.Queries
	switch {
	case strings.HasPrefix(p.ID, "ord_"):
		return p.ID, nil
	case strings.HasPrefix(p.ID, "pay_"):
		row, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: p.TenantID, ID: p.ID})
		return row.OrderID, err
	case strings.HasPrefix(p.ID, "rfd_"):
		row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: p.TenantID, ID: p.ID})
		return row.OrderID, err
	case strings.HasPrefix(p.ID, "chk_"):
		checkout, err := s.o.Payments.GetCheckout(ctx, p.TenantID, p.ID)
		p.Checkout = &checkout
		return text(checkout.OrderID), err
	}
	return "", payments.ErrNotFound
}

func (p *objectPage) readOrder(ctx context.Context, q *db.Queries, id string) error {
	order, err := q.OrderGet(ctx, db.OrderGetParams{TenantID: p.TenantID, ID: id})
	if err != nil {
		return err
	}
	p.Order = &order
	rows, err := q.PaymentListOfOrder(ctx, db.PaymentListOfOrderParams{TenantID: p.TenantID, OrderID: id, Before: "pay_~", LimitRows: paymentsMax})
	if err != nil {
		return err
	}
	for _, row := range rows {
		view := paymentView{Payment: row}
		if row.AmountRefundingMinor > 0 || row.Status == db.PaymentStatusSucceeded {
			if view.Refunds, err = q.RefundsOfPayment(ctx, db.RefundsOfPaymentParams{TenantID: p.TenantID, PaymentID: row.ID}); err != nil {
				return err
			}
		}
		p.Payments = append(p.Payments, view)
	}
	p.Findings, err = q.OperatorDiscrepancies(ctx, db.OperatorDiscrepanciesParams{TenantID: p.TenantID, OrderID: id})
	return err
}

// told marks a single piece of work: who mends it is in the page's answer.
func told(items []workItem) []workItem {
	if len(items) == 1 {
		items[0].Told = true
	}
	return items
}

// subjects is what an action about this page may have been about.
func (p *objectPage) subjects() []string {
	list := []string{p.ID}
	if p.Order != nil {
		list = append(list, p.Order.ID)
	}
	for _, payment := range p.Payments {
		list = append(list, payment.ID, text(payment.IntentID))
		for _, refund := range payment.Refunds {
			list = append(list, refund.ID)
		}
	}
	for _, item := range p.Work {
		list = append(list, item.ResourceID)
	}
	return list
}

// Paid is the payment that succeeded.
func (p *objectPage) Paid() *paymentView {
	if i := slices.IndexFunc(p.Payments, func(v paymentView) bool { return v.Status == db.PaymentStatusSucceeded }); i >= 0 {
		return &p.Payments[i]
	}
	return nil
}

// Unended is the payment that has not ended.
func (p *objectPage) Unended() *paymentView {
	if i := slices.IndexFunc(p.Payments, paymentView.Open); i >= 0 {
		return &p.Payments[i]
	}
	return nil
}

// Answer is to the question that brings people here: was this customer charged?
// What Stripe says and we do not comes first, because our rows may be the ones
// that are wrong.
func (p *objectPage) Answer() string {
	for _, f := range p.Findings {
		switch {
		case f.DriftMinor > 0 && p.Paid() != nil:
			return fmt.Sprintf("Charged once here, and Stripe has %s more.", payments.Amount(f.DriftMinor, f.Currency))
		case f.DriftMinor > 0:
			return fmt.Sprintf("Not charged here, and Stripe has %s.", payments.Amount(f.DriftMinor, f.Currency))
		case f.DriftMinor < 0:
			return fmt.Sprintf("Not sure: Stripe has %s less than our rows say.", payments.Amount(-f.DriftMinor, f.Currency))
		}
	}
	switch paid, open := p.Paid(), p.Unended(); {
	case paid != nil && paid.AmountRefundedMinor == paid.AmountMinor:
		return "Charged once, and all of it given back."
	case paid != nil && paid.AmountRefundingMinor > paid.AmountRefundedMinor:
		return fmt.Sprintf("Charged once: %s, of which %s are on their way back.", payments.Amount(paid.AmountMinor, paid.Currency), payments.Amount(paid.AmountRefundingMinor-paid.AmountRefundedMinor, paid.Currency))
	case paid != nil && paid.AmountRefundedMinor > 0:
		return fmt.Sprintf("Charged once: %s, of which %s were given back.", payments.Amount(paid.AmountMinor, paid.Currency), payments.Amount(paid.AmountRefundedMinor, paid.Currency))
	case paid != nil:
		return fmt.Sprintf("Charged once: %s.", payments.Amount(paid.AmountMinor, paid.Currency))
	case open != nil && open.Status == db.PaymentStatusRequiresAction:
		return "Not charged yet: the customer must act."
	case open != nil && p.moneyMayHaveMoved():
		return "Not known yet. At most once."
	}
	return "Not charged."
}

func (p *objectPage) moneyMayHaveMoved() bool {
	return slices.ContainsFunc(p.Work, func(w workItem) bool {
		return w.Unknown || pointInWords(w.RecoveryPoint) != "no money can have moved"
	})
}

// Mood is the colour of the answer.
func (p *objectPage) Mood() string {
	switch {
	case len(p.Findings) > 0, slices.ContainsFunc(p.Work, workItem.NeedsYou):
		return "bad"
	case p.Unended() != nil, len(p.Work) > 0:
		return "warn"
	}
	return "good"
}

func (s *Server) tell(ctx context.Context, tenantID, key string) (story, error) {
	told, err := s.o.Payments.StoryOf(ctx, tenantID, key, s.o.Retention)
	return story{KeyStory: told, KeyHash: idempotency.HashForLog(key), Own: strings.Contains(key, " ")}, err
}

// ghostOf is the PaymentIntent in the key of a refund that no payment has.
func ghostOf(key string) string {
	_, intent, _ := strings.Cut(key, " ")
	intent, _, _ = strings.Cut(intent, ":")
	return intent
}

// intentPage is one of Stripe's PaymentIntents, beside what we have.
type intentPage struct {
	ID      string
	View    payments.IntentView
	Trouble string
	Work    []workItem // on giving its money back, where no payment has it
	Stories []story    // of that
	Actions []db.OperatorAction
}

// Answer is what the page begins with.
func (p *intentPage) Answer() string {
	switch {
	case len(p.Work) > 0:
		return "On its way back."
	case p.View.Adoptable:
		return "Money without a row."
	case p.View.Left > 0:
		return "Money that no payment has."
	case p.View.Intent.ReceivedMinor > 0 && p.View.Intent.ReceivedMinor == p.View.Intent.RefundedMinor:
		return "All of it went back."
	case p.View.Detail == "Stripe and our rows agree":
		return "The two agree."
	}
	return "Look closely."
}

// Mood is the colour of the answer.
func (p *intentPage) Mood() string {
	switch {
	case p.View.Adoptable || p.View.Left > 0 && len(p.Work) == 0:
		return "bad"
	case len(p.Work) == 0 && p.View.Detail == "Stripe and our rows agree":
		return "good"
	}
	return "warn"
}

func (s *Server) intent(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	page := &intentPage{ID: r.PathValue("id")}
	if !strings.HasPrefix(page.ID, "pi_") {
		s.troubled(w, r, payments.ErrNotFound)
		return
	}
	var err error
	page.View, err = s.o.Payments.LookAtIntent(ctx, page.ID)
	switch {
	case errors.Is(err, payments.ErrNoSuchObject):
		page.Trouble = "Stripe knows no PaymentIntent of this id, in the account and mode of STRIPE_SECRET_KEY."
	case err != nil:
		page.Trouble = "Stripe could not be asked: " + db.ErrorText(err)
	}
	if err == nil {
		err = s.readGhostRefunds(ctx, page)
	} else {
		err = nil // The page says so.
	}
	if err == nil {
		page.Actions, err = s.o.Pool.OperatorActionsOf(ctx, db.OperatorActionsOfParams{Subjects: []string{page.ID}, LimitRows: actionsMax})
	}
	if err != nil {
		s.troubled(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "intent", page.ID, page)
}

// readGhostRefunds adds what was done to give an intent's money back.
func (s *Server) readGhostRefunds(ctx context.Context, page *intentPage) error {
	var open []string
	for _, refund := range page.View.Refunds {
		told, err := s.tell(ctx, page.View.Intent.TenantID, refund.Key)
		if err != nil {
			return err
		}
		page.Stories = append(page.Stories, told)
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
	rows, err := s.o.Pool.OperatorWork(ctx, db.OperatorWorkParams{ScanMax: scanMax, LimitRows: workMax, TenantID: page.View.Intent.TenantID, Keys: open})
	page.Work = told(workItems(rows, now))
	return err
}

// find leads to what somebody has in hand: one of our ids, one of Stripe's, or a
// caller's key. It is a form that posts, so that a key is in no address.
func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	what := strings.TrimSpace(r.PostFormValue("what"))
	var err error
	switch {
	case what == "" || len(what) > 255 || strings.ContainsRune(what, 0):
		s.sorry(w, r, http.StatusBadRequest, "Find what?", "An order, payment, refund or checkout of ours; a pi_… or ch_… of Stripe's; or a caller's key.")
		return
	case isAnObject(what):
		var found []string
		if found, err = s.o.Pool.OperatorFindObject(ctx, what); err == nil && len(found) > 0 {
			http.Redirect(w, r, objectHref(found[0], what), http.StatusSeeOther)
			return
		}
	case strings.HasPrefix(what, "pi_"), strings.HasPrefix(what, "ch_"):
		if s.findAtStripe(ctx, w, r, what) {
			return
		}
	}
	if err == nil {
		err = s.findKey(ctx, w, r, what)
	}
	if err != nil {
		s.troubled(w, r, err)
	}
}

func objectHref(tenantID, id string) string { return "/operator/objects/" + tenantID + "/" + id }

// findAtStripe asks Stripe whose an intent is, because its metadata says so and no
// index of ours does; only when Stripe cannot say are our own rows read.
func (s *Server) findAtStripe(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) bool {
	if strings.HasPrefix(id, "pi_") {
		asking, cancel := context.WithTimeout(ctx, stripeWithin/2)
		defer cancel()
		view, err := s.o.Payments.LookAtIntent(asking, id)
		if err == nil && view.Ours && view.Detail == "Stripe and our rows agree" {
			if _, err := s.o.Pool.OrderGet(ctx, db.OrderGetParams{TenantID: view.Intent.TenantID, ID: view.Intent.OrderID}); err == nil {
				http.Redirect(w, r, objectHref(view.Intent.TenantID, view.Intent.OrderID), http.StatusSeeOther)
				return true
			}
		}
		if err == nil {
			http.Redirect(w, r, "/operator/intents/"+id, http.StatusSeeOther)
			return true
		}
	}
	rows, err := s.o.Pool.OperatorFindAtStripe(ctx, id)
	if err != nil || len(rows) == 0 {
		if strings.HasPrefix(id, "pi_") {
			http.Redirect(w, r, "/operator/intents/"+id, http.StatusSeeOther) // It says why Stripe did not.
			return true
		}
		return false
	}
	http.Redirect(w, r, objectHref(rows[0].TenantID, rows[0].ID), http.StatusSeeOther)
	return true
}

// keyPage is the story of a key, in each tenant that has used it.
type keyPage struct {
	Now     time.Time
	Stories []storyOfTenant
}

type storyOfTenant struct {
	TenantID string
	story
}

func (s *Server) findKey(ctx context.Context, w http.ResponseWriter, r *http.Request, key string) error {
	found, err := s.o.Pool.OperatorFindKey(ctx, db.OperatorFindKeyParams{Key: key, LimitRows: storiesMax})
	if err != nil {
		return err
	}
	page := keyPage{Now: s.now().UTC()}
	for _, row := range found {
		told, err := s.tell(ctx, row.TenantID, row.Key)
		if err != nil {
			return err
		}
		page.Stories = append(page.Stories, storyOfTenant{row.TenantID, told})
	}
	if len(page.Stories) == 0 {
		s.sorry(w, r, http.StatusNotFound, "Nothing by that name.", "No tenant has used it as a key, and no order, payment, refund or checkout has it as its id. A tombstone lasts ten years: a key that is not here was never used.")
		return nil
	}
	s.render(w, r, http.StatusOK, "key", "The story of a key", page)
	return nil
}
