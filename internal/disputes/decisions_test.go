package disputes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// TestChanged: what is announced of a dispute, and with how many new versions.
func TestChanged(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due, later := at.Add(time.Hour), at.Add(2*time.Hour)
	payment := db.Payment{TenantID: "ten_1", ID: "pay_1", OrderID: "ord_1"}
	open := stripe.Dispute{ID: "du_1", Status: "needs_response", Reason: "fraudulent", AmountMinor: 1000, Currency: "usd",
		ChargeID: "ch_1", CreatedAt: at, DueBy: due}
	withdrawn := []db.DisputeMovement{{
		ID: "txn_1", Kind: db.DisputeMovementKindWithdrawal, AmountMinor: -1000, FeeMinor: 1500, Currency: "usd",
	}}
	first, events := changed(db.Dispute{}, payment, open, withdrawn, 1)
	require.Equal(t, []string{"dispute.created"}, events)
	require.Equal(t, db.Dispute{
		TenantID: "ten_1", ID: ids.Keyed(ids.Dispute, "ten_1", "du_1"), PaymentID: "pay_1", OrderID: "ord_1",
		StripeDisputeID: "du_1", ChargeID: "ch_1", CreatedAt: at, Currency: "usd", Status: "needs_response",
		Reason: "fraudulent", AmountMinor: 1000, EvidenceDueBy: &due, WithdrawnMinor: 1000, FeeMinor: 1500, Version: 1,
	}, first)

	for _, c := range []struct {
		name      string
		before    db.Dispute
		read      func(*stripe.Dispute)
		movements []db.DisputeMovement
		fresh     int
		events    []string
	}{
		{"the same", first, func(*stripe.Dispute) {}, withdrawn, 0, nil},
		{"the same instant elsewhere", first, func(d *stripe.Dispute) { d.DueBy = due.In(time.FixedZone("x", 3600)) },
			withdrawn, 0, nil},
		{"another status", first, func(d *stripe.Dispute) { d.Status = "under_review" }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"another reason", first, func(d *stripe.Dispute) { d.Reason = "general" }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"another amount", first, func(d *stripe.Dispute) { d.AmountMinor = 900 }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"a later deadline", first, func(d *stripe.Dispute) { d.DueBy = later }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"a deadline no more", first, func(d *stripe.Dispute) { d.DueBy = time.Time{} }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"more withdrawn", first, func(*stripe.Dispute) {}, append(withdrawn[:1:1],
			db.DisputeMovement{AmountMinor: -1, Currency: "usd"}), 0, []string{"dispute.updated"}},
		{"another fee", first, func(*stripe.Dispute) {}, append(withdrawn[:1:1],
			db.DisputeMovement{FeeMinor: 1, Currency: "usd"}), 0, []string{"dispute.updated"}},
		{"a movement of nothing", first, func(*stripe.Dispute) {}, append(withdrawn[:1:1],
			db.DisputeMovement{Currency: "usd"}), 1, []string{"dispute.updated"}},
		{"won", first, func(d *stripe.Dispute) { d.Status = "won" }, withdrawn, 0, []string{"dispute.won"}},
		{"lost", first, func(d *stripe.Dispute) { d.Status = "lost" }, withdrawn, 0, []string{"dispute.lost"}},
		{"an end of another kind", first, func(d *stripe.Dispute) { d.Status = "warning_closed" }, withdrawn, 0,
			[]string{"dispute.updated"}},
		{"first seen when it is lost", db.Dispute{}, func(d *stripe.Dispute) { d.Status = "lost" }, withdrawn, 1,
			[]string{"dispute.created", "dispute.lost"}},
		{"first seen with nothing in it", db.Dispute{}, func(d *stripe.Dispute) { *d = stripe.Dispute{} }, nil, 0,
			[]string{"dispute.created"}},
	} {
		d := open
		c.read(&d)
		row, events := changed(c.before, payment, d, c.movements, c.fresh)
		require.Equal(t, c.events, events, c.name)
		require.Equal(t, c.before.Version+int64(len(c.events)), row.Version, c.name)
		if len(c.events) == 0 {
			require.Equal(t, c.before, row, c.name)
			continue
		}
		require.Equal(t, d.Status, row.Status, c.name)
		require.True(t, d.DueBy.Equal(deadline(row)), c.name)
		require.Equal(t, d.DueBy.IsZero(), row.EvidenceDueBy == nil, c.name)
	}

	// One that was lost, and whose money comes back after all.
	lost := first
	lost.Status = "lost"
	ended := open
	ended.Status = "lost"
	row, events := changed(lost, payment, ended, nil, 1)
	require.Equal(t, []string{"dispute.updated"}, events, "its end is announced once")
	require.Zero(t, row.WithdrawnMinor)
}

// TestWindowBegins where the last one ended, and never more than 35 days ago.
func TestWindowBegins(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(ago time.Duration) *time.Time {
		at := now.Add(-ago)
		return &at
	}
	recent, month := listWindows[0], listWindows[1]
	for _, c := range []struct {
		name    string
		window  listWindow
		covered *time.Time
		ago     time.Duration
	}{
		{"first", recent, nil, recent.back},
		{"continued", recent, at(time.Hour), time.Hour + recent.back},
		{"after a long outage", recent, at(100 * 24 * time.Hour), 35 * 24 * time.Hour},
		{"first of the month", month, nil, 35 * 24 * time.Hour},
		{"the month again", month, at(time.Hour), 35 * 24 * time.Hour},
	} {
		require.Equal(t, c.ago, now.Sub(c.window.from(db.ReconcileClaimRow{Now: now, CoveredThrough: c.covered})), c.name)
	}
}

