package operator

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// Limits of what one page shows, and of the rows it reads to count.
const (
	workMax          = 30
	discrepanciesMax = 50
	parkedMax        = 50
	waitingMax       = 5
	checkoutsMax     = 10 // part: checkouts
	actionsMax       = 10
	scanMax          = 5000
	lagsAfter        = time.Minute     // of the outbox and the inbox, as in the alerts
	unknownOld       = 5 * time.Minute // as in PayonceUnknownOutcomeOld
)

// overviewPage is the start page: a summary and the panels it is derived from.
type overviewPage struct {
	Now        time.Time  // by the database's clock, which all ages below refer to
	Needs      []headline // needs an operator
	Late       []headline // late, and being retried automatically
	Notes      []headline // worth knowing; nothing is unfinished
	Unreadable []headline // panels that could not be read

	Work       workPanel
	Money      moneyPanel
	Holds      authorizationsPanel
	Owed       owedPanel
	Disputes   disputesPanel // part: disputes
	Outbox     outboxPanel
	Inbox      inboxPanel
	Deliveries deliveriesPanel // part: webhooks
	Checkouts  checkoutsPanel  // part: checkouts
	Actions    actionsPanel
}

// headline is one line of the summary, with a link to its panel.
type headline struct{ Text, Anchor string }

// panel is embedded in every panel. ReadError says why it could not be read.
type panel struct{ ReadError string }

// moneyPanel shows the discrepancies between Stripe and this database.
type moneyPanel struct {
	panel
	Drift         []db.MoneyDriftRow
	Discrepancies []db.Discrepancy
	Open          int64
	CheckedUpTo   *time.Time // nil: the reconciler has not read Stripe's lists to the end yet
}

// outboxPanel shows the events that are not published yet.
type outboxPanel struct {
	panel
	Stats  db.OutboxStatsRow
	Parked []db.OperatorOutboxParkedRow
	Oldest []db.OperatorOutboxOldestRow
}

// inboxPanel shows the received events that are not applied yet.
type inboxPanel struct {
	panel
	Stats   []db.InboxStatsRow
	Parked  []db.OperatorInboxParkedRow
	Failing []db.OperatorInboxFailingRow
}

// part: webhooks {

// deliveriesPanel shows the webhooks to tenants that are pending or failed.
type deliveriesPanel struct {
	panel
	Stats   db.DeliveryStatsRow
	GivenUp []db.OperatorDeliveriesGivenUpRow
}

// part: webhooks }

// part: checkouts {

// checkoutsPanel shows the unfinished checkouts.
type checkoutsPanel struct {
	panel
	List []checkoutRow
}

// checkout is an unfinished checkout and its steps.
type checkoutRow struct {
	TenantID, ID string
	CreatedAt    time.Time
	Steps        []db.OperatorSagasRow
}

// part: checkouts }

// actionsPanel shows the latest actions, so that two operators see each other.
type actionsPanel struct {
	panel
	List []db.OperatorAction
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	if q := r.URL.Query().Get("q"); q != "" {
		redirect(w, r, "/operator/find?q="+queryEscape(q))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	s.render(w, r, http.StatusOK, "overview", "Overview", s.readOverview(ctx))
}

// readOverview reads each panel on its own, so that one that fails does not hide the
// others. They share the two connections of the page's pool, which limits their load.
func (s *Server) readOverview(ctx context.Context) *overviewPage {
	p := &overviewPage{Now: s.now().UTC()}
	q := s.o.Pool.Queries
	// Ages are differences to instants that the database wrote, so its clock counts.
	if now, err := q.OutboxNow(ctx); err == nil {
		p.Now = now
	}
	var all sync.WaitGroup
	read := func(into *panel, fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil {
				into.ReadError = errorText(err)
			}
		})
	}
	read(&p.Work.panel, func() error { return p.Work.read(ctx, q, p.Now) })
	read(&p.Money.panel, func() error { return p.Money.read(ctx, q) })
	read(&p.Holds.panel, func() error { return p.Holds.read(ctx, q, p.Now) })
	read(&p.Owed.panel, func() error { return p.Owed.read(ctx, q) })
	read(&p.Disputes.panel, func() error { return p.Disputes.read(ctx, q, p.Now) }) // part: disputes
	read(&p.Outbox.panel, func() error { return p.Outbox.read(ctx, q) })
	read(&p.Inbox.panel, func() error { return p.Inbox.read(ctx, q) })
	read(&p.Deliveries.panel, func() error { return p.Deliveries.read(ctx, q) }) // part: webhooks
	read(&p.Checkouts.panel, func() error { return p.Checkouts.read(ctx, q) })   // part: checkouts
	read(&p.Actions.panel, func() (err error) {
		p.Actions.List, err = q.OperatorActionsLatest(ctx, actionsMax)
		return err
	})
	all.Wait()
	p.summarize()
	return p
}

