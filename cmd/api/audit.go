package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/payonce/internal/audit"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/terminal"
)

// Exit codes of audit. Zero is clean.
const (
	auditViolations  exitStatus = 1
	auditCouldNotRun exitStatus = 2 // or checks were not completed, and the others found nothing
)

// A backup is rarely older than auditSince, so the default also finds what a restore has lost.
const auditSince = 48 * time.Hour

// auditCommand checks every invariant and compares our rows with Stripe's objects. It only reads, so it may run at any time
// while the service runs.
func auditCommand(ctx context.Context, cli cli, args []string) error {
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
		err = errors.Join(err, printAudit(cli.stdout, report))
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

// runAudit is audit.Run for the settings of a command. Stripe is configured without metrics and log: its errors are the
// command's own.
func runAudit(ctx context.Context, cli cli, since time.Duration) (report audit.Report, err error) {
	o, err := readStripeConfig(cli.getenv)
	if err != nil {
		return report, err
	}
	o.Metrics, o.Log = stripe.NewMetrics(nil), slog.New(slog.DiscardHandler)
	cli.readOnly = true
	err = cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		report, err = audit.Run(ctx, pool, stripe.New(o), ownOperations.Registered(), since)
		return err
	})
	return report, err
}

// printAudit writes the table of checks first, so that an operator sees in one screen which of them
// fail, and then the rows.
func printAudit(w io.Writer, r audit.Report) error {
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
			_, _ = fmt.Fprintf(w, "\n%s  %s\n     %s\n", c.ID, terminal.Text(row.Subject), terminal.Text(row.Detail))
		}
		if more := c.Violations - len(c.Rows); more > 0 {
			_, _ = fmt.Fprintf(w, "\n%s  and %d more\n", c.ID, more)
		}
	}
	drift := []string{}
	for _, d := range r.MoneyDrift {
		drift = append(drift, fmt.Sprintf("%d %s", d.Minor, terminal.Text(d.Currency)))
	}
	switch {
	case r.Partial:
		drift = append(drift, "not everything was compared")
	case len(drift) == 0:
		drift = []string{"0; nothing to compare"}
	}
	for _, p := range r.PassedBy {
		_, _ = fmt.Fprintf(w, "\npassed by: %d PaymentIntents of tenants that are not here, which took %d %s\n", p.Objects, p.Minor,
			terminal.Text(p.Currency))
	}
	compared := audit.Comparisons()
	_, err := fmt.Fprintf(w, "\nmoney drift: %s\n%d checks: %d queries of the database, %d comparisons with Stripe\n",
		strings.Join(drift, ", "), len(r.Checks), len(r.Checks)-compared, compared)
	return err
}
