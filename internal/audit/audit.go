// Package audit checks every invariant and compares our rows with Stripe's objects. It only reads, so it may run at any
// time while the service runs. The command `api audit` prints what it reports.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/disputes" // part: disputes
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
)

// rowsMax is how many rows of one check a report has. Check.Violations counts all.
const rowsMax = 100

// Report is what `api audit -json` prints. Scripts and the chaos harness read it, so its members are fixed.
type Report struct {
	OK         bool    `json:"ok"`
	Checks     []Check `json:"checks"`
	MoneyDrift []Drift `json:"money_drift"`
	// PassedBy is what was taken for tenants that are not here: of another cell, or lost by a restore.
	PassedBy []PassedBy `json:"passed_by,omitempty"`

	// Partial: not everything was compared with Stripe.
	Partial bool `json:"-"`

	offends bool // some check was completed and violated, or cannot be completed because of what the tables contain
}

// Check is one invariant, or one comparison with Stripe. A check that was not completed has the reason in place of a row.
type Check struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	Violations int                  `json:"violations"`
	Rows       []postgres.Violation `json:"rows"`
}

// Drift is how much more Stripe has than our rows say, in minor units of a currency: amounts of two currencies cannot be
// added.
type Drift struct {
	Currency string `json:"currency"`
	Minor    int64  `json:"minor"`
}

// PassedBy is a number of PaymentIntents, and what they took, in minor units of a currency.
type PassedBy struct {
	Currency string `json:"currency"`
	Objects  int    `json:"objects"`
	Minor    int64  `json:"minor"`
}

// Run makes every check, and compares the objects that were created in the time since, at Stripe or here. Registered are
// the operations of one's own. With an error the report has no checks, or not all checks were completed and the completed
// checks found nothing.
func Run(
	ctx context.Context, pool *postgres.Pool, gateway *stripe.Client, registered map[string]payments.Registered,
	since time.Duration,
) (Report, error) {
	// No transaction around all of it: on a large database a snapshot of that age would keep vacuum
	// from removing dead rows.
	if err := pool.CheckSchema(ctx); err != nil {
		return Report{}, err
	}
	now, err := pool.OutboxNow(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("read the database's clock: %w", err)
	}
	checks, notRun := pool.Invariants(ctx) // Each stands alone: one that fails is reported, and so are the others.
	// part: disputes {
	disputed := compareDisputes(ctx, pool, gateway, now.Add(-since))
	checks, notRun = append(checks, disputed), errors.Join(notRun, disputed.Err)
	// part: disputes }
	guarded := checkGuards(ctx, pool)
	checks, notRun = append(checks, guarded), errors.Join(notRun, guarded.Err)
	compared, err := compareWithStripe(ctx, pool, gateway, registered, now.Add(-since))
	report := newReport(checks, compared, err)
	if report.offends {
		return report, nil
	}
	return report, errors.Join(notRun, err) // nothing offends, and not everything was checked
}

// checkGuards lists what the database lacks of the constraints, triggers and unique indexes that keep the invariants.
func checkGuards(ctx context.Context, pool *postgres.Pool) postgres.Check {
	c := postgres.Check{ID: "I0", Name: "every guard of the database is there and enabled"}
	missing, err := pool.MissingGuards(ctx)
	c.Err = err
	for _, guard := range missing {
		c.Rows = append(c.Rows, postgres.Violation{Subject: guard, Detail: "is missing or disabled"})
	}
	return c
}

func compareWithStripe(
	ctx context.Context, pool *postgres.Pool, gateway *stripe.Client, registered map[string]payments.Registered,
	since time.Time,
) (reconcile.Comparison, error) {
	// it only reads rows
	money := payments.New(pool, nil, gateway, nil, payments.Options{
		Registered: registered,
		Disputes:   disputes.New(pool, gateway, disputes.Options{}), // part: disputes
	})
	compared, err := reconcile.Compare(ctx, pool, gateway, money, since)
	if err != nil {
		return compared, fmt.Errorf("compare with Stripe: %w", err)
	}
	return compared, nil
}

// Comparisons is how many of a report's checks compare with Stripe. The others are queries of the database.
func Comparisons() int {
	n := len(comparisons)
	n++ // part: disputes
	return n
}

// comparisons are the ways in which Stripe and our rows can differ. They are sentences of I8, checked outside of SQL.
var comparisons = []struct {
	kind     db.DiscrepancyKind
	id, name string
}{
	{db.DiscrepancyKindUnmatchedAtStripe, "I8e", "no payment or refund at Stripe is missing here"},
	{db.DiscrepancyKindMissingAtStripe, "I8f", "no payment or refund here is missing at Stripe"},
	{db.DiscrepancyKindAmountMismatch, "I8g", "amounts equal those at Stripe"},
	{db.DiscrepancyKindStatusMismatch, "I8h", "statuses agree with those at Stripe"},
}

// newReport lists every check, also those that were not completed, with the reason in place of a row.
func newReport(checks []postgres.Check, compared reconcile.Comparison, incomparable error) Report {
	for _, c := range comparisons {
		check := postgres.Check{ID: c.id, Name: c.name, Err: incomparable}
		for _, f := range compared.Discrepancies {
			if f.Kind == c.kind {
				check.Rows = append(check.Rows, postgres.Violation{
					Subject: strings.Join(strings.Fields(strings.Join(
						[]string{f.TenantID, f.ObjectID, f.OrderID, f.PaymentID, f.RefundID}, " ")), " "),
					Detail: fmt.Sprintf("%s (%+d %s)", f.Detail, f.DriftMinor, f.Currency),
				})
			}
		}
		checks = append(checks, check)
	}
	slices.SortStableFunc(checks, func(a, b postgres.Check) int {
		return cmp.Or(cmp.Compare(number(a.ID), number(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	report := Report{OK: true, MoneyDrift: []Drift{}, Partial: incomparable != nil}
	for _, c := range checks {
		// A query that the server rejects was rejected because of a row. Any other error but one about a row that was read
		// says nothing about the rows.
		report.offends = report.offends || len(c.Rows) > 0 || postgres.IsRejected(c.Err) || postgres.IsUnreadable(c.Err)
		if c.Err != nil {
			c.Rows = append(c.Rows, postgres.Violation{Subject: "not completed", Detail: postgres.ErrorText(c.Err)})
		}
		report.OK = report.OK && len(c.Rows) == 0
		shown := append([]postgres.Violation{}, c.Rows[:min(len(c.Rows), rowsMax)]...)
		report.Checks = append(report.Checks, Check{c.ID, c.Name, len(c.Rows), shown})
	}
	for _, currency := range slices.Sorted(maps.Keys(compared.Drift)) {
		report.MoneyDrift = append(report.MoneyDrift, Drift{currency, compared.Drift[currency]})
	}
	for _, currency := range slices.Sorted(maps.Keys(compared.PassedBy)) {
		sum := compared.PassedBy[currency]
		report.PassedBy = append(report.PassedBy, PassedBy{currency, sum.Objects, sum.Minor})
	}
	return report
}

// number is the 8 of I8c.
func number(id string) (n int) {
	_, _ = fmt.Sscanf(id, "I%d", &n)
	return n
}