// read puts the oldest discrepancy first, because it has waited longest.
func (m *moneyPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if m.Drift, err = q.MoneyDrift(ctx); err != nil {
		return err
	}
	for _, row := range m.Drift {
		m.Open += row.Open
	}
	m.Discrepancies, err = q.DiscrepanciesOpen(ctx, discrepanciesMax)
	slices.SortStableFunc(m.Discrepancies, func(a, b db.Discrepancy) int {
		return a.FoundAt.Compare(b.FoundAt)
	})
	if err != nil {
		return err
	}
	switch through, err := q.OperatorCheckedThrough(ctx); {
	case err == nil:
		m.CheckedUpTo = &through
	case !errors.Is(err, postgres.ErrNoRows):
		return err
	}
	return nil
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

// Pending is the sum over all consumers.
func (i *inboxPanel) Pending() (n int64) {
	for _, row := range i.Stats {
		n += row.Pending
	}
	return n
}

// ParkedCount is the sum over all consumers.
func (i *inboxPanel) ParkedCount() (n int64) {
	for _, row := range i.Stats {
		n += row.Parked
	}
	return n
}

// OldestSeconds is the maximum over all consumers.
func (i *inboxPanel) OldestSeconds() (oldest float64) {
	for _, row := range i.Stats {
		oldest = max(oldest, row.OldestSeconds)
	}
	return oldest
}

// part: webhooks {
func (d *deliveriesPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if d.Stats, err = q.DeliveryStats(ctx); err != nil {
		return err
	}
	d.GivenUp, err = q.OperatorDeliveriesGivenUp(ctx, scanMax)
	return err
}

// part: webhooks }

// part: checkouts {

// read groups the steps by checkout; the query returns them in that order.
func (p *checkoutsPanel) read(ctx context.Context, q *db.Queries) error {
	rows, err := q.OperatorSagas(ctx, checkoutsMax)
	for _, row := range rows {
		if n := len(p.List); n == 0 || p.List[n-1].ID != row.CheckoutID {
			p.List = append(p.List, checkoutRow{TenantID: row.TenantID, ID: row.CheckoutID, CreatedAt: row.CreatedAt})
		}
		last := &p.List[len(p.List)-1]
		last.Steps = append(last.Steps, row)
	}
	return err
}

// part: checkouts }

// summarize derives the summary from the panels.
func (p *overviewPage) summarize() {
	p.addUnreadable()
	needs := func(n int64, one, many, anchor string) {
		if n > 0 {
			p.Needs = append(p.Needs, headline{plural(n, one, many), anchor})
		}
	}
	needs(p.Money.Open, "object differs between Stripe and this database",
		"objects differ between Stripe and this database", "money")
	needs(p.Holds.Counts.Expiring, "authorization expires within 24 hours", "authorizations expire within 24 hours",
		"authorizations")
	needs(p.Holds.Counts.Unread, "authorization expired over a day ago, and how it ended is not read from Stripe",
		"authorizations expired over a day ago, and how they ended is not read from Stripe", "authorizations")
	needs(p.Owed.Counts.Parked, "refund is owed to a customer", "refunds are owed to customers", "owed")
	// part: disputes {
	needs(p.Disputes.Counts.NeedsResponse, "dispute needs a response", "disputes need a response", "disputes")
	// part: disputes }
	needs(p.Work.Counts.Parked, "request is parked", "requests are parked", "work")
	needs(p.Work.Counts.Overdue, "request is due and not claimed by any process",
		"requests are due and not claimed by any process", "work")
	needs(p.Outbox.Stats.Parked, "event to publish is parked", "events to publish are parked", "outbox")
	needs(p.Inbox.ParkedCount(), "received event is parked", "received events are parked", "inbox")
	// part: webhooks {
	needs(int64(len(p.Deliveries.GivenUp)), "tenant has missed webhooks", "tenants have missed webhooks",
		"deliveries")
	// part: webhooks }
	p.addLate()
	if n := p.Holds.expired(); n > 0 {
		p.Notes = append(p.Notes, headline{plural(n, "authorization has expired in the last day",
			"authorizations have expired in the last day"), "authorizations"})
	}
}

// addUnreadable names the panels without data: their counts are zero, which must not be
// read as "nothing to do".
func (p *overviewPage) addUnreadable() {
	for _, part := range []struct {
		panel        panel
		name, anchor string
	}{
		{p.Work.panel, "unfinished requests", "work"}, {p.Money.panel, "money", "money"},
		{p.Holds.panel, "authorizations", "authorizations"},
		{p.Owed.panel, "refunds that are owed", "owed"},
		{p.Disputes.panel, "disputes", "disputes"}, // part: disputes
		{p.Outbox.panel, "events to publish", "outbox"}, {p.Inbox.panel, "received events", "inbox"},
		{p.Deliveries.panel, "webhook deliveries", "deliveries"}, // part: webhooks
		{p.Checkouts.panel, "checkouts", "checkouts"},            // part: checkouts
		{p.Actions.panel, "the audit trail", "actions"},
	} {
		if part.panel.ReadError != "" {
			p.Unreadable = append(p.Unreadable, headline{part.name, part.anchor})
		}
	}
}

// addLate uses the thresholds of the alerts, so that the page and the pager agree.
func (p *overviewPage) addLate() {
	late := func(oldestSeconds float64, limit time.Duration, count string, anchor string) {
		if oldest := time.Duration(oldestSeconds * float64(time.Second)); oldest > limit {
			p.Late = append(p.Late, headline{count + ", the oldest for " + span(oldest), anchor})
		}
	}
	if n := p.Owed.Retried(); n > 0 {
		p.Late = append(p.Late, headline{plural(n, "refund failed and is owed", "refunds failed and are owed"), "owed"})
	}
	if n := p.Holds.Counts.Overdue - p.Holds.Counts.Unread; n > 0 {
		p.Late = append(p.Late, headline{plural(n, "authorization has expired, and how it ended is read from Stripe",
			"authorizations have expired, and how they ended is read from Stripe"), "authorizations"})
	}
	late(p.Work.Counts.UnknownSeconds, unknownOld,
		plural(p.Work.Counts.Unknown, "call to Stripe has", "calls to Stripe have")+" an unknown outcome", "work")
	late(p.Outbox.Stats.OldestSeconds, lagsAfter,
		plural(p.Outbox.Stats.Waiting, "event is", "events are")+" not yet published", "outbox")
	late(p.Inbox.OldestSeconds(), lagsAfter,
		plural(p.Inbox.Pending(), "received event is", "received events are")+" not yet applied", "inbox")
}

// Lists reports whether a panel has something unfinished.
func (p *overviewPage) Lists() bool {
	return p.Work.Counts.Unfinished > 0 || p.Outbox.Stats.Waiting > 0 || p.Inbox.Pending() > 0 ||
		p.Deliveries.Stats.Pending > 0 || // part: webhooks
		len(p.Checkouts.List) > 0 || // part: checkouts
		p.Disputes.Counts.Open > 0 || // part: disputes
		p.Money.Open > 0 || p.Owed.Counts.Owed > 0 || p.Holds.Counts.Held > 0
}

// Severity is the colour of the summary.
func (p *overviewPage) Severity() string {
	switch {
	case len(p.Needs) > 0:
		return "bad"
	case len(p.Unreadable) > 0, len(p.Late) > 0:
		return "warn"
	}
	return "good"
}

// Summary is the sentence at the top of the page. "No action needed" requires that
// every panel could be read.
func (p *overviewPage) Summary() string {
	switch {
	case len(p.Needs) == 0 && len(p.Unreadable) > 0:
		return "Status unknown."
	case len(p.Needs) == 0 && len(p.Late) > 0:
		return "No action needed yet."
	case len(p.Needs) == 0:
		return "No action needed."
	}
	return plural(len(p.Needs), "problem needs you.", "problems need you.")
}
