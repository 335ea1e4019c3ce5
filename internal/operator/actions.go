package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const reasonMax = 500 // characters; the table says so too

// target is what an action is about. Of tells several with one id apart: for "try
// now" it is the hash of the key, for "unpark" the table.
type target struct {
	Kind   db.OperatorActionKind
	Tenant string
	ID     string
	Of     string
}

// What can be unparked.
const (
	ofOutbox     = "outbox"
	ofDeliveries = "deliveries"
	ofInbox      = "inbox:" // and the consumer
)

func (t target) href() string {
	return "/operator/act?" + url.Values{"kind": {string(t.Kind)}, "tenant": {t.Tenant}, "id": {t.ID}, "of": {t.Of}}.Encode()
}

func targetOf(r *http.Request) target {
	return target{Kind: db.OperatorActionKind(r.FormValue("kind")), Tenant: r.FormValue("tenant"), ID: r.FormValue("id"), Of: r.FormValue("of")}
}

// Back is where the thing is shown.
func (t target) Back() string {
	switch {
	case strings.HasPrefix(t.ID, "pi_"):
		return "/operator/intents/" + t.ID
	case isAnObject(t.ID) && t.Tenant != "":
		return objectHref(t.Tenant, t.ID)
	}
	return "/operator"
}

// subject is what the audit trail says it was about.
func (t target) subject() string {
	if consumer, ok := strings.CutPrefix(t.Of, ofInbox); ok {
		return consumer + " " + t.ID
	}
	return t.ID
}

// refusal is why an action was not done. It is an answer, and is recorded.
type refusal string

func (r refusal) Error() string { return string(r) }

// plan is an action that was looked into: what it will do, in words, and the
// effect, which joins the transaction of the audit trail's row.
type plan struct {
	Will   string
	Wont   string
	Refund *db.Payment          // of a refund: what it is taken from
	Ghost  *payments.IntentView // of a refund that has no payment: the money at Stripe
	item   *workItem
	effect func(ctx context.Context, q *db.Queries) (result string, err error)
}

// plan looks at what an action needs to know of Stripe and of our rows. A refusal
// says that it is not to be done.
func (s *Server) plan(ctx context.Context, t target, action string, amount *int64) (plan, error) {
	ctx, cancel := context.WithTimeout(ctx, stripeWithin)
	defer cancel()
	switch t.Kind {
	case db.OperatorActionKindTryNow:
		return s.planTryNow(ctx, t)
	case db.OperatorActionKindMarkFailed:
		if strings.HasPrefix(t.ID, "rfd_") {
			return s.planRefundFailed(ctx, t)
		}
		return s.planMarkFailed(ctx, t)
	case db.OperatorActionKindRefund:
		if strings.HasPrefix(t.ID, "pi_") {
			return s.planGhostRefund(ctx, t, amount)
		}
		return s.planRefund(ctx, t, action, amount)
	case db.OperatorActionKindAdopt:
		return s.planAdopt(ctx, t)
	case db.OperatorActionKindUnpark:
		return s.planUnpark(t)
	}
	return plan{}, payments.ErrNotFound
}

const heldByNow = refusal("somebody is working on it right now, or it has just ended")

func (s *Server) planTryNow(ctx context.Context, t target) (plan, error) {
	item, err := s.workBehind(ctx, t)
	if err != nil {
		return plan{}, err
	}
	return plan{
		item:   &item,
		Will:   "The completer takes it up within a second, parked or not, and looks at Stripe before it sends anything.",
		Wont:   "Nothing is sent a second time that Stripe may have done.",
		effect: hurry(t.Tenant, item.Key, "it is due now, and no longer parked if it was; the completer takes it up"),
	}, nil
}

// hurry makes a key due, and leaves the rest to its operation.
func hurry(tenant, key, result string) func(context.Context, *db.Queries) (string, error) {
	return func(ctx context.Context, q *db.Queries) (string, error) {
		due, err := idempotency.TryNow(ctx, q, tenant, key)
		if err == nil && !due {
			err = heldByNow
		}
		return result, err
	}
}