// listed is a gateway that lists pages, and notes the windows that it was asked for.
type listed struct {
	Gateway
	pages []stripe.Page[stripe.Dispute]
	asked []stripe.Window

	refuses error // of GetDispute
}

func (g *listed) ListDisputes(_ context.Context, w stripe.Window) (stripe.Page[stripe.Dispute], error) {
	g.asked = append(g.asked, w)
	if len(g.asked) > len(g.pages) {
		return stripe.Page[stripe.Dispute]{}, stripe.ErrAway
	}
	return g.pages[len(g.asked)-1], nil
}

func TestPages(t *testing.T) {
	t.Parallel()
	from := time.Now()
	page := func(more bool, ids ...string) (p stripe.Page[stripe.Dispute]) {
		for _, id := range ids {
			p.Objects = append(p.Objects, stripe.Dispute{ID: id})
		}
		p.More = more
		return p
	}
	type pagesOf = []stripe.Page[stripe.Dispute]
	for _, c := range []struct {
		name   string
		pages  pagesOf
		stopAt int
		ids    []string
		after  []string // of each request
		err    error
	}{
		{"one", pagesOf{page(false, "a", "b")}, 9, []string{"a", "b"}, []string{""}, nil},
		{"none", pagesOf{page(false)}, 9, nil, []string{""}, nil},
		{"two", pagesOf{page(true, "a", "b"), page(false, "c")}, 9, []string{"a", "b", "c"}, []string{"", "b"}, nil},
		{"an empty one that promises more", pagesOf{page(true)}, 9, nil, []string{""}, nil},
		{"until the caller has enough", pagesOf{page(true, "a"), page(true, "b")}, 1, []string{"a"}, []string{""}, nil},
		{"until Stripe is away", pagesOf{page(true, "a")}, 9, []string{"a"}, []string{"", "a"}, stripe.ErrAway},
	} {
		g, ids := &listed{pages: c.pages}, []string(nil)
		var failed error
		for list, err := range pages(t.Context(), g, from) {
			failed = err
			for _, d := range list {
				ids = append(ids, d.ID)
			}
			if c.stopAt--; c.stopAt == 0 {
				break
			}
		}
		require.ErrorIs(t, failed, c.err, c.name)
		require.Equal(t, c.ids, ids, c.name)
		var after []string
		for _, w := range g.asked {
			require.Equal(t, from, w.From)
			after = append(after, w.After)
		}
		require.Equal(t, c.after, after, c.name)
	}
}

// TestErrorOfOneDispute: what would recur with everything working stops no other dispute. Anything else ends the round.
func TestErrorOfOneDispute(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		err    error
		recurs bool
	}{
		{fmt.Errorf("400: %w", stripe.ErrNotShown), true},
		{stripe.ErrNoSuchObject, true},
		{errNotAdopted, true},
		{errMoved, true},
		{&pgconn.PgError{Code: "23514"}, true},
		{fmt.Errorf("%w: %w", postgres.ErrInDoubt, &pgconn.PgError{Code: "23514"}), false},
		{&pgconn.PgError{Code: "53300"}, false},
		{stripe.ErrAway, false},
		{errors.New("connection reset"), false},
	} {
		require.Equal(t, c.recurs, ofTheDispute(t.Context(), c.err), c.err)
		require.False(t, ofTheDispute(canceled, c.err), "the process stops: %v", c.err)
	}
}

// TestFilter: each member that is not empty leaves out what differs in it, alone.
func TestFilter(t *testing.T) {
	t.Parallel()
	row := db.Dispute{PaymentID: "pay_1", OrderID: "ord_1", Status: "lost"}
	for filter, has := range map[Filter]bool{
		{}:                   true,
		{PaymentID: "pay_1"}: true, {PaymentID: "pay_2"}: false,
		{OrderID: "ord_1"}: true, {OrderID: "ord_2"}: false,
		{Status: "lost"}: true, {Status: "won"}: false,
		{PaymentID: "pay_1", OrderID: "ord_1", Status: "lost"}: true,
	} {
		require.Equal(t, has, filter.has(row), filter)
	}
}

// TestOpenDisputeIsReadOften in its first two days, and twice a day after that.
func TestOpenDisputeIsReadOften(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4*time.Minute, again(time.Now().Add(-48*time.Hour)))
	require.Equal(t, 12*time.Hour, again(time.Now().Add(-50*time.Hour)))
}

func (g *listed) GetDispute(context.Context, string) (stripe.Dispute, error) {
	return stripe.Dispute{}, g.refuses
}

// TestEndedDisputesAreLookedForInTheList with no more calls than it would take to read them one by one.
func TestEndedDisputesAreLookedForInTheList(t *testing.T) {
	t.Parallel()
	endless := stripe.Page[stripe.Dispute]{Objects: []stripe.Dispute{{ID: "du_of_others"}}, More: true}
	ended := []db.DisputesToCompareRow{{StripeDisputeID: "du_1"}, {StripeDisputeID: "du_2"}, {StripeDisputeID: "du_3"}}
	compare := func(refuses error) (*comparison, *listed, error) {
		g := &listed{pages: []stripe.Page[stripe.Dispute]{endless, endless, endless, endless}, refuses: refuses}
		c := &comparison{Service: &Service{gateway: g}, seen: map[string]bool{}}
		return c, g, c.compareEnded(t.Context(), ended)
	}
	c, g, err := compare(stripe.ErrNoSuchObject)
	require.NoError(t, err)
	require.Len(t, g.asked, 3)
	require.Len(t, c.differences, 3, "none is there, and each is read by itself")
	why := errors.New("connection reset")
	_, _, err = compare(why)
	require.ErrorIs(t, err, why)
}
