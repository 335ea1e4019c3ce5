package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/cards"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const reasonMax = 500 // characters; a constraint of operator_actions has the same limit

// target is what an action is about. Of distinguishes targets that share an id: for
// "retry now" it is the hash of the key, for "unpark" the table.
type target struct {
	Kind   db.OperatorActionKind
	Tenant string
	ID     string
	Of     string
}

// href is the address of the action's form. Everything in it may appear in an access log,
// so a caller's key is in it by its hash only.
func (t target) href() string {
	return "/operator/act?" + url.Values{
		"kind": {string(t.Kind)}, "tenant": {t.Tenant}, "id": {t.ID}, "of": {t.Of},
	}.Encode()
}

func targetOf(r *http.Request) target {
	return target{
		Kind:   db.OperatorActionKind(r.FormValue("kind")),
		Tenant: r.FormValue("tenant"), ID: r.FormValue("id"), Of: r.FormValue("of"),
	}
}

// Back is the page that shows the target.
func (t target) Back() string {
	switch {
	case strings.HasPrefix(t.ID, "pi_"):
		return "/operator/intents/" + t.ID
	case isObjectID(t.ID) && t.Tenant != "":
		return objectHref(t.Tenant, t.ID)
	}
	return "/operator"
}

// subject is the target as the audit trail names it. The same event may be parked in
// the inbox of several consumers, so there it includes the consumer.
func (t target) subject() string {
	if consumer, ok := strings.CutPrefix(t.Of, ofInbox); ok {
		return consumer + " " + t.ID
	}
	return t.ID
}

// confirmPage is the form of an action: what it does, the evidence, and the reason.
type confirmPage struct {
	target
	Plan    plan
	Refused string // why the action is not possible
	Error   string // what was wrong with the form as submitted
	Action  string // the form's id, which makes submitting it twice one action
	Reason  string
	Amount  string
	Before  []db.OperatorAction // earlier actions on the same subject
	Item    *workItem           // the request that the action is about
}

// confirm shows the form. Browsers may keep it, so that "back" after submitting shows
// the same form with its used id, and not a new one that would act a second time.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "private, no-cache")
	s.renderForm(w, r, http.StatusOK, confirmPage{target: targetOf(r), Action: ids.New(ids.Action)})
}

// renderForm checks the preconditions before the operator types a reason, so that an
// action that is not possible says so at once.
func (s *Server) renderForm(w http.ResponseWriter, r *http.Request, status int, page confirmPage) {
	var err error
	page.Plan, err = s.plan(r.Context(), page.target, page.Action, nil)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		page.Refused = string(refused)
	case err != nil: // Not a refusal: the preconditions could not be read.
		s.renderReadError(w, r, err)
		return
	}
	page.Before, err = s.o.Pool.OperatorActionsOf(r.Context(), db.OperatorActionsOfParams{
		Subjects: []string{page.subject()}, LimitRows: actionsMax,
	})
	if err != nil {
		s.renderReadError(w, r, err)
		return
	}
	page.Item = page.Plan.item
	s.render(w, r, status, "confirm", actionLabel(page.Kind, page.subject()), page)
}

// act performs the action of a form, once for each form.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	operator, _ := sessionOf(r)
	page := confirmPage{
		target: targetOf(r), Action: r.PostFormValue("action"),
		Reason: strings.Join(strings.Fields(strings.ToValidUTF8(r.PostFormValue("reason"), "")), " "),
		Amount: strings.TrimSpace(r.PostFormValue("amount")),
	}
	amount, invalid := page.validate()
	switch {
	case !ids.Is(ids.Action, page.Action) || !slices.Contains(db.AllOperatorActionKindValues(), page.Kind):
		s.renderError(w, r, http.StatusBadRequest, "Invalid form.", "No action was taken.")
		return
	case invalid != "":
		page.Error = invalid
		s.renderForm(w, r, http.StatusUnprocessableEntity, page)
		return
	}
	done, err := s.perform(r.Context(), page, operator.Actor, amount)
	if errors.Is(err, postgres.ErrNoRows) || errors.Is(err, payments.ErrNotFound) {
		s.renderReadError(w, r, err)
		return
	}
	if err != nil {
		s.o.Log.Error("operator: an action could not be recorded", "action", page.Action,
			"kind", string(page.Kind), "subject", page.subject(), "actor", operator.Actor, "error", err.Error())
		// The commit may have happened. The same form again, with the same id, finds out.
		page.Error = "The database did not confirm the action. Submit this form again: " +
			"it takes effect at most once. (" + errorText(err) + ")"
		title := actionLabel(page.Kind, page.subject())
		s.render(w, r, http.StatusServiceUnavailable, "confirm", title, page)
		return
	}
	s.o.Log.Info("operator: action", "action", done.ID, "kind", string(done.Kind),
		"tenant_id", text(done.TenantID), "subject", done.Subject,
		"actor", done.Actor, "outcome", outcomeOf(done), "result", text(done.Result))
	back := url.Values{"back": {page.Back()}}.Encode()
	http.Redirect(w, r, "/operator/actions/"+done.ID+"?"+back, http.StatusSeeOther)
}