// workBehind finds the unfinished work whose key has the hash; a caller's key is
// in no form.
func (s *Server) workBehind(ctx context.Context, t target) (workItem, error) {
	now, err := s.o.Pool.OutboxNow(ctx)
	if err != nil {
		return workItem{}, err
	}
	rows, err := s.o.Pool.OperatorWork(ctx, db.OperatorWorkParams{ScanMax: scanMax, LimitRows: workMax, TenantID: t.Tenant, ResourceID: t.ID, Keys: []string{}})
	if err != nil {
		return workItem{}, err
	}
	for _, item := range workItems(rows, now) {
		if item.KeyHash() == t.Of {
			return item, nil
		}
	}
	return workItem{}, refusal("it has ended: there is nothing to try")
}

// planMarkFailed asks Stripe, every time: what a page showed a minute ago is no
// reason to give up money.
func (s *Server) planMarkFailed(ctx context.Context, t target) (plan, error) {
	p, err := s.o.Payments.CannotSucceed(ctx, t.Tenant, t.ID)
	if err != nil {
		return plan{}, unlessItMay(err)
	}
	return plan{
		Will:   "Stripe says that " + *p.IntentID + " is canceled, so no money can move any more. The payment's own operation looks once more, ends it, and answers its key; the order can be paid again.",
		Wont:   "No money is given back, because none was taken.",
		effect: hurry(t.Tenant, p.IdempotencyKey, "Stripe says that "+*p.IntentID+" is canceled; the payment's own operation ends it now"),
	}, nil
}

// unlessItMay is a refusal where Stripe says that what is to be called failed may
// still succeed.
func unlessItMay(err error) error {
	var mayStill *payments.MayStillSucceedError
	if errors.As(err, &mayStill) {
		return refusal(mayStill.Why)
	}
	return err
}

func (s *Server) planRefund(ctx context.Context, t target, action string, amount *int64) (plan, error) {
	row, err := s.o.Pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: t.Tenant, ID: t.ID})
	if err != nil {
		return plan{}, err
	}
	left := paymentView{Payment: row}.Left()
	if left == 0 {
		return plan{}, refusal(payments.ErrPaymentNotRefundable.Error())
	}
	return plan{
		Will:   "A refund is recorded under a key of this form, and the completer makes it at Stripe. The tenant hears of it as of any other refund.",
		Wont:   "It cannot give back more than is left of the payment, " + payments.Amount(left, row.Currency) + ", and this form cannot refund twice. A refund cannot be taken back.",
		Refund: &row,
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			made, err := s.o.Payments.RefundFor(ctx, q, t.Tenant, t.ID, action, amount)
			if errors.Is(err, payments.ErrPaymentNotRefundable) || errors.Is(err, payments.ErrRefundExceedsPayment) {
				err = refusal(err.Error())
			}
			return fmt.Sprintf("refund %s of %s is recorded; the completer makes it at Stripe", made.ID, payments.Amount(made.Amount, made.Currency)), err
		},
	}, nil
}

// planRefundFailed is the same for a refund.
func (s *Server) planRefundFailed(ctx context.Context, t target) (plan, error) {
	row, err := s.o.Payments.RefundCannotSucceed(ctx, t.Tenant, t.ID)
	if err != nil {
		return plan{}, unlessItMay(err)
	}
	return plan{
		Will:   "Stripe says that the refund came to nothing. Its own operation looks once more, ends it, and the amount can be refunded again.",
		Wont:   "No money moves.",
		effect: hurry(t.Tenant, row.IdempotencyKey, "Stripe says that it came to nothing; the refund's own operation ends it now"),
	}, nil
}

