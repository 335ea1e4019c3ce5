package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/audit"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// The restore drill and every way of disagreeing are tests of package payments.
// Here it is the command: what it prints, and what its exit status says.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	audited := func(t *testing.T, args []string, settings ...string) (stdout, stderr string, status int) {
		t.Helper()
		return typed(w, append([]string{"audit"}, args...), settings...)
	}
	require.Equal(t, 201, api.Pay("paid", api.Order(), "pm_card_visa").Status)

	t.Run("PrintsACleanReport", func(t *testing.T) {
		out, errs, status := audited(t, nil)
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
			{"WithoutSense", []string{"-since", "yesterday"}, "", "usage"},
			{"OfNothing", []string{"-since", "0s"}, "", "usage"},
		} {
			t.Run(c.name, func(t *testing.T) {
				out, errs, status := audited(t, c.args, c.setting)
				require.Equal(t, 2, status, out+errs)
				require.Empty(t, out, "no output that looks like a result of the audit")
				require.Contains(t, errs, c.says)
				require.NotContains(t, errs, stripesim.DefaultKey)
			})
		}
	})

	// A check that cannot be completed hides no other. One that fails because of what the tables contain offends.
	t.Run("ReportsACheckThatFailsAndAllOthers", func(t *testing.T) {
		w.Exec("ALTER FUNCTION readable_json RENAME TO readable")
		w.Exec(`CREATE FUNCTION readable_json(bytea) RETURNS jsonb LANGUAGE sql AS $$ SELECT 'no'::text::jsonb $$`)
		defer w.Exec("DROP FUNCTION readable_json; ALTER FUNCTION readable RENAME TO readable_json")
		out, errs, status := audited(t, nil)
		require.Equal(t, 1, status, out+errs)
		require.Regexp(t, `(?m)^I2 +no acknowledged payment is lost or changed +1$`, out)
		require.Regexp(t, `(?m)^I2  not completed\n +.*invalid input syntax for type json`, out)
		require.Regexp(t, `(?m)^I1a +an order is paid once +ok$`, out)
		require.Regexp(t, `(?m)^I17 +the reaper deletes no unfinished key +ok$`, out)

		out, _, status = audited(t, []string{"-json"}, "STRIPE_API_BASE=http://127.0.0.1:9")
		require.Equal(t, 1, status, "Stripe is away too, and what was found is reported all the same")
		var report audit.Report
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		require.False(t, report.OK)
		byID := map[string]audit.Check{}
		for _, c := range report.Checks {
			byID[c.ID] = c
		}
		require.Equal(t, "not completed", byID["I8e"].Rows[0].Subject)
		require.Contains(t, byID["I8e"].Rows[0].Detail, "connection refused")
		require.Zero(t, byID["I1a"].Violations)
	})

	// Not everything was checked, and what was is printed.
	t.Run("PrintsAllOtherChecksWhileStripeIsAway", func(t *testing.T) {
		out, errs, status := audited(t, nil, "STRIPE_API_BASE=http://127.0.0.1:9")
		require.Equal(t, 2, status, out+errs)
		require.Regexp(t, `(?m)^I1a +an order is paid once +ok$`, out)
		for _, check := range []string{
			"I8e", "I8h",
			"I24d", // part: disputes
		} {
			require.Regexp(t, `(?m)^`+check+`  not completed\n +.*connection refused`, out)
		}
		require.Contains(t, out, "\nmoney drift: not everything was compared\n")
		require.Contains(t, errs, "connection refused")
		require.NotContains(t, out+errs, stripesim.DefaultKey)
	})

	t.Run("NamesTheRowThatCannotBeRead", func(t *testing.T) {
		answer := w.Text("SELECT encode(answer_body, 'hex') FROM idempotency_keys WHERE key = 'paid'")
		w.Exec("ALTER TABLE idempotency_keys DISABLE TRIGGER USER")
		w.Exec("UPDATE idempotency_keys SET answer_body = 'no JSON' WHERE key = 'paid'")
		out, errs, status := audited(t, nil)
		require.Equal(t, 1, status, out+errs)
		require.Regexp(t, `(?m)^I2  ten_\w+ pay_\w+\n +the response cannot be read, payment is succeeded$`, out)
		require.Regexp(t, `(?m)^I8i +an order's items sum to its amount +ok$`, out)
		w.Exec("UPDATE idempotency_keys SET answer_body = decode($1, 'hex') WHERE key = 'paid'", answer)
		out, _, status = audited(t, nil)
		require.Equal(t, 1, status)
		require.Regexp(t, `(?m)^I0  the trigger finished_is_final of idempotency_keys\n +is missing or disabled$`, out)
		w.Exec("ALTER TABLE idempotency_keys ENABLE TRIGGER USER")
		_, _, status = audited(t, nil)
		require.Zero(t, status)
	})

	t.Run("CouldNotRunWithoutTheDataKey", func(t *testing.T) {
		out, errs, status := audited(t, nil, "DATA_KEY="+world.OtherDataKey)
		require.Equal(t, 2, status, out+errs)
		for _, check := range []string{"I2", "I2b", "I3"} {
			require.Regexp(t, `(?m)^`+check+`  not completed\n +.*DATA_KEY has no key with the id `+
				w.Box(world.DataKey).KeyIDs()[0], out)
		}
		require.Regexp(t, `(?m)^I1a +an order is paid once +ok$`, out)
		require.Contains(t, errs, "DATA_KEY has no key")
	})

	t.Run("FindsASealedAnswerThatWasChanged", func(t *testing.T) {
		answer := w.Text("SELECT encode(answer_body, 'hex') FROM idempotency_keys WHERE key = 'paid'")
		w.Exec("ALTER TABLE idempotency_keys DISABLE TRIGGER USER")
		w.Exec("UPDATE idempotency_keys SET answer_body = set_byte(answer_body, 60, get_byte(answer_body, 60) # 1) WHERE key = 'paid'")
		out, errs, status := audited(t, nil)
		require.Equal(t, 1, status, out+errs)
		require.Regexp(t, `(?m)^I3  ten_\w+ pay_\w+\n +the value was changed after it was encrypted`, out)
		require.Regexp(t, `(?m)^I2 .* ok$`, out)
		w.Exec("UPDATE idempotency_keys SET answer_body = decode($1, 'hex') WHERE key = 'paid'", answer)
		w.Exec("ALTER TABLE idempotency_keys ENABLE TRIGGER USER")
	})

	t.Run("ReportsAnInfiniteTimeAndAllOtherChecks", func(t *testing.T) {
		created := w.Text("SELECT created_at FROM payments WHERE idempotency_key = 'paid'")
		w.Exec("UPDATE payments SET created_at = 'infinity' WHERE idempotency_key = 'paid'")
		out, errs, status := audited(t, nil)
		require.Equal(t, 1, status, out+errs)
		require.Regexp(t, `(?m)^I8e  not completed\n +.*created_at.*Infinity`, out)
		require.Regexp(t, `(?m)^I1a +an order is paid once +ok$`, out)
		w.Exec("UPDATE payments SET created_at = $1::timestamptz WHERE idempotency_key = 'paid'", created)
		_, _, status = audited(t, nil)
		require.Zero(t, status)
	})

	// The last, because it damages the tables.
	t.Run("PrintsViolations", func(t *testing.T) {
		w.Exec("ALTER TABLE outbox_events DISABLE TRIGGER USER")
		w.Exec("DELETE FROM outbox_events WHERE type = 'payment.succeeded'")
		w.Exec("ALTER TABLE payments DISABLE TRIGGER USER")
		w.Exec("UPDATE payments SET intent_id = 'pi_made_up'")
		out, _, status := audited(t, nil)
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

		out, _, status = audited(t, []string{"-json", "-since", "1h"})
		require.Equal(t, 1, status)
		var report map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		require.Equal(t, false, report["ok"])
		require.Equal(t, []any{map[string]any{"currency": "usd", "minor": 2000.0}}, report["money_drift"])
		checks := report["checks"].([]any)
		require.Equal(
			t, map[string]any{"id": "I1a", "name": "an order is paid once", "violations": 0.0, "rows": []any{}},
			checks[1],
		)
	})
}

