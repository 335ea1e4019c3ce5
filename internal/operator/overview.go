package operator

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

// How much one page shows, and how much it looks at to count it.
const (
	workMax     = 30
	findingsMax = 50
	parkedMax   = 50
	waitingMax  = 5
	sagasMax    = 10
	actionsMax  = 10
	scanMax     = 5000
	lagsAfter   = time.Minute     // of the outbox and the inbox, as the alerts have it
	unknownOld  = 5 * time.Minute // likewise
)

// overviewPage is everything at a glance.
type overviewPage struct {
	Now        time.Time // the database's clock, by which everything below is judged
	Needs      []need    // what only a person can mend
	Watched    []need    // what is late, and mends itself as soon as it can
	CannotTell []need    // panels that could not be read

	Work       workPanel
	Money      moneyPanel
	Outbox     outboxPanel
	Inbox      inboxPanel
	Deliveries deliveriesPanel
	Sagas      sagasPanel
	Actions    actionsPanel
	Invariants invariantsPanel
}

// need is one line of the answer, and where its evidence is.
type need struct{ Text, Anchor string }

// panel is what every part has: why it could not be read, if so.
type panel struct{ Trouble string }

func (p *panel) failed() *string { return &p.Trouble }

type workPanel struct {
	panel
	Counts db.OperatorWorkCountsRow
	Items  []workItem
	Most   bool // there may be more than was counted
}

type moneyPanel struct {
	panel
	Drift    []db.MoneyDriftRow
	Findings []db.Discrepancy
	Open     int64
}

type outboxPanel struct {
	panel
	Stats  db.OutboxStatsRow
	Parked []db.OperatorOutboxParkedRow
	Oldest []db.OperatorOutboxOldestRow
}

type inboxPanel struct {
	panel
	Stats   []db.InboxStatsRow
	Parked  []db.OperatorInboxParkedRow
	Failing []db.OperatorInboxFailingRow
}

type deliveriesPanel struct {
	panel
	Stats   db.DeliveryStatsRow
	GivenUp []db.OperatorDeliveriesGivenUpRow
}

type sagasPanel struct {
	panel
	List []saga
}

// saga is a checkout and its steps.
type saga struct {
	TenantID, ID string
	CreatedAt    time.Time
	Steps        []db.OperatorSagasRow
}

type actionsPanel struct {
	panel
	List []db.OperatorAction
}

// workItem is a piece of work that was begun and has not ended.
type workItem struct {
	db.OperatorWorkRow
	Now  time.Time
	Told bool // who mends it has been said above
}

// KeyHash stands for the caller's key.
func (w workItem) KeyHash() string { return idempotency.HashForLog(w.Key) }

// Tone is how loud the item is.
func (w workItem) Tone() string {
	switch {
	case w.NeedsYou():
		return "bad"
	case w.Unknown:
		return "warn"
	}
	return "calm"
}

// NeedsYou: nobody works on it, and nobody will.
func (w workItem) NeedsYou() bool { return w.ParkedAt != nil || w.Overdue }

// MayFail is the payment or the refund whose end Stripe can be asked for; empty
// if it is neither.
func (w workItem) MayFail() string {
	switch w.Operation {
	case payments.CreatePayment, payments.CreateCheckout:
		return w.PaymentID
	case payments.CreateRefund, payments.RefundOrder, payments.RefundByOperator:
		return w.ResourceID
	}
	return ""
}

// Object is what it is about, and Href where that is shown.
func (w workItem) Object() string {
	if w.Operation == payments.RefundGhost {
		return ghostOf(w.Key)
	}
	return w.ResourceID
}

// Href is where what it is about is shown.
func (w workItem) Href() string {
	if w.Operation == payments.RefundGhost {
		return "/operator/intents/" + ghostOf(w.Key)
	}
	return objectHref(w.TenantID, w.ResourceID)
}

// Who will mend it, and when.
func (w workItem) Who() string {
	switch {
	case w.ParkedAt != nil:
		return "You. It was given up " + span(w.Now.Sub(*w.ParkedAt)) + " ago, and nobody works on it. " + w.advice()
	case w.Overdue:
		return "Nobody has. It was due at " + clock(w.NextAt) + ", " + span(w.Now.Sub(w.NextAt)) + " ago: does any process run?"
	case w.Held:
		return "Its holder, right now. If that dies, the completer takes over at " + clock(w.NextAt) + "."
	case w.RecoveryPoint == "action_required":
		return "The customer, at their bank. The completer looks at " + clock(w.NextAt) + ", a webhook sooner."
	case !w.NextAt.After(w.Now):
		return "The completer, now."
	}
	return "The completer, at " + clock(w.NextAt) + ", in " + span(w.NextAt.Sub(w.Now)) + "."
}

// advice is what to do about work that was given up.
func (w workItem) advice() string {
	switch {
	case w.LeaseExpirations > 1:
		return "Those who worked on it died: their logs say why. Mend that, then try now."
	case w.RecoveryPoint == "refund_owed":
		return "Mend what Stripe complains of, refund the payment, then try now."
	}
	return "Try now: the completer looks at Stripe first, and sends nothing twice."
}