// lookAt asks Stripe for a PaymentIntent. Without it nothing is done about it.
func (s *Server) lookAt(ctx context.Context, intent string) (payments.IntentView, error) {
	view, err := s.o.Payments.LookAtIntent(ctx, intent)
	switch {
	case errors.Is(err, payments.ErrNoSuchObject):
		err = refusal("Stripe knows no " + intent)
	case err != nil:
		err = refusal("Stripe could not be asked: " + postgres.ErrorText(err))
	}
	return view, err
}

// planGhostRefund gives back money that no payment here has. It asks Stripe what
// is left of it, and judges with the order locked whether nobody else has it.
func (s *Server) planGhostRefund(ctx context.Context, t target, amount *int64) (plan, error) {
	view, err := s.lookAt(ctx, t.ID)
	switch {
	case err != nil:
		return plan{}, err
	case !view.Ours, view.Intent.TenantID != t.Tenant:
		return plan{}, refusal("its metadata names no such tenant of ours: it is another program's money")
	case view.Left == 0:
		return plan{}, refusal(view.WhyNot)
	case amount != nil && *amount != view.Left:
		return plan{}, refusal("it is given back whole, " + payments.Amount(view.Left, view.Intent.Currency) + ", or not at all")
	}
	return plan{
		Ghost: &view,
		Will:  fmt.Sprintf("All that is left, %s, goes back to the card it came from. The completer makes the refund at Stripe under a key of this PaymentIntent's, and stays with it to its end.", payments.Amount(view.Left, view.Intent.Currency)),
		Wont:  "No order, payment or event of the tenant's changes, because none has this money. It cannot go back twice, and it cannot be taken back.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			id, minor, err := s.o.Payments.RefundGhostFor(ctx, q, view)
			var no *payments.NotRefundableError
			if errors.As(err, &no) {
				err = refusal(no.Why)
			}
			return fmt.Sprintf("%s of %s is given back as %s; the completer makes it at Stripe", payments.Amount(minor, view.Intent.Currency), t.ID, id), err
		},
	}, nil
}

func (s *Server) planAdopt(ctx context.Context, t target) (plan, error) {
	view, err := s.lookAt(ctx, t.ID)
	switch {
	case err != nil:
		return plan{}, err
	case !view.Adoptable:
		return plan{}, refusal("it cannot be proved for what the money was: " + view.Detail)
	}
	return plan{
		Will: fmt.Sprintf("Stripe took %s for %s. A payment is recorded for it, the order becomes paid, and the tenant hears of both.", payments.Amount(view.Intent.ReceivedMinor, view.Intent.Currency), view.Intent.OrderID),
		Wont: "No money moves.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			id, err := s.o.Payments.Adopt(ctx, q, view)
			if err == nil && id == "" {
				err = refusal("it is not to be adopted any more: look again")
			}
			return "adopted as " + id, err
		},
	}, nil
}

func (s *Server) planUnpark(t target) (plan, error) {
	consumer, isInbox := strings.CutPrefix(t.Of, ofInbox)
	p := plan{Wont: "Nobody hears of an event twice in effect: consumers know it by its id."}
	var unpark func(ctx context.Context, q *db.Queries) (bool, error)
	result := ""
	switch {
	case t.Of == ofOutbox:
		p.Will = "The event is sent to the broker again, and those behind it follow in order. If the broker still refuses it, it is parked again."
		result = "the events of " + t.ID + " go out again"
		unpark = func(ctx context.Context, q *db.Queries) (bool, error) { return outbox.Unpark(ctx, q, t.Tenant, t.ID) }
	case t.Of == ofDeliveries:
		p.Will = "What this tenant's endpoint did not take is sent again from the beginning, the oldest first, up to a thousand."
		p.Wont = "Each delivery carries the event's id, by which the tenant knows what it has seen."
		result = "what the tenant has missed is sent again"
		unpark = func(ctx context.Context, q *db.Queries) (bool, error) {
			n, err := notifier.Requeue(ctx, q, t.Tenant)
			result = plural(n, "delivery is", "deliveries are") + " sent again"
			return n > 0, err
		}
	case isInbox:
		p.Will = "The event is applied again within two seconds. If that fails as before, it is parked again."
		p.Wont = "It is not applied twice: its row and its effect are one commit."
		result = "it is tried again"
		unpark = func(ctx context.Context, q *db.Queries) (bool, error) { return inbox.Unpark(ctx, q, consumer, t.ID) }
	default:
		return p, payments.ErrNotFound
	}
	p.effect = func(ctx context.Context, q *db.Queries) (string, error) {
		parked, err := unpark(ctx, q)
		if err == nil && !parked {
			err = refusal("it is not parked: somebody was faster")
		}
		return result, err
	}
	return p, nil
}