// Stripe cannot show one intent, for ever, and all others.
func TestAuditNamesTheIntentThatStripeCannotShow(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, refusal int) (b *world.Books, intent string, audit func() (world.Report, int)) {
		b = world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusPaymentRequired, b.API.Pay("declined", order, "pm_card_chargeDeclined").Status)
		b.Sim.Inject(stripesim.Fault{
			Op: "intent.get", Kind: stripesim.Refuse, Status: refusal, Code: "account_invalid", OrderID: order, Times: -1,
		})
		return b, b.Text("SELECT intent_id FROM payments"), func() (r world.Report, status int) {
			out, errs, status := typed(b.World, []string{"audit", "-json"})
			require.NoError(t, json.Unmarshal([]byte(out), &r), "%s %s", out, errs)
			return r, status
		}
	}
	row := func(t *testing.T, r world.Report, id string) string {
		for _, c := range r.Checks {
			if c.ID == id {
				require.Len(t, c.Rows, 1, "%s: %v", id, c.Rows)
				return c.Rows[0].Subject + ": " + c.Rows[0].Detail
			}
		}
		require.Fail(t, "the report has no check "+id)
		return ""
	}
	t.Run("AsAViolationIfStripeRefuses", func(t *testing.T) {
		t.Parallel()
		_, intent, audit := setup(t, http.StatusBadRequest)
		r, status := audit()
		require.Equal(t, 1, status)
		require.Regexp(t, " "+intent+" .*: Stripe does not show it", row(t, r, "I8h"))
		require.Zero(t, r.Offends()["I8e"])
	})
	t.Run("AsTheReasonWhyAComparisonIsNotCompleted", func(t *testing.T) {
		t.Parallel()
		_, intent, audit := setup(t, http.StatusInternalServerError)
		r, status := audit()
		require.Equal(t, 2, status, "nothing offends, and not everything was compared")
		require.Regexp(t, "^not completed: .*"+intent, row(t, r, "I8h"))
		require.Zero(t, r.Offends()["I1a"])
	})
	t.Run("AndComparesAllOthers", func(t *testing.T) {
		t.Parallel()
		b, intent, audit := setup(t, http.StatusInternalServerError)
		other := b.API.Order()
		require.Equal(t, http.StatusPaymentRequired, b.API.Pay("other", other, "pm_card_chargeDeclined").Status)
		paid := b.Text("SELECT intent_id FROM payments WHERE order_id = $1", other)
		_, err := b.Stripe.PaymentIntents.Confirm(paid, &stripego.PaymentIntentConfirmParams{
			PaymentMethod: stripego.String("pm_card_visa"),
		})
		require.NoError(t, err)
		r, status := audit()
		require.Equal(t, 1, status)
		require.Equal(t, 2, r.Offends()["I8e"], "%+v", r)
		require.Regexp(t, "^not completed: .*"+intent, row(t, r, "I8h"))
		require.Contains(t, fmt.Sprint(r), paid)
		require.EqualValues(t, 1000, r.Drift())
	})
}
