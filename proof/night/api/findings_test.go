package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

// play runs a command of the program as a process, and returns what it printed and its exit status.
func play(t *testing.T, w *world.World, args []string, settings ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := w.Command(args, settings...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// finding is a check of `api doctor -json`.
type finding struct{ ID, Status, Detail string }

func findings(t *testing.T, out string) []finding {
	t.Helper()
	var report struct{ Checks []finding }
	require.NoError(t, json.Unmarshal([]byte(out), &report), out)
	return report.Checks
}

// The exit codes of doctor and of audit.
const (
	found       = 1
	couldNotRun = 2
)

// outcome is what a command must do: its exit status, and patterns of its two streams.
type outcome struct {
	name     string
	ill      string // SQL that is run before
	well     string // SQL that is run after
	args     []string
	settings []string
	status   int
	stdout   string
	stderr   string
}

func requireOutcomes(t *testing.T, w *world.World, outcomes ...outcome) {
	t.Helper()
	for _, c := range outcomes {
		t.Run(c.name, func(t *testing.T) {
			if c.ill != "" {
				w.Exec(c.ill)
				defer w.Exec(c.well)
			}
			out, errs, status := play(t, w, c.args, c.settings...)
			require.Equal(t, c.status, status, "%s\n%s", out, errs)
			require.Regexp(t, c.stdout, out)
			require.Regexp(t, c.stderr, errs)
			require.NotContains(t, out+errs, stripesim.DefaultKey)
		})
	}
}

// TestDoctorAsAProcess: what an operator and a script see of doctor on a system that serves: one finding of each group of
// checks.
func TestDoctorAsAProcess(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t) // which writes as in production
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	listen, err := port.Loopback(t.Context())
	require.NoError(t, err)
	broker := "BROKER_URL=embedded:" + filepath.Join(t.TempDir(), "broker") + "?listen=" + listen.String()
	w.Process(broker)
	form := url.Values{"url": {"https://pay.example.com/v1/webhooks/stripe"}, "enabled_events[]": stripe.WebhookTypes}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.StripeURL+"/v1/webhook_endpoints",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)

	with := func(settings ...string) []string { return append([]string{broker, "ADMIN_ADDR="}, settings...) }
	doctor := []string{"doctor"}
	requireOutcomes(t, w,
		outcome{name: "Healthy", args: doctor, settings: with(), stdout: `(?m)^25 checks: 25 ok, 0 warn, 0 bad$`, stderr: `^$`},
		outcome{name: "HealthyAsJSON", args: []string{"doctor", "-json"}, settings: with(), stdout: `^\{"ok":true,"checks":\[`,
			stderr: `^$`},
		outcome{name: "AWarningIsNoFailure", args: doctor, settings: with("STRIPE_WEBHOOK_SECRET="),
			stdout: `(?m)^warn +settings\.webhook_secret +STRIPE_WEBHOOK_SECRET is unset`, stderr: `^$`},
		outcome{name: "ASettingIsWrong", args: doctor, settings: with("STRIPE_TIMEOUT=soon"), status: found,
			stdout: `(?m)^bad +settings\.STRIPE_TIMEOUT +STRIPE_TIMEOUT must be`, stderr: `^$`},
		outcome{name: "TheDatabaseIsAway", args: doctor, settings: with("DATABASE_URL=postgres://payonce:hidden@127.0.0.1:9/payonce"),
			status: found, stdout: `(?m)^bad +database\.reachable +.*connection refused`, stderr: `^$`},
		outcome{name: "ARightIsMissing", ill: `REVOKE INSERT ON orders FROM payonce_service`,
			well: `GRANT INSERT ON orders TO payonce_service`, args: doctor, settings: with(), status: found,
			stdout: `(?m)^bad +database\.rights +.*INSERT on orders`, stderr: `^$`},
		outcome{name: "TheRoleOwnsTheTables", args: doctor, settings: with("DATABASE_URL=" + server.URL),
			stdout: `(?m)^warn +database\.rights +.*owns the tables`, stderr: `^$`},
		outcome{name: "TheKeyIsMissing", args: doctor, settings: with("DATA_KEY=" + world.OtherDataKey), status: found,
			stdout: `(?m)^bad +database\.encryption +.*lacks the keys with the ids`, stderr: `^$`},
		outcome{name: "StripeIsAway", args: doctor, settings: with("STRIPE_API_BASE=http://127.0.0.1:9"), status: found,
			stdout: `(?m)^bad +stripe\.reachable +`, stderr: `^$`},
		outcome{name: "TheBrokerIsAway", args: []string{"doctor", "-json"}, settings: with("BROKER_URL=nats://127.0.0.1:9"),
			status: found, stdout: `"id":"broker.reachable","status":"bad"`, stderr: `^$`},
		outcome{name: "WithoutADatabase", args: doctor, settings: with("DATABASE_URL="), status: couldNotRun, stdout: `^$`,
			stderr: `^api: doctor: DATABASE_URL is required`},
		outcome{name: "WithoutSense", args: []string{"doctor", "please"}, settings: with(), status: couldNotRun, stdout: `^$`,
			stderr: `usage: api doctor \[-json\]\n`},
	)
}