// confirmPage asks once more, and for a reason.
type confirmPage struct {
	target
	Plan    plan
	Refused string // why there is nothing to confirm
	Trouble string // what went wrong with the form as it was sent
	Action  string // the form's id: what makes sending it twice one action, also when nobody knows what became of the first
	Reason  string
	Amount  string
	Before  []db.OperatorAction // what was done to it already
	Item    *workItem           // the work that it is about
}

// confirm shows the form. A browser may keep it, so that going back from what
// came of it shows the same form, whose id has been used, and not another one.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "private, no-cache")
	s.ask(w, r, http.StatusOK, confirmPage{target: targetOf(r), Action: payments.NewActionID()})
}

func (s *Server) ask(w http.ResponseWriter, r *http.Request, status int, page confirmPage) {
	var err error
	page.Plan, err = s.plan(r.Context(), page.target, page.Action, nil)
	var no refusal
	switch {
	case errors.As(err, &no):
		page.Refused = string(no)
	case err != nil:
		s.troubled(w, r, err)
		return
	}
	if page.Before, err = s.o.Pool.OperatorActionsOf(r.Context(), db.OperatorActionsOfParams{Subjects: []string{page.subject()}, LimitRows: actionsMax}); err != nil {
		s.troubled(w, r, err)
		return
	}
	page.Item = page.Plan.item
	s.render(w, r, status, "confirm", verb(page.Kind, page.subject()), page)
}

// act does it, once for each form.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	who, _ := sessionOf(r)
	page := confirmPage{
		target: targetOf(r), Action: r.PostFormValue("action"), Reason: strings.Join(strings.Fields(strings.ToValidUTF8(r.PostFormValue("reason"), "")), " "),
		Amount: strings.TrimSpace(r.PostFormValue("amount")),
	}
	amount, wrong := page.check()
	switch {
	case !payments.IsActionID(page.Action) || !page.Kind.Valid():
		s.sorry(w, r, http.StatusBadRequest, "This form is not one of ours.", "Nothing was done.")
		return
	case wrong != "":
		page.Trouble = wrong
		s.ask(w, r, http.StatusUnprocessableEntity, page)
		return
	}
	done, err := s.do(r.Context(), page, who.Actor, amount)
	if errors.Is(err, postgres.ErrNoRows) || errors.Is(err, payments.ErrNotFound) {
		s.troubled(w, r, err)
		return
	}
	if err != nil {
		s.o.Log.Error("operator: an action could not be recorded", "action", page.Action, "kind", string(page.Kind), "subject", page.subject(), "actor", who.Actor, "error", err.Error())
		page.Trouble = "The database did not say whether it was done. Send this form again: whatever has happened, it has one effect. (" + inWords(err) + ")"
		s.render(w, r, http.StatusServiceUnavailable, "confirm", verb(page.Kind, page.subject()), page)
		return
	}
	s.o.Log.Info("operator: action", "action", done.ID, "kind", string(done.Kind), "tenant_id", text(done.TenantID), "subject", done.Subject,
		"actor", done.Actor, "outcome", text(outcomeOf(done)), "result", text(done.Result))
	http.Redirect(w, r, "/operator/actions/"+done.ID+"?"+url.Values{"back": {page.Back()}}.Encode(), http.StatusSeeOther)
}

