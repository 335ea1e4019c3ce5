package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// The restore drill and every way of disagreeing are tests of package payments.
// Here it is the command: what it prints, and what its exit status says.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	audit := func(t *testing.T, args []string, settings ...string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := w.Command(append([]string{"audit"}, args...), settings...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			return out.String(), errs.String(), exit.ExitCode()
		}
		return out.String(), errs.String(), 0
	}
	require.Equal(t, 201, api.Pay("paid", api.Order(), "pm_card_visa").Status)

	t.Run("PrintsACleanReport", func(t *testing.T) {
		out, errs, status := audit(t, nil)
		require.Zero(t, status, out)
		require.Empty(t, errs)
		require.Regexp(t, `(?m)^I1a +an order is paid once +ok$`, out)
		require.Regexp(t, `(?m)^I8e +no payment or refund at Stripe is missing here +ok$`, out)
		require.Contains(t, out, "\nmoney drift: 0 usd\n")
		require.Regexp(t, `(?m)^\d+ checks: \d+ queries of the database, \d comparisons with Stripe$`, out)
	})

	t.Run("CouldNot", func(t *testing.T) {
		for _, c := range []struct {
			name    string
			args    []string
			setting string
			says    string
		}{
			{"WithoutADatabase", nil, "DATABASE_URL=", "DATABASE_URL is required"},
			{"WithADatabaseThatIsAway", nil, "DATABASE_URL=postgres://payonce@127.0.0.1:9/payonce",
				"connection refused"},
			{"WithoutAKeyToStripe", nil, "STRIPE_SECRET_KEY=", "STRIPE_SECRET_KEY is required"},
			{"WithAStripeThatIsAway", nil, "STRIPE_API_BASE=http://127.0.0.1:9", "connection refused"},
			{"WithoutSense", []string{"-since", "yesterday"}, "", "usage"},
			{"OfNothing", []string{"-since", "0s"}, "", "usage"},
		} {
			t.Run(c.name, func(t *testing.T) {
				out, errs, status := audit(t, c.args, c.setting)
				require.Equal(t, 2, status, out+errs)
				require.Empty(t, out, "no output that looks like a result of the audit")
				require.Contains(t, errs, c.says)
				require.NotContains(t, errs, stripesim.DefaultKey)
			})
		}
	})

	// The last, because it damages the tables.
	t.Run("PrintsViolations", func(t *testing.T) {
		w.Exec("ALTER TABLE outbox_events DISABLE TRIGGER USER")
		w.Exec("DELETE FROM outbox_events WHERE type = 'payment.succeeded'")
		w.Exec("UPDATE payments SET intent_id = 'pi_made_up'")
		out, _, status := audit(t, nil)
		require.Equal(t, 1, status, out)
		require.Regexp(t, `(?m)^I6a +each version has one event +1$`, out)
		require.Regexp(t, `(?m)^I6a  ten_\w+ pay_\w+\n +version 2, 1 events from 1 to 1$`, out)
		require.Regexp(
			t,
			`(?m)^I8f  ten_\w+ pi_made_up ord_\w+ pay_\w+\n +succeeded here, and does not exist at Stripe \(-1000 usd\)$`,
			out,
		)
		require.Contains(
			t, out, "\nmoney drift: 2000 usd\n",
			"a payment that is only at Stripe and one that is only here are two violations",
		)

		out, _, status = audit(t, []string{"-json", "-since", "1h"})
		require.Equal(t, 1, status)
		var report map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		require.Equal(t, false, report["ok"])
		require.Equal(t, []any{map[string]any{"currency": "usd", "minor": 2000.0}}, report["money_drift"])
		checks := report["checks"].([]any)
		require.Equal(
			t, map[string]any{"id": "I1a", "name": "an order is paid once", "violations": 0.0, "rows": []any{}},
			checks[0],
		)
	})
}
