package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
)

// What audit says with its exit status.
const (
	auditOffends  exitStatus = 1
	auditCouldNot exitStatus = 2
)

const (
	auditSince   = 48 * time.Hour
	auditRowsMax = 100 // shown of one check; violations counts all
)

// auditReport is what audit prints as JSON.
type auditReport struct {
	OK         bool         `json:"ok"`
	Checks     []auditCheck `json:"checks"`
	MoneyDrift []auditDrift `json:"money_drift"`
}

type auditCheck struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Violations int            `json:"violations"`
	Rows       []db.Violation `json:"rows"`
}

type auditDrift struct {
	Currency string `json:"currency"`
	Minor    int64  `json:"minor"`
}

// audit asks every invariant and compares our rows with Stripe's objects. It
// changes nothing, so it may run beside the service at any time.
func audit(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("audit", flag.ContinueOnError)
	flags.SetOutput(stderr)
	since := flags.Duration("since", auditSince, "compare what was created at Stripe, or here, in this time")
	asJSON := flags.Bool("json", false, "print JSON")
	if flags.Parse(args) != nil || flags.NArg() > 0 || *since <= 0 {
		return errUsage
	}
	report, err := runAudit(ctx, getenv, *since)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "api: audit: %s\n", oneLine(err))
		return auditCouldNot
	}
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(report)
	} else {
		err = report.print(stdout)
	}
	switch {
	case err != nil:
		return auditCouldNot
	case !report.OK:
		return auditOffends
	}
	return nil
}

func runAudit(ctx context.Context, getenv func(string) string, since time.Duration) (report auditReport, err error) {
	stripe, err := readStripeConfig(getenv)
	if err != nil {
		return report, err
	}
	err = withDatabase(ctx, getenv, func(pool *db.Pool) error {
		if err := pool.CheckSchema(ctx); err != nil {
			return err
		}
		checks, err := pool.Invariants(ctx)
		if err != nil {
			return err
		}
		now, err := pool.OutboxNow(ctx)
		if err != nil {
			return fmt.Errorf("ask the database for the time: %w", err)
		}
		stripe.Metrics, stripe.Log = payments.NewStripeMetrics(nil), slog.New(slog.DiscardHandler)
		compared, err := payments.Compare(ctx, pool, payments.NewStripe(stripe), now.Add(-since))
		if err != nil {
			return err
		}
		report = newAuditReport(checks, compared)
		return nil
	})
	return report, err
}

// comparisons are the ways in which Stripe and our rows can disagree; parts of I8.
var comparisons = []struct {
	kind     db.DiscrepancyKind
	id, name string
}{
	{db.DiscrepancyKindUnmatchedAtStripe, "I8e", "no money moved at Stripe that is not here"},
	{db.DiscrepancyKindMissingAtStripe, "I8f", "no money moved here that is not at Stripe"},
	{db.DiscrepancyKindAmountMismatch, "I8g", "amounts are the same at Stripe"},
	{db.DiscrepancyKindStatusMismatch, "I8h", "statuses are the same at Stripe"},
}

func newAuditReport(checks []db.Check, compared payments.Comparison) auditReport {
	for _, c := range comparisons {
		check := db.Check{ID: c.id, Name: c.name}
		for _, f := range compared.Findings {
			if f.Kind == c.kind {
				check.Rows = append(check.Rows, db.Violation{
					Subject: strings.Join(strings.Fields(f.TenantID+" "+f.ObjectID+" "+f.OrderID+" "+f.PaymentID+" "+f.RefundID), " "),
					Detail:  fmt.Sprintf("%s (%+d %s)", f.Detail, f.DriftMinor, f.Currency),
				})
			}
		}
		checks = append(checks, check)
	}
	slices.SortStableFunc(checks, func(a, b db.Check) int {
		return cmp.Or(cmp.Compare(number(a.ID), number(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	report := auditReport{OK: true, MoneyDrift: []auditDrift{}}
	for _, c := range checks {
		report.OK = report.OK && len(c.Rows) == 0
		shown := append([]db.Violation{}, c.Rows[:min(len(c.Rows), auditRowsMax)]...)
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
			_, _ = fmt.Fprintf(w, "\n%s  %s\n     %s\n", c.ID, row.Subject, row.Detail)
		}
		if more := c.Violations - len(c.Rows); more > 0 {
			_, _ = fmt.Fprintf(w, "\n%s  and %d more\n", c.ID, more)
		}
	}
	drift := []string{}
	for _, d := range r.MoneyDrift {
		drift = append(drift, fmt.Sprintf("%d %s", d.Minor, d.Currency))
	}
	if len(drift) == 0 {
		drift = []string{"0; nothing to compare"}
	}
	_, err := fmt.Fprintf(w, "\nmoney drift: %s\n", strings.Join(drift, ", "))
	return err
}