// validate returns the amount, or what is wrong with the form as it was filled in.
func (p *confirmPage) validate() (amount *int64, invalid string) {
	switch {
	case p.Reason == "":
		return nil, "Enter a reason. It is kept in the audit trail."
	case len([]rune(p.Reason)) > reasonMax || strings.ContainsRune(p.Reason, 0):
		return nil, fmt.Sprintf("The reason may have at most %d characters.", reasonMax)
	case cards.NumberIn(p.Reason):
		p.Reason = "" // The form is shown again, without it.
		return nil, "The reason must not contain a card number."
	case p.Amount == "":
		return nil, ""
	}
	n, err := strconv.ParseInt(p.Amount, 10, 64)
	if err != nil || n < 1 {
		return nil, "Enter the amount in the smallest currency unit, such as 1050 for 10.50."
	}
	return &n, ""
}

// perform writes an action's effect and its row in one commit. A form that is submitted
// again, at once or a day later, gets the outcome of the first time.
func (s *Server) perform(
	ctx context.Context, page confirmPage, actor string, amount *int64,
) (db.OperatorAction, error) {
	// Before the preconditions: the action itself may have changed them.
	before, err := s.o.Pool.OperatorActionGet(ctx, page.Action)
	if !errors.Is(err, postgres.ErrNoRows) {
		return before, err
	}
	p, err := s.plan(ctx, page.target, page.Action, amount)
	if err == nil {
		err = s.record(ctx, page, actor, db.OperatorOutcomeDone, p.effect)
	}
	var refused refusal
	if errors.As(err, &refused) {
		// The effect is rolled back. That it was requested and refused is recorded.
		err = s.record(ctx, page, actor, db.OperatorOutcomeRefused,
			func(context.Context, *db.Queries) (string, error) { return string(refused), nil })
	}
	if err != nil {
		return db.OperatorAction{}, err
	}
	return s.o.Pool.OperatorActionGet(ctx, page.Action)
}

// record inserts the action's row first, so that of two submissions of one form the
// second waits here, and then finds the row and has no effect.
func (s *Server) record(
	ctx context.Context, page confirmPage, actor string, outcome db.OperatorOutcome,
	effect func(context.Context, *db.Queries) (string, error),
) error {
	return s.o.Pool.InTx(ctx, func(q *db.Queries) error {
		first, err := insertAction(ctx, q, page, actor)
		if err != nil || !first {
			return err
		}
		result, err := effect(ctx, q)
		if err != nil {
			return err
		}
		return finishAction(ctx, q, page.Action, outcome, result)
	})
}

// insertAction reports whether this is the first submission of the form.
func insertAction(ctx context.Context, q *db.Queries, page confirmPage, actor string) (first bool, err error) {
	row := db.OperatorActionBeginParams{
		ID: page.Action, Actor: actor, Kind: page.Kind, Subject: page.subject(), Reason: page.Reason,
	}
	if page.Tenant != "" {
		row.TenantID = &page.Tenant
	}
	n, err := q.OperatorActionBegin(ctx, row)
	if err != nil {
		return false, fmt.Errorf("record the action: %w", err)
	}
	return n > 0, nil
}

// finishAction writes the outcome. A row that has one is never updated: a trigger of the
// table rejects it.
func finishAction(
	ctx context.Context, q *db.Queries, action string, outcome db.OperatorOutcome, result string,
) error {
	n, err := q.OperatorActionEnd(ctx, db.OperatorActionEndParams{ID: action, Outcome: outcome, Result: result})
	if err == nil && n == 0 {
		err = errors.New("it already has an outcome")
	}
	if err != nil {
		return fmt.Errorf("record the outcome of the action: %w", err)
	}
	return nil
}