func outcomeOf(a db.OperatorAction) string {
	if a.Outcome == nil {
		return ""
	}
	return string(*a.Outcome)
}

// check says what is wrong with the form as a person filled it in.
func (p *confirmPage) check() (amount *int64, wrong string) {
	switch {
	case p.Reason == "":
		return nil, "Say why: somebody will read it in the morning."
	case len([]rune(p.Reason)) > reasonMax || strings.ContainsRune(p.Reason, 0):
		return nil, fmt.Sprintf("Say it in at most %d characters.", reasonMax)
	case p.Amount == "":
		return nil, ""
	}
	n, err := strconv.ParseInt(p.Amount, 10, 64)
	if err != nil || n < 1 {
		return nil, "The amount is a whole number of the smallest unit, such as 1050 for 10.50."
	}
	return &n, ""
}

// do makes an action's effect and its row in one commit. Whoever comes second
// with a form, at once or a day later, gets what came of it the first time.
func (s *Server) do(ctx context.Context, page confirmPage, actor string, amount *int64) (db.OperatorAction, error) {
	before, err := s.o.Pool.OperatorActionGet(ctx, page.Action)
	if !errors.Is(err, postgres.ErrNoRows) {
		return before, err
	}
	p, err := s.plan(ctx, page.target, page.Action, amount)
	if err == nil {
		err = s.o.Pool.InTx(ctx, func(q *db.Queries) error {
			first, err := begin(ctx, q, page, actor)
			if err != nil || !first {
				return err
			}
			result, err := p.effect(ctx, q)
			if err != nil {
				return err
			}
			return end(ctx, q, page.Action, db.OperatorOutcomeDone, result)
		})
	}
	var no refusal
	if errors.As(err, &no) { // Whatever the effect had begun is rolled back. That it was asked for stays.
		err = s.o.Pool.InTx(ctx, func(q *db.Queries) error {
			first, err := begin(ctx, q, page, actor)
			if err != nil || !first {
				return err
			}
			return end(ctx, q, page.Action, db.OperatorOutcomeRefused, string(no))
		})
	}
	if err != nil {
		return db.OperatorAction{}, err
	}
	return s.o.Pool.OperatorActionGet(ctx, page.Action)
}

// begin writes the action down. Not the first: this form was sent before.
func begin(ctx context.Context, q *db.Queries, page confirmPage, actor string) (first bool, err error) {
	row := db.OperatorActionBeginParams{ID: page.Action, Actor: actor, Kind: page.Kind, Subject: page.subject(), Reason: page.Reason}
	if page.Tenant != "" {
		row.TenantID = &page.Tenant
	}
	n, err := q.OperatorActionBegin(ctx, row)
	if err != nil {
		return false, fmt.Errorf("record the action: %w", err)
	}
	return n > 0, nil
}

func end(ctx context.Context, q *db.Queries, action string, outcome db.OperatorOutcome, result string) error {
	n, err := q.OperatorActionEnd(ctx, db.OperatorActionEndParams{ID: action, Outcome: outcome, Result: result})
	if err == nil && n == 0 {
		err = errors.New("it ended meanwhile")
	}
	if err != nil {
		return fmt.Errorf("record what came of the action: %w", err)
	}
	return nil
}

// actionPage is one line of the audit trail.
type actionPage struct {
	db.OperatorAction
	Back string
}

func (s *Server) action(w http.ResponseWriter, r *http.Request) {
	row, err := s.o.Pool.OperatorActionGet(r.Context(), r.PathValue("id"))
	if err != nil {
		s.troubled(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "action", verb(row.Kind, row.Subject), actionPage{row, nextOf(r.FormValue("back"))})
}

// trailMax is how much of the audit trail one page shows.
const trailMax = 100

func (s *Server) actions(w http.ResponseWriter, r *http.Request) {
	rows, err := s.o.Pool.OperatorActionsLatest(r.Context(), trailMax)
	if err != nil {
		s.troubled(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "actions", "The audit trail", actionsPanel{List: rows})
}