// Money is what is known of it.
func (w workItem) Money() string {
	if w.Unknown {
		return "nobody knows yet whether the money has moved"
	}
	return pointInWords(w.RecoveryPoint)
}

// Summary is how much is under way, and how it stands.
func (w *workPanel) Summary() string {
	c := w.Counts
	text := plural(c.Unfinished, "request has", "requests have") + " begun and not ended"
	if w.Most {
		text = "At least " + text
	}
	var how []string
	for _, part := range []struct {
		n    int64
		what string
	}{{c.Parked, "given up"}, {c.Overdue, "overdue"}, {c.Unknown, "of unknown outcome"}, {c.AwaitingCustomer, "at the customer’s bank"}} {
		if part.n > 0 {
			how = append(how, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(how) > 0 {
		text += ": " + strings.Join(how, ", ")
	}
	return text + "."
}

func workItems(rows []db.OperatorWorkRow, now time.Time) []workItem {
	items := make([]workItem, len(rows))
	for i, row := range rows {
		items[i] = workItem{OperatorWorkRow: row, Now: now}
	}
	return items
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	s.render(w, r, http.StatusOK, "overview", "Overview", s.readOverview(ctx))
}

// readOverview reads every panel by itself. They share the two connections of the
// page's pool, which is what keeps them from being a burden.
func (s *Server) readOverview(ctx context.Context) *overviewPage {
	p := &overviewPage{Now: s.now().UTC()}
	q := s.o.Pool.Queries
	if now, err := q.OutboxNow(ctx); err == nil {
		p.Now = now
	}
	var all sync.WaitGroup
	read := func(trouble *string, fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil {
				*trouble = inWords(err)
			}
		})
	}
	read(p.Work.failed(), func() error { return p.Work.read(ctx, q, p.Now) })
	read(p.Money.failed(), func() error { return p.Money.read(ctx, q) })
	read(p.Outbox.failed(), func() error { return p.Outbox.read(ctx, q) })
	read(p.Inbox.failed(), func() error { return p.Inbox.read(ctx, q) })
	read(p.Deliveries.failed(), func() error { return p.Deliveries.read(ctx, q) })
	read(p.Sagas.failed(), func() error { return p.Sagas.read(ctx, q) })
	read(p.Actions.failed(), func() (err error) {
		p.Actions.List, err = q.OperatorActionsLatest(ctx, actionsMax)
		return err
	})
	all.Wait()
	p.judge()
	return p
}

func (w *workPanel) read(ctx context.Context, q *db.Queries, now time.Time) (err error) {
	if w.Counts, err = q.OperatorWorkCounts(ctx, scanMax); err != nil {
		return err
	}
	w.Most = w.Counts.Unfinished >= scanMax
	rows, err := q.OperatorWork(ctx, db.OperatorWorkParams{ScanMax: scanMax, LimitRows: workMax, Keys: []string{}})
	w.Items = workItems(rows, now)
	return err
}

func (m *moneyPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if m.Drift, err = q.MoneyDrift(ctx); err != nil {
		return err
	}
	for _, row := range m.Drift {
		m.Open += row.Open
	}
	m.Findings, err = q.DiscrepanciesOpen(ctx, findingsMax)
	slices.SortStableFunc(m.Findings, func(a, b db.Discrepancy) int { return a.FoundAt.Compare(b.FoundAt) })
	return err
}

func (o *outboxPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if o.Stats, err = q.OutboxStats(ctx); err != nil {
		return err
	}
	if o.Parked, err = q.OperatorOutboxParked(ctx, parkedMax); err != nil {
		return err
	}
	o.Oldest, err = q.OperatorOutboxOldest(ctx, waitingMax)
	return err
}

func (i *inboxPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if i.Stats, err = q.InboxStats(ctx); err != nil {
		return err
	}
	if i.Parked, err = q.OperatorInboxParked(ctx, parkedMax); err != nil {
		return err
	}
	i.Failing, err = q.OperatorInboxFailing(ctx, waitingMax)
	return err
}

// Pending and Oldest are over all consumers.
func (i *inboxPanel) Pending() (n int64) {
	for _, row := range i.Stats {
		n += row.Pending
	}
	return n
}

// ParkedCount is over all consumers.
func (i *inboxPanel) ParkedCount() (n int64) {
	for _, row := range i.Stats {
		n += row.Parked
	}
	return n
}

// OldestSeconds is over all consumers.
func (i *inboxPanel) OldestSeconds() (oldest float64) {
	for _, row := range i.Stats {
		oldest = max(oldest, row.OldestSeconds)
	}
	return oldest
}

func (d *deliveriesPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if d.Stats, err = q.DeliveryStats(ctx); err != nil {
		return err
	}
	d.GivenUp, err = q.OperatorDeliveriesGivenUp(ctx, scanMax)
	return err
}

func (p *sagasPanel) read(ctx context.Context, q *db.Queries) error {
	rows, err := q.OperatorSagas(ctx, sagasMax)
	for _, row := range rows {
		if n := len(p.List); n == 0 || p.List[n-1].ID != row.CheckoutID {
			p.List = append(p.List, saga{TenantID: row.TenantID, ID: row.CheckoutID, CreatedAt: row.CreatedAt})
		}
		last := &p.List[len(p.List)-1]
		last.Steps = append(last.Steps, row)
	}
	return err
}

// judge makes the answer that the page begins with.
func (p *overviewPage) judge() {
	needs := func(n int64, one, many, anchor string) {
		if n > 0 {
			p.Needs = append(p.Needs, need{plural(n, one, many), anchor})
		}
	}
	watch := func(late bool, text, anchor string) {
		if late {
			p.Watched = append(p.Watched, need{text, anchor})
		}
	}
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, part := range []struct{ trouble, name, anchor string }{
		{p.Work.Trouble, "work under way", "work"}, {p.Money.Trouble, "money", "money"}, {p.Outbox.Trouble, "events out", "outbox"},
		{p.Inbox.Trouble, "events in", "inbox"}, {p.Deliveries.Trouble, "deliveries to tenants", "deliveries"},
		{p.Sagas.Trouble, "checkouts", "checkouts"}, {p.Actions.Trouble, "the audit trail", "actions"},
	} {
		if part.trouble != "" {
			p.CannotTell = append(p.CannotTell, need{part.name, part.anchor})
		}
	}

	needs(p.Money.Open, "object on which Stripe and our rows disagree", "objects on which Stripe and our rows disagree", "money")
	needs(p.Work.Counts.Parked, "request was given up", "requests were given up", "work")
	needs(p.Work.Counts.Overdue, "request is due and nobody takes it up", "requests are due and nobody takes them up", "work")
	needs(p.Outbox.Stats.Parked, "event is refused by the broker", "events are refused by the broker", "outbox")
	needs(p.Inbox.ParkedCount(), "received event was given up", "received events were given up", "inbox")
	needs(int64(len(p.Deliveries.GivenUp)), "tenant has missed events", "tenants have missed events", "deliveries")

	unknownFor := seconds(p.Work.Counts.UnknownSeconds)
	watch(unknownFor > unknownOld, plural(p.Work.Counts.Unknown, "outcome is", "outcomes are")+" unknown, the oldest for "+span(unknownFor)+"; the completer keeps asking Stripe", "work")
	watch(seconds(p.Outbox.Stats.OldestSeconds) > lagsAfter, plural(p.Outbox.Stats.Waiting, "event waits", "events wait")+" for the broker, the oldest for "+span(seconds(p.Outbox.Stats.OldestSeconds)), "outbox")
	watch(seconds(p.Inbox.OldestSeconds()) > lagsAfter, plural(p.Inbox.Pending(), "received event is", "received events are")+" not applied yet, the oldest for "+span(seconds(p.Inbox.OldestSeconds())), "inbox")
}

// Mood is the colour of the answer.
func (p *overviewPage) Mood() string {
	switch {
	case len(p.Needs) > 0:
		return "bad"
	case len(p.CannotTell) > 0, len(p.Watched) > 0:
		return "warn"
	}
	return "good"
}

// Answer is the sentence that the page begins with.
func (p *overviewPage) Answer() string {
	switch {
	case len(p.Needs) == 0 && len(p.CannotTell) > 0:
		return "Cannot tell."
	case len(p.Needs) == 0 && len(p.Watched) > 0:
		return "Nothing needs you yet."
	case len(p.Needs) == 0:
		return "Nothing needs you."
	case len(p.Needs) == 1:
		return "One thing needs you."
	}
	return plural(len(p.Needs), "thing needs you.", "things need you.")
}

// invariantsPanel is what came of asking, if somebody has.
type invariantsPanel struct {
	Asked  bool
	Checks []db.Asked
	Took   time.Duration
}

// Broken and Unanswered count.
func (p invariantsPanel) Broken() (n int) {
	for _, c := range p.Checks {
		if len(c.Rows) > 0 {
			n++
		}
	}
	return n
}

// Unanswered counts the checks that could not be made in time.
func (p invariantsPanel) Unanswered() (n int) {
	for _, c := range p.Checks {
		if c.Err != nil {
			n++
		}
	}
	return n
}

// askInvariants reads whole tables, when somebody asks for it, and for one at a
// time.
func (s *Server) askInvariants(w http.ResponseWriter, r *http.Request) {
	if !s.invariants.TryLock() {
		s.sorry(w, r, http.StatusConflict, "Somebody is asking already.", "The invariants read whole tables, so they are asked once at a time. Try again in a minute.")
		return
	}
	defer s.invariants.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), invariantsWithin)
	defer cancel()
	began := s.now()
	p := invariantsPanel{Asked: true, Checks: s.o.Pool.InvariantsWithin(ctx, invariantWithin)}
	p.Took = s.now().Sub(began)
	s.o.Log.Info("operator: invariants asked", "took", p.Took, "broken", p.Broken(), "unanswered", p.Unanswered())
	s.render(w, r, http.StatusOK, "invariants", "Invariants", p)
}

// Why an invariant could not be asked.
func whyNot(err error) string {
	if strings.Contains(err.Error(), "statement timeout") {
		return "not answered within " + invariantWithin.String()
	}
	return db.ErrorText(err)
}