// TestAuditAsAProcess: what an operator and a script see of audit: tables that hold what was promised, and one violation of
// our rows, of an answer, and of Stripe.
func TestAuditAsAProcess(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	require.Equal(t, http.StatusCreated, api.Pay("paid", api.Order(), "pm_card_visa").Status)
	asReplica := func(sql string) string {
		return fmt.Sprintf(`DO $$ BEGIN SET LOCAL session_replication_role = replica; %s; END $$`, sql)
	}
	audit := []string{"audit"}
	intent := w.Text(`SELECT intent_id FROM payments`)
	requireOutcomes(t, w,
		outcome{name: "Clean", args: audit, stdout: `(?m)^I1a +an order is paid once +ok$`, stderr: `^$`},
		outcome{name: "CleanAsJSON", args: []string{"audit", "-json"}, stdout: `^\{"ok":true,"checks":\[`, stderr: `^$`},
		outcome{name: "AnEventIsMissing", args: audit, status: found,
			ill:    asReplica(`CREATE TABLE put_aside AS SELECT * FROM outbox_events; DELETE FROM outbox_events WHERE type = 'payment.succeeded'`),
			well:   asReplica(`DELETE FROM outbox_events; INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM put_aside; DROP TABLE put_aside`),
			stdout: `(?m)^I6a +each version has one event +1$`, stderr: `^$`},
		outcome{name: "AnIntentIsNotAtStripe", args: audit, status: found,
			ill:    asReplica(`UPDATE payments SET intent_id = 'pi_made_up'`),
			well:   asReplica(`UPDATE payments SET intent_id = '` + intent + `'`),
			stdout: `(?m)^I8f  ten_\w+ pi_made_up ord_\w+ pay_\w+\n +succeeded here, and does not exist at Stripe \(-1000 usd\)$`,
			stderr: `^$`},
		outcome{name: "AnAnswerIsDamaged", args: audit, status: found,
			ill:    `CREATE TABLE put_aside AS SELECT answer_body FROM idempotency_keys WHERE key = 'paid'; ` + asReplica(`UPDATE idempotency_keys SET answer_body = 'no JSON' WHERE key = 'paid'`),
			well:   asReplica(`UPDATE idempotency_keys SET answer_body = (SELECT answer_body FROM put_aside) WHERE key = 'paid'; DROP TABLE put_aside`),
			stdout: `(?m)^I2  ten_\w+ pay_\w+\n +the response cannot be read, payment is succeeded$`, stderr: `^$`},
		outcome{name: "StripeIsAway", args: audit, settings: []string{"STRIPE_API_BASE=http://127.0.0.1:9"}, status: couldNotRun,
			stdout: `(?m)^I8e  not completed\n +.*connection refused`, stderr: `connection refused`},
		outcome{name: "TheDatabaseIsAway", args: audit, settings: []string{"DATABASE_URL=postgres://payonce@127.0.0.1:9/payonce"},
			status: couldNotRun, stdout: `^$`, stderr: `connection refused`},
		outcome{name: "TheDataKeyIsAnother", args: audit, settings: []string{"DATA_KEY=" + world.OtherDataKey}, status: couldNotRun,
			stdout: `(?m)^I1a +an order is paid once +ok$`, stderr: `DATA_KEY has no key`},
		outcome{name: "WithoutSense", args: []string{"audit", "-since", "yesterday"}, status: couldNotRun, stdout: `^$`, stderr: `usage`},
		outcome{name: "CleanAgain", args: audit, stdout: `(?m)^I6a +each version has one event +ok$`, stderr: `^$`},
	)
}
