package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/disputes" // part: disputes
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
)

// Exit codes of audit. Zero is clean.
const (
	auditViolations  exitStatus = 1
	auditCouldNotRun exitStatus = 2 // or checks were not completed, and the others found nothing
)

// A backup is rarely older than auditSince, so the default also finds what a restore has lost.
const (
	auditSince   = 48 * time.Hour
	auditRowsMax = 100 // of one check that are printed; violations counts all
)

// auditReport is what audit prints as JSON. Scripts and the chaos harness read it, so its members are fixed.
type auditReport struct {
	OK         bool         `json:"ok"`
	Checks     []auditCheck `json:"checks"`
	MoneyDrift []auditDrift `json:"money_drift"`

	offends bool // some check was completed and violated, or cannot be completed because of what the tables contain
	partial bool // not everything was compared with Stripe
}

type auditCheck struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	Violations int                  `json:"violations"`
	Rows       []postgres.Violation `json:"rows"`
}

// auditDrift is per currency: amounts of two currencies cannot be added.
type auditDrift struct {
	Currency string `json:"currency"`
	Minor    int64  `json:"minor"`
}

// audit checks every invariant and compares our rows with Stripe's objects. It only reads, so it may run at any time
// while the service runs.
func audit(ctx context.Context, cli cli, args []string) error {
	flags := flags("audit")
	since := flags.Duration("since", auditSince, "compare objects created in this time, at Stripe or here")
	asJSON := flags.Bool("json", false, "print JSON")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	if *since <= 0 {
		return usageError("-since must be a duration above zero, such as 48h")
	}
	report, err := runAudit(ctx, cli, *since)
	if err != nil {
		_, _ = fmt.Fprintf(cli.stderr, "api: audit: %s\n", oneLine(err))
	}
	if len(report.Checks) == 0 { // No check was made, so no output may look like a result.
		return auditCouldNotRun
	}
	if *asJSON {
		err = errors.Join(err, printJSON(cli.stdout, report))
	} else {
		err = errors.Join(err, report.print(cli.stdout))
	}
	// Three exit codes, because a cron job must tell "violations" from "the database was down".
	switch {
	case err != nil:
		return auditCouldNotRun
	case !report.OK:
		return auditViolations
	}
	return nil
}

// runAudit reads, and never writes. With an error the report has no checks, or not all of them were completed. Stripe
// is configured without metrics and log: its errors are the command's own.
func runAudit(ctx context.Context, cli cli, since time.Duration) (report auditReport, err error) {
	o, err := readStripeConfig(cli.getenv)
	if err != nil {
		return report, err
	}
	cli.readOnly = true
	// No transaction around all of it: on a large database a snapshot of that age would keep vacuum
	// from removing dead rows.
	err = cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		if err := pool.CheckSchema(ctx); err != nil {
			return err
		}
		now, err := pool.OutboxNow(ctx)
		if err != nil {
			return fmt.Errorf("read the database's clock: %w", err)
		}
		checks, notRun := pool.Invariants(ctx) // Each stands alone: one that fails is reported, and so are the others.
		o.Metrics, o.Log = stripe.NewMetrics(nil), slog.New(slog.DiscardHandler)
		gateway := stripe.New(o)
		// part: disputes {
		disputed := compareDisputes(ctx, pool, gateway, now.Add(-since))
		checks, notRun = append(checks, disputed), errors.Join(notRun, disputed.Err)
		// part: disputes }
		compared, err := compareWithStripe(ctx, pool, gateway, now.Add(-since))
		report = newAuditReport(checks, compared, err)
		if report.offends {
			return nil
		}
		return errors.Join(notRun, err) // nothing offends, and not everything was checked
	})
	return report, err
}

func compareWithStripe(
	ctx context.Context, pool *postgres.Pool, gateway *stripe.Client, since time.Time,
) (reconcile.Comparison, error) {
	// it only reads rows
	money := payments.New(pool, nil, gateway, nil, payments.Options{
		Registered: ownOperations.Registered(),
		Disputes:   disputes.New(pool, gateway, disputes.Options{}), // part: disputes
	})
	compared, err := reconcile.Compare(ctx, pool, gateway, money, since)
	if err != nil {
		return compared, fmt.Errorf("compare with Stripe: %w", err)
	}
	return compared, nil
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

// newAuditReport lists every check, also those that were not completed, with the reason in place of a row.
func newAuditReport(checks []postgres.Check, compared reconcile.Comparison, incomparable error) auditReport {
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
	report := auditReport{OK: true, MoneyDrift: []auditDrift{}, partial: incomparable != nil}
	for _, c := range checks {
		// A query that the server rejects was rejected because of a row. Any other error but one about a row that was read
		// says nothing about the rows.
		report.offends = report.offends || len(c.Rows) > 0 || postgres.IsRejected(c.Err) || postgres.IsUnreadable(c.Err)
		if c.Err != nil {
			c.Rows = append(c.Rows, postgres.Violation{Subject: "not completed", Detail: postgres.ErrorText(c.Err)})
		}
		report.OK = report.OK && len(c.Rows) == 0
		shown := append([]postgres.Violation{}, c.Rows[:min(len(c.Rows), auditRowsMax)]...)
		report.Checks = append(report.Checks, auditCheck{c.ID, c.Name, len(c.Rows), shown})
	}
	for _, currency := range slices.Sorted(maps.Keys(compared.Drift)) {
		report.MoneyDrift = append(report.MoneyDrift, auditDrift{currency, compared.Drift[currency]})
	}
	return report
}

// number is the 8 of I8c.
func number(id string) (n int) {
	_, _ = fmt.Sscanf(id, "I%d", &n)
	return n
}

// print writes the table of checks first, so that an operator sees in one screen which of them
// fail, and then the rows.
func (r auditReport) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		verdict := "ok"
		if c.Violations > 0 {
			verdict = fmt.Sprint(c.Violations)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", c.ID, c.Name, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, c := range r.Checks {
		for _, row := range c.Rows {
			_, _ = fmt.Fprintf(w, "\n%s  %s\n     %s\n", c.ID, forTerminal(row.Subject), forTerminal(row.Detail))
		}
		if more := c.Violations - len(c.Rows); more > 0 {
			_, _ = fmt.Fprintf(w, "\n%s  and %d more\n", c.ID, more)
		}
	}
	drift := []string{}
	for _, d := range r.MoneyDrift {
		drift = append(drift, fmt.Sprintf("%d %s", d.Minor, forTerminal(d.Currency)))
	}
	switch {
	case r.partial:
		drift = append(drift, "not everything was compared")
	case len(drift) == 0:
		drift = []string{"0; nothing to compare"}
	}
	compared := len(comparisons)
	compared++ // part: disputes
	_, err := fmt.Fprintf(w, "\nmoney drift: %s\n%d checks: %d queries of the database, %d comparisons with Stripe\n",
		strings.Join(drift, ", "), len(r.Checks), len(r.Checks)-compared, compared)
	return err
}
