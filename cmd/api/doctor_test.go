package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/deploy"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/terminal"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

// clinic is a healthy system: PostgreSQL that writes as in production, the simulator with an endpoint, a broker that
// runs. Each test makes one thing ill.
type clinic struct {
	t      *testing.T
	server *devpg.Server
	db     *pgx.Conn
	sim    *stripesim.Sim
	stripe string
	env    map[string]string
}

func newClinic(t *testing.T, restricted ...string) *clinic {
	t.Helper()
	c := &clinic{t: t, server: dbtest.Server(t)}
	dbtest.Migrated(t, c.server.URL)
	var err error
	c.db, err = pgx.Connect(t.Context(), c.server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.db.Close(context.WithoutCancel(t.Context())) })
	c.sim, err = stripesim.New(stripesim.Options{Restricted: map[string][]string{restrictedKey: restricted}})
	require.NoError(t, err)
	api := httptest.NewServer(c.sim.Handler())
	t.Cleanup(func() {
		_ = c.sim.Close()
		api.Close()
	})
	c.stripe = api.URL
	listen, err := port.Loopback(t.Context())
	require.NoError(t, err)
	brokerURL := fmt.Sprintf("embedded:%s?listen=%s", filepath.Join(t.TempDir(), "broker"), listen)
	c.env = map[string]string{
		"DATABASE_URL": devpg.As(c.server.URL, "payonce_service"), "STRIPE_SECRET_KEY": stripesim.DefaultKey, "STRIPE_API_BASE": api.URL,
		"STRIPE_WEBHOOK_SECRET": "whsec_of_the_clinic", "BROKER_URL": brokerURL, "DATA_KEY": world.DataKey,
	}
	running, err := broker.Open(t.Context(), brokerURL, broker.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = running.Close() })
	c.makeStream(brokerURL, jetstream.FileStorage, 8*24*time.Hour)
	return c
}

const restrictedKey = "rk_test_payonce_night"

// makeStream makes the stream as the service does, or with other settings.
func (c *clinic) makeStream(brokerURL string, storage jetstream.StorageType, age time.Duration) {
	c.t.Helper()
	conn, err := nats.Connect("nats://" + brokerURL[strings.Index(brokerURL, "listen=")+len("listen="):])
	require.NoError(c.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(c.t, err)
	require.Eventually(c.t, func() bool { // the server may still be deleting the files of the one before
		_ = js.DeleteStream(c.t.Context(), "PAYONCE")
		_, err = js.CreateStream(c.t.Context(), jetstream.StreamConfig{
			Name: "PAYONCE", Subjects: []string{"payonce.>"}, Storage: storage, MaxAge: age,
			Duplicates: 2 * time.Minute, DenyDelete: true,
		})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
}

func (c *clinic) exec(sql string) {
	c.t.Helper()
	_, err := c.db.Exec(c.t.Context(), sql)
	require.NoError(c.t, err)
}

// system sets a setting of the whole server.
func (c *clinic) system(name, value string) {
	c.t.Helper()
	c.exec("ALTER SYSTEM SET " + name + " = " + value)
	c.exec("SELECT pg_reload_conf()")
	require.Eventually(c.t, func() bool { // of sessions that are open the server tells later than it begins others so
		var is string
		return c.db.QueryRow(c.t.Context(), "SHOW "+name).Scan(&is) == nil && is == value
	}, time.Minute, time.Millisecond)
}

// atStripe sends a request as a person at the dashboard would.
func (c *clinic) atStripe(method, path, form string) map[string]any {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.stripe+path, strings.NewReader(form))
	require.NoError(c.t, err)
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, 200, res.StatusCode, "%s", body)
	var object map[string]any
	require.NoError(c.t, json.Unmarshal(body, &object))
	return object
}

// endpoint makes the webhook endpoint of a service and returns its path at Stripe.
func (c *clinic) endpoint(at string, types ...string) string {
	form := url.Values{"url": {"https://pay.example.com" + at}, "enabled_events[]": types}
	return "/v1/webhook_endpoints/" + c.atStripe("POST", "/v1/webhook_endpoints", form.Encode())["id"].(string)
}

// between puts a proxy in front of the simulator.
func (c *clinic) between(change func(http.ResponseWriter, *http.Request, http.Handler)) {
	target, err := url.Parse(c.stripe)
	require.NoError(c.t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(w, r, next) }))
	c.t.Cleanup(server.Close)
	c.env["STRIPE_API_BASE"] = server.URL
}

func (c *clinic) examine(skew time.Duration) map[string]doctorCheck {
	c.t.Helper()
	report := examine(c.t.Context(), patient{getenv: func(name string) string { return c.env[name] }, skew: skew})
	byID := map[string]doctorCheck{}
	ok := true
	for _, check := range report.Checks {
		require.NotContains(c.t, byID, check.ID)
		byID[check.ID] = check
		ok = ok && check.Status != bad
		require.NotEmpty(c.t, check.Detail, check.ID)
		for _, secret := range []string{"STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET"} {
			if c.env[secret] != "" && len(c.env[secret]) > len("sk_live_") {
				require.NotContains(c.t, check.Detail, c.env[secret], check.ID)
			}
		}
	}
	require.Equal(c.t, ok, report.OK)
	return byID
}

// TestDoctor makes one thing ill after another, and well again.
func TestDoctor(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "payment_intent_read", "dispute_read")
	const path = "/v1/webhooks/stripe"
	endpoint := c.endpoint(path, stripe.WebhookTypes...)
	exactly := url.Values{"enabled_events[]": stripe.WebhookTypes}.Encode()
	const command = "run `api setup stripe -url https://pay.example.com/v1/webhooks/stripe`, which "

	t.Run("FindsNothingWrongWithAHealthySystem", func(t *testing.T) {
		c.t = t
		found := c.examine(0)
		for id, check := range found {
			require.Equal(t, healthy, check.Status, "%s: %s", id, check.Detail)
		}
		require.Regexp(t, `^NATS `, strings.Split(found["broker.reachable"].Detail, ", ")[1])
		require.Len(t, found, 29)
	})

	t.Run("TakesNoEventOfATypeThatIsNotSentForTheLast", func(t *testing.T) {
		c.t = t
		c.atStripe("POST", "/v1/payment_intents", "amount=1000&currency=usd")
		require.Equal(t, "none yet", c.examine(0)["stripe.last_event"].Detail, "payment_intent.created is no such type")
	})

	cases := []struct {
		name   string
		ill    func(c *clinic) (well func())
		skew   time.Duration
		id     string
		status verdict
		says   string
	}{
		{name: "DefaultTransactionReadOnly", ill: func(c *clinic) func() {
			c.system("default_transaction_read_only", "on")
			return func() { c.exec("SET transaction_read_only = off"); c.system("default_transaction_read_only", "off") }
		}, id: "database.primary", status: bad, says: "the server is read-only: default_transaction_read_only"},
		{name: "FsyncOff", ill: func(c *clinic) func() {
			c.system("fsync", "off")
			return func() { c.system("fsync", "on") }
		}, id: "database.fsync", status: bad, says: "fsync is off"},
		{name: "FullPageWritesOff", ill: func(c *clinic) func() {
			c.system("full_page_writes", "off")
			return func() { c.system("full_page_writes", "on") }
		}, id: "database.fsync", status: warning, says: "full_page_writes is off"},
		{name: "SynchronousCommitOff", ill: func(c *clinic) func() {
			c.system("synchronous_commit", "off")
			return func() { c.system("synchronous_commit", "on") }
		}, id: "database.synchronous_commit", status: bad, says: "synchronous_commit is off"},
		{name: "SynchronousCommitLocal", ill: func(c *clinic) func() {
			c.system("synchronous_commit", "local")
			return func() { c.system("synchronous_commit", "on") }
		}, id: "database.synchronous_commit", status: warning, says: "synchronous_commit is local"},
		{name: "SynchronousCommitInMemory", ill: func(c *clinic) func() {
			c.system("synchronous_commit", "remote_write")
			return func() { c.system("synchronous_commit", "on") }
		}, id: "database.synchronous_commit", status: warning, says: "synchronous_commit is remote_write"},
		{name: "DatabaseAway", ill: func(c *clinic) func() {
			return c.set("DATABASE_URL", "postgres://payonce:hidden@127.0.0.1:9/payonce")
		}, id: "database.reachable", status: bad, says: "connection refused"},
		{name: "DatabaseURLWrong", ill: func(c *clinic) func() { return c.set("DATABASE_URL", "mysql:/nothing") },
			id: "database.reachable", status: bad, says: "not a PostgreSQL connection string"},
		{name: "RoleWithoutRights", ill: func(c *clinic) func() {
			c.exec("CREATE ROLE nobody LOGIN PASSWORD 'nobody'")
			c.exec("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO nobody; REVOKE INSERT ON orders FROM nobody")
			u, err := url.Parse(c.server.URL)
			require.NoError(c.t, err)
			u.User = url.UserPassword("nobody", "nobody")
			return c.set("DATABASE_URL", u.String())
		}, id: "database.rights", status: bad, says: `nobody lacks 8 rights: INSERT on orders, UPDATE on idempotency_keys, `},
		{name: "RoleThatOwnsTheTables", ill: func(c *clinic) func() { return c.set("DATABASE_URL", c.server.URL) },
			id: "database.rights", status: warning, says: "owns the tables"},
		{name: "TablesOfAnotherOwner", ill: func(c *clinic) func() {
			c.exec("ALTER TABLE stripe_call_rows OWNER TO CURRENT_USER")
			return func() { c.exec(deploy.Roles) }
		}, id: "database.rights", status: warning, says: "belong to postgres and not to payonce_owner"},
		{name: "FunctionOfAnotherOwner", ill: func(c *clinic) func() {
			c.exec("ALTER FUNCTION erase_customer OWNER TO CURRENT_USER")
			return func() { c.exec(deploy.Roles) }
		}, id: "database.rights", status: warning, says: "belong to postgres and not to payonce_owner"},
		{name: "ASecondRoleOfTheService", ill: func(c *clinic) func() { // as docs/operations.md says, to change the password
			u, err := url.Parse(c.server.URL)
			require.NoError(c.t, err)
			password, _ := u.User.Password()
			c.exec("CREATE ROLE payonce_service_b LOGIN PASSWORD '" + password + "' IN ROLE payonce_service")
			return c.set("DATABASE_URL", devpg.As(c.server.URL, "payonce_service_b"))
		}, id: "database.rights", status: healthy, says: "the role payonce_service_b may read and write what the service does"},
		{name: "ASecondRoleIsScoped", ill: func(c *clinic) func() {
			return c.set("DATABASE_URL", devpg.As(c.server.URL, "payonce_service_b"))
		}, id: "database.row_security", status: healthy, says: "^on: "},
		{name: "RoleWithTemporaryTables", ill: func(c *clinic) func() {
			c.exec("DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO PUBLIC', current_database()); END $$")
			return func() {
				c.exec("DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$")
			}
		}, id: "database.rights", status: warning, says: "payonce_service may make temporary tables.* run deploy/roles.sql in this database, or REVOKE"},
		{name: "OwnerIsNotScoped", ill: func(c *clinic) func() { return c.set("DATABASE_URL", c.server.URL) },
			id: "database.row_security", status: warning, says: "is off, because the role"},
		{name: "RowSecurityOff", ill: func(c *clinic) func() {
			c.exec("ALTER ROLE payonce_service BYPASSRLS")
			return func() { c.exec("ALTER ROLE payonce_service NOBYPASSRLS") }
		}, id: "database.row_security", status: warning, says: "row-level security is off, because the role payonce_service has BYPASSRLS"},
		{name: "SchemaEmpty", ill: func(c *clinic) func() {
			c.exec("CREATE DATABASE empty")
			u, err := url.Parse(c.server.URL)
			require.NoError(c.t, err)
			u.Path = "/empty"
			return c.set("DATABASE_URL", u.String())
		}, id: "database.schema", status: bad, says: "the database is empty; run `api migrate`"},
		{name: "SchemaOld", ill: func(c *clinic) func() {
			c.exec("CREATE TABLE put_aside AS SELECT * FROM goose_db_version; " +
				"DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)")
			return func() {
				c.exec("TRUNCATE goose_db_version; " +
					"INSERT INTO goose_db_version OVERRIDING SYSTEM VALUE SELECT * FROM put_aside; DROP TABLE put_aside")
			}
		}, id: "database.schema", status: bad, says: "is missing; run `api migrate`"},
		{name: "TimeoutOff", ill: func(c *clinic) func() {
			return c.set("DATABASE_URL", c.server.URL+"&lock_timeout=0")
		}, id: "database.pooler", status: bad, says: "sessions have no lock_timeout"},

		{name: "ResponsesOutliveTheRetention", ill: func(c *clinic) func() {
			c.exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, resource_id, request_id,
					fingerprint_version, claim_token, leased_until, next_attempt_at, recovery_point, finished_at, answer_version,
					answer_status, answer_headers, answer_body)
				VALUES ('ten_1', 'forgotten', 'create_payment', sha256(''), 'pay_1', 'r', 1, gen_random_uuid(), '-infinity', 'infinity',
					'finished', now() - interval '73 hours 5 minutes', 1, 201, '', '')`)
			return together(c.set("IDEMPOTENCY_REAPER", "false"), func() {
				c.exec("UPDATE idempotency_keys SET answer_dropped_at = now(), answer_version = NULL, answer_status = NULL, " +
					"answer_headers = NULL, answer_body = NULL WHERE key = 'forgotten'")
			})
		}, id: "database.retention", status: warning,
			says: "finished 73h5m0s ago, and IDEMPOTENCY_RETENTION is 72h0m0s; IDEMPOTENCY_REAPER is false, so a job"},

		{name: "ClockAheadOfTheDatabase", skew: 10 * time.Second, id: "clock.database", status: warning,
			says: "our clock is 10s ahead of the database's"},
		{name: "ClockBehindTheDatabase", skew: -10 * time.Minute, id: "clock.database", status: bad,
			says: "our clock is 10m0s behind the database's"},
		{name: "ClockAheadOfStripe", ill: func(c *clinic) func() {
			c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				next.ServeHTTP(dated{w, time.Now().Add(-time.Hour)}, r)
			})
			return c.backToStripe
		}, id: "clock.stripe", status: bad, says: "(59m|1h).* ahead of Stripe's"},
		{name: "StripeWithoutDate", ill: func(c *clinic) func() {
			c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				next.ServeHTTP(dated{w, time.Time{}}, r)
			})
			return c.backToStripe
		}, id: "clock.stripe", status: warning, says: "not checked"},

		{name: "StripeKeyWrong", ill: func(c *clinic) func() { return c.set("STRIPE_SECRET_KEY", "sk_live_unknown_here") },
			id: "stripe.reachable", status: bad, says: "^http://127.0.0.1:\\d+ of STRIPE_API_BASE, which is not Stripe, refuses the key: " +
				".*Invalid API Key.*; set STRIPE_SECRET_KEY to a key that it accepts"},
		{name: "StripeKeyLiveAtTheSimulator", ill: func(c *clinic) func() {
			return c.set("STRIPE_SECRET_KEY", "sk_live_unknown_here")
		}, id: "stripe.key", status: bad, says: "a live key is sent unencrypted to http://127.0.0.1"},
		{name: "StripeKeyEchoed", ill: func(c *clinic) func() {
			c.between(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.WriteHeader(401)
				fmt.Fprintf(w, `{"error":{"type":"invalid_request_error","message":"Invalid API Key: %s\u001b[2K"}}`,
					stripesim.DefaultKey)
			})
			return c.backToStripe
		}, id: "stripe.reachable", status: bad, says: "Invalid API Key: …"},
		{name: "StripeKeyMissing", ill: func(c *clinic) func() { return c.set("STRIPE_SECRET_KEY", "") },
			id: "settings.STRIPE_SECRET_KEY", status: bad, says: "is required"},
		{name: "StripeAway", ill: func(c *clinic) func() { return c.set("STRIPE_API_BASE", "http://127.0.0.1:9") },
			id: "stripe.reachable", status: bad, says: "Stripe does not respond: .*connection refused"},
		{name: "StripeErrs", ill: func(c *clinic) func() { return c.always(500, `{"error":{"type":"api_error"}}`) },
			id: "stripe.reachable", status: bad, says: `Stripe has an error \(500\)`},
		{name: "StripeLimits", ill: func(c *clinic) func() { return c.always(429, `{"error":{"type":"invalid_request_error"}}`) },
			id: "stripe.reachable", status: warning, says: "rate limit is exhausted"},
		{name: "PermissionMissing", ill: func(c *clinic) func() { return c.set("STRIPE_SECRET_KEY", restrictedKey) },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_charge_read, rak_payment_intent_write, rak_charge_write, and"},
		{name: "PermissionToMakeIntentsMissing", ill: func(c *clinic) func() { return c.forbids("/v1/payment_intents") },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_payment_intent_write, and"},
		{name: "PermissionToConfirmMissing", ill: func(c *clinic) func() { return c.forbids("/confirm") },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_payment_intent_write, and"},
		{name: "PermissionToCaptureMissing", ill: func(c *clinic) func() { return c.forbids("/capture") },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_payment_intent_write, and"},
		{name: "PermissionToCancelMissing", ill: func(c *clinic) func() { return c.forbids("/cancel") },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_payment_intent_write, and"},
		{name: "PermissionToRefundMissing", ill: func(c *clinic) func() { return c.forbids("/v1/refunds") },
			id: "stripe.permissions", status: bad, says: "^the key lacks rak_charge_write, and"},
		{name: "PermissionToReadTheBalanceMissing", ill: func(c *clinic) func() { return c.forbids("/v1/balance_transactions") },
			id: "stripe.permissions", status: warning, says: "^the key lacks rak_balance_transaction_source_read: a refund"},
		{name: "WritesThatSucceedAreNotStripes", ill: func(c *clinic) func() {
			c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == http.MethodGet {
					next.ServeHTTP(w, r)
					return
				}
				_, _ = fmt.Fprint(w, `{"id":"pi_1","object":"payment_intent"}`)
			})
			return c.backToStripe
		}, id: "stripe.permissions", status: warning, says: "did not say whether the key has rak_payment_intent_write"},
		{name: "PermissionForTheAccountMissing", ill: func(c *clinic) func() {
			return c.set("STRIPE_SECRET_KEY", restrictedKey)
		}, id: "stripe.account", status: warning, says: "rak_accounts_kyc_basic_read"},
		{name: "PermissionForEndpointsMissing", ill: func(c *clinic) func() {
			return c.set("STRIPE_SECRET_KEY", restrictedKey)
		}, id: "stripe.webhook_endpoint", status: warning, says: "rak_webhook_read"},
		{name: "PermissionForEventsMissing", ill: func(c *clinic) func() { return c.set("STRIPE_SECRET_KEY", restrictedKey) },
			id: "stripe.last_event", status: warning, says: "rak_event_read"},
		{name: "AccountUnknownToASimulator", ill: func(c *clinic) func() { return c.without("/v1/account") },
			id: "stripe.account", status: warning, says: "not checked: .*404"},
		{name: "EndpointsUnknownToASimulator", ill: func(c *clinic) func() { return c.without("/v1/webhook_endpoints") },
			id: "stripe.webhook_endpoint", status: warning, says: "not checked: .*404"},
		{name: "EventsUnknownToASimulator", ill: func(c *clinic) func() { return c.without("/v1/events") },
			id: "stripe.last_event", status: warning, says: "not checked: .*404"},
		{name: "DisputesUnknownToASimulator", ill: func(c *clinic) func() { return c.without("/v1/charges") },
			id: "stripe.permissions", status: warning, says: "not checked: .*rak_charge_read"},
		{name: "AccountThatMayNotCharge", ill: func(c *clinic) func() {
			return c.answers("/v1/account", `{"id":"acct_1","charges_enabled":false,"payouts_enabled":true}`)
		}, id: "stripe.account", status: warning, says: "acct_1 may not take payments once it is live"},
		{name: "AccountThatIsNotPaidOut", ill: func(c *clinic) func() {
			return c.answers("/v1/account", `{"id":"acct_1","charges_enabled":true,"payouts_enabled":false}`)
		}, id: "stripe.account", status: warning, says: "its payouts are stopped"},
		{name: "EventNotDelivered", ill: func(c *clinic) func() {
			return c.answers("/v1/events", fmt.Sprintf(
				`{"object":"list","data":[{"id":"evt_1","type":"charge.refunded","created":%d,"pending_webhooks":1}]}`,
				time.Now().Add(-time.Hour).Unix()))
		}, id: "stripe.last_event", status: warning, says: `evt_1 \(charge.refunded\), of 1h0m\ds ago, is not acknowledged`},
		{name: "EventOfAClockAhead", ill: func(c *clinic) func() {
			return c.answers("/v1/events", fmt.Sprintf(
				`{"object":"list","data":[{"id":"evt_1","type":"charge.refunded","created":%d,"pending_webhooks":1}]}`,
				time.Now().Add(time.Hour).Unix()))
		}, id: "stripe.last_event", status: healthy, says: `evt_1 \(charge.refunded\), dated (59m5\d|1h0m0)s ahead of our clock, is `},

		{name: "EndpointOfAnotherURL", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, "url="+url.QueryEscape("https://shop.example.com/hooks"))
			return func() { c.atStripe("POST", endpoint, "url="+url.QueryEscape("https://pay.example.com"+path)) }
		}, id: "stripe.webhook_endpoint", status: warning, says: "no endpoint whose URL ends in /v1/webhooks/stripe: .* run `api setup stripe -url " +
			"https://HOST/v1/webhooks/stripe`"},
		{name: "EndpointDisabled", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, "disabled=true")
			return func() { c.atStripe("POST", endpoint, "disabled=false") }
		}, id: "stripe.webhook_endpoint", status: bad, says: "is disabled, by hand or by Stripe.*" + command + "enables it"},
		{name: "EndpointTwice", ill: func(c *clinic) func() {
			second := c.endpoint(path, stripe.WebhookTypes...)
			return func() { c.atStripe("DELETE", second, "") }
		}, id: "stripe.webhook_endpoint", status: warning, says: `2 endpoints end in /v1/webhooks/stripe: we_\w+ \(https://pay.example.com/v1/webhooks/stripe\), we_.*` +
			"another installation on this account; delete one that nothing uses in Stripe's dashboard, Developers, Webhooks$"},
		{name: "EndpointWithoutAType", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, "enabled_events[]=payment_intent.succeeded")
			return func() { c.atStripe("POST", endpoint, exactly) }
		}, id: "stripe.webhook_endpoint", status: warning, says: "is not sent payment_intent.payment_failed, .*" + command + "corrects"},
		{name: "EndpointWithTypesThatAreNotUsed", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, exactly+"&enabled_events[]=payout.paid")
			return func() { c.atStripe("POST", endpoint, exactly) }
		}, id: "stripe.webhook_endpoint", status: warning, says: "is sent payout.paid, not used here.*" + command + "corrects"},
		{name: "EndpointOfEveryType", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, "enabled_events[]=*")
			return func() { c.atStripe("POST", endpoint, exactly) }
		}, id: "stripe.webhook_endpoint", status: warning, says: "is sent every type, used or not.*" + command + "corrects"},
		{name: "EndpointWhoseURLIsNoArgument", ill: func(c *clinic) func() {
			c.atStripe("POST", endpoint, "enabled_events[]=*&url="+url.QueryEscape("https://pay.example.com/$(reboot)"+path))
			return func() { c.atStripe("POST", endpoint, exactly+"&url="+url.QueryEscape("https://pay.example.com"+path)) }
		}, id: "stripe.webhook_endpoint", status: warning, says: "correct it in Stripe's dashboard"},

		{name: "BrokerAway", ill: func(c *clinic) func() { return c.set("BROKER_URL", "nats://user:hidden@127.0.0.1:9") },
			id: "broker.reachable", status: bad, says: "not connected to NATS"},
		{name: "BrokerUnknown", ill: func(c *clinic) func() { return c.set("BROKER_URL", "redis://127.0.0.1") },
			id: "broker.reachable", status: bad, says: `unsupported scheme "redis:"`},
		{name: "StreamInMemory", ill: func(c *clinic) func() {
			c.makeStream(c.env["BROKER_URL"], jetstream.MemoryStorage, 8*24*time.Hour)
			return func() { c.makeStream(c.env["BROKER_URL"], jetstream.FileStorage, 8*24*time.Hour) }
		}, id: "broker.stream", status: bad, says: "storage is Memory, not File"},
		{name: "StreamThatForgets", ill: func(c *clinic) func() {
			c.makeStream(c.env["BROKER_URL"], jetstream.FileStorage, time.Hour)
			return func() { c.makeStream(c.env["BROKER_URL"], jetstream.FileStorage, 8*24*time.Hour) }
		}, id: "broker.stream", status: bad, says: "max_age is 1h0m0s, not 192h0m0s"},

		{name: "WebhookSecretMissing", ill: func(c *clinic) func() { return c.set("STRIPE_WEBHOOK_SECRET", "") },
			id: "settings.webhook_secret", status: warning, says: "STRIPE_WEBHOOK_SECRET is unset.*`api setup stripe -url "},
		{name: "WebhookSecretWrong", ill: func(c *clinic) func() { return c.set("STRIPE_WEBHOOK_SECRET", "hush") },
			id: "settings.STRIPE_WEBHOOK_SECRET", status: bad, says: "must begin with whsec_; the service does not start"},
		{name: "DataKeyUnset", ill: func(c *clinic) func() { return c.set("DATA_KEY", "") },
			id: "database.encryption", status: warning, says: "DATA_KEY is unset: a copy of the database shows"},
		{name: "DataKeyPublic", ill: func(c *clinic) func() {
			c.env["STRIPE_API_BASE"] = ""
			return together(c.backToStripe, c.set("STRIPE_SECRET_KEY", ""), c.set("DATA_KEY", publishedDataKey))
		}, id: "database.encryption", status: bad, says: "DATA_KEY is the public one of .env.example"},
		{name: "DataKeyPublicInLiveMode", ill: func(c *clinic) func() {
			return together(c.set("STRIPE_SECRET_KEY", "sk_live_unknown_here"), c.set("DATA_KEY", publishedDataKey+","+world.DataKey))
		}, id: "database.encryption", status: bad, says: "DATA_KEY is the public one of .env.example"},
		{name: "DataKeyPublicWithASimulator", ill: func(c *clinic) func() { return c.set("DATA_KEY", publishedDataKey) },
			id: "database.encryption", status: warning, says: "DATA_KEY is the public one of .env.example"},
		{name: "DataKeyPublicAndReplaced", ill: func(c *clinic) func() {
			return c.set("DATA_KEY", world.DataKey+","+publishedDataKey)
		}, id: "database.encryption", status: healthy, says: "are encrypted with the first key"},
		{name: "DataKeyNotUsedYet", ill: func(c *clinic) func() { return c.set("DATA_KEY", "none,"+world.OtherDataKey) },
			id: "database.encryption", status: warning, says: "DATA_KEY begins with none: what is encrypted is read"},
		{name: "DataKeyWrong", ill: func(c *clinic) func() { return c.set("DATA_KEY", "hidden") },
			id: "settings.DATA_KEY", status: bad, says: "must be keys of 32 bytes"},
		{name: "DataKeyWrongIsNotUnset", ill: func(c *clinic) func() { return c.set("DATA_KEY", "hidden") },
			id: "database.encryption", status: warning, says: "not checked: DATA_KEY is wrong"},
		{name: "DataKeyNotTheFirst", ill: func(c *clinic) func() {
			c.exec(`INSERT INTO tenants (id, name, fingerprint_secret)
				VALUES ('ten_plain', 'plain', repeat('s', 32)::bytea)`)
			return func() { c.exec("DELETE FROM tenants") }
		}, id: "database.encryption", status: healthy, says: "secrets of tenants 0 of 1 are encrypted with the first key, "},
		{name: "DataKeyMissing", ill: func(c *clinic) func() {
			c.exec(`INSERT INTO tenants (id, name, fingerprint_secret)
				VALUES ('ten_sealed', 'sealed', '\x00504f0112345678' || repeat('s', 72)::bytea)`)
			return func() { c.exec("DELETE FROM tenants") }
		}, id: "database.encryption", status: bad,
			says: "lacks the keys with the ids 12345678, which secrets of tenants are encrypted with"},
		{name: "AdminOpen", ill: func(c *clinic) func() { return c.set("ADMIN_ADDR", ":8081") },
			id: "settings.admin", status: warning, says: "ADMIN_TOKEN is unset"},
	}
	for _, row := range cases {
		t.Run(row.name, func(t *testing.T) {
			c.t = t
			if row.ill != nil {
				defer row.ill(c)()
			}
			found := c.examine(row.skew)
			require.Equal(t, row.status, found[row.id].Status, "%+v", found)
			require.Regexp(t, row.says, found[row.id].Detail)
			require.NotContains(t, fmt.Sprint(found), "hidden")
			require.GreaterOrEqual(t, len(found), 20, "one that fails does not stop the others")
			if !strings.HasPrefix(row.id, "database.") {
				require.Equal(t, healthy, found["database.reachable"].Status)
			}
			if !strings.HasPrefix(row.id, "broker.") {
				require.Equal(t, healthy, found["broker.stream"].Status)
			}
		})
	}
	t.Run("NamesEverySettingThatIsWrong", func(t *testing.T) {
		c.t = t
		defer c.set("STRIPE_TIMEOUT", "soon")()
		defer c.set("HTTP_ADDR", "nowhere")()
		defer c.set("LOG_LEVEL", "loud")()
		found := c.examine(0)
		for _, name := range []string{"STRIPE_TIMEOUT", "HTTP_ADDR", "LOG_LEVEL"} {
			require.Equal(t, bad, found["settings."+name].Status, name)
			require.Contains(t, found["settings."+name].Detail, name+" must be")
		}
	})

	t.Run("SaysOfAWrongWebhookSecretOnlyThatItIsWrong", func(t *testing.T) {
		c.t = t
		defer c.set("STRIPE_WEBHOOK_SECRET", "whsec_right,wrong")()
		found := c.examine(0)
		require.Equal(t, bad, found["settings.STRIPE_WEBHOOK_SECRET"].Status)
		require.NotContains(t, found, "settings.webhook_secret")
	})

	t.Run("Command", c.command) // the last, because it makes a tenant
}

func (c *clinic) set(name, value string) (well func()) {
	before := c.env[name]
	c.env[name] = value
	return func() { c.env[name] = before }
}

// together makes several things well.
func together(wells ...func()) func() {
	return func() {
		for _, well := range wells {
			well()
		}
	}
}

func (c *clinic) backToStripe() { c.env["STRIPE_API_BASE"] = c.stripe }

// always answers every request to Stripe so.
func (c *clinic) always(status int, body string) func() {
	c.between(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	return c.backToStripe
}

// answers replaces Stripe's answer to one path.
func (c *clinic) answers(path, body string) func() {
	c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path != path {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	})
	return c.backToStripe
}

// forbids has Stripe refuse what is written to paths with this end, in its words.
func (c *clinic) forbids(end string) func() {
	needs, reads := "rak_payment_intent_write", false
	switch end {
	case "/v1/refunds":
		needs = "rak_charge_write"
	case "/v1/balance_transactions":
		needs, reads = "rak_balance_transaction_source_read", true
	}
	c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if (r.Method == http.MethodGet) != reads || !strings.HasSuffix(r.URL.Path, end) {
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"error":{"type":"invalid_request_error","message":"The provided key 'rk_test_*****ight' does not have `+
			`the required permissions for this endpoint on account 'acct_1'. Having the '%s' permission would allow this request `+
			`to continue."}}`, needs)
	})
	return c.backToStripe
}

// without is a simulator that has no such path.
func (c *clinic) without(path string) func() {
	c.between(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == path {
			r.URL.Path = "/v1/nothing"
		}
		next.ServeHTTP(w, r)
	})
	return c.backToStripe
}

// dated is a response with another Date.
type dated struct {
	http.ResponseWriter
	date time.Time
}

func (d dated) WriteHeader(status int) {
	if d.date.IsZero() {
		d.Header()["Date"] = nil
	} else {
		d.Header().Set("Date", d.date.UTC().Format(http.TimeFormat))
	}
	d.ResponseWriter.WriteHeader(status)
}

// command: what the program prints of the clinic when all is well again, and what its exit status says.
func (c *clinic) command(t *testing.T) {
	w := world.On(t, c.server.URL)
	doctor := func(args []string, settings ...string) (stdout, stderr string, status int) {
		t.Helper()
		all := []string{"ADMIN_ADDR="}
		for name, value := range c.env {
			if value != "" { // else the setting is as it was before a sub-test changed it
				all = append(all, name+"="+value)
			}
		}
		return typed(w, append([]string{"doctor"}, args...), append(all, settings...)...)
	}

	out, errs, status := doctor(nil)
	require.Zero(t, status, out+errs)
	require.Empty(t, errs)
	want, err := os.ReadFile("testdata/doctor.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), settled(out))

	out, _, status = doctor([]string{"-json"})
	require.Zero(t, status, out)
	var report struct {
		OK     bool
		Checks []struct{ ID, Status, Detail string }
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&report))
	require.True(t, report.OK)
	require.Len(t, report.Checks, 29)
	require.Equal(t, "settings", report.Checks[0].ID)
	require.Equal(t, "ok", report.Checks[0].Status)

	out, _, status = doctor(nil, "STRIPE_WEBHOOK_SECRET=")
	require.Zero(t, status, "a warning is not bad")
	require.Regexp(t, `(?m)^warn +settings.webhook_secret +STRIPE_WEBHOOK_SECRET is unset`, out)

	out, errs, status = doctor([]string{"-json"}, "STRIPE_WEBHOOK_SECRET=hush")
	require.Equal(t, 1, status, out)
	require.Empty(t, errs)
	require.Contains(t, out, `{"ok":false,"checks":[`)

	out, errs, status = doctor(nil, "DATABASE_URL=")
	require.Equal(t, 2, status)
	require.Empty(t, out, "nothing that looks like a result")
	require.Contains(t, errs, "DATABASE_URL is required")
	_, errs, status = doctor([]string{"please"})
	require.Equal(t, 2, status)
	require.Contains(t, errs, "usage: api doctor [-json]\n")
}

// settled replaces what differs from run to run.
func settled(out string) string {
	for _, r := range []struct{ pattern, by string }{
		{`/\S+/broker`, "DIR"},
		{`PostgreSQL \d+[^\n]*`, "PostgreSQL VERSION"},
		{`NATS [\d.]+`, "NATS VERSION"},
		{`agree within \S+`, "agree within TIME"},
		{`responded in \S+`, "responded in TIME"},
		{`(acct|we)_\w+`, "${1}_ID"},
		{`up to \d+`, "up to NUMBER"},
	} {
		out = regexp.MustCompile(r.pattern).ReplaceAllString(out, r.by)
	}
	return out
}

// TestDoctorJudgesFacts: what no server of a test can be.
func TestDoctorJudgesFacts(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]verdict{14: bad, 15: healthy, 18: healthy, 19: warning} {
		var d diagnosis
		server(&d, postgres.Facts{Version: version})
		require.Equal(t, want, d.checks[0].Status, version)
	}
}

// TestDoctorSaysOfAnEvent: Stripe's clock may be a little ahead of ours, and a simulator's weeks.
func TestDoctorSaysOfAnEvent(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]string{
		time.Hour: "of 1h0m0s ago", 0: "of 0s ago", -3 * time.Second: "of 0s ago", -383 * time.Hour: "dated 383h0m0s ahead of our clock",
	} {
		require.Equal(t, want, ofAge(age))
	}
}

// TestDoctorLooksForTLS: a connection to another machine that is not encrypted, or whose server is not verified, is a
// warning. Which those are is in TestUnverified.
func TestDoctorLooksForTLS(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]doctorCheck{
		"postgres://hidden:hidden@db.example.com/orders?sslmode=require": {Status: warning,
			Detail: "sslmode is below verify-full, so that the connection to db.example.com is not encrypted, or goes to any " +
				"server that answers for it; add sslmode=verify-full to DATABASE_URL, and sslrootcert=FILE if the server's CA is " +
				"not one of the system's"},
		"postgres://hidden:hidden@db.example.com/orders?sslmode=verify-full": {Status: healthy,
			Detail: "verify-full, or within this machine"},
		"mysql://db.example.com": {Status: warning, Detail: "not checked: DATABASE_URL is wrong"},
	} {
		var d diagnosis
		patient{getenv: func(string) string { return url }}.tls(&d)
		want.ID = "database.tls"
		require.Equal(t, []doctorCheck{want}, d.checks, url)
	}
}

// TestDoctorIsBounded: what accepts a connection and says nothing more is away, and the others are asked all the same.
func TestDoctorIsBounded(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // it never accepts
	silent := l.Addr().String()
	env := map[string]string{
		"DATABASE_URL": "postgres://payonce@" + silent + "/payonce", "STRIPE_SECRET_KEY": stripesim.DefaultKey,
		"STRIPE_API_BASE": "http://" + silent, "BROKER_URL": "nats://" + silent,
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*doctorWithin) // a guard, for one that waits for ever
	defer cancel()
	report := examine(ctx, patient{getenv: func(name string) string { return env[name] }})
	require.NoError(t, ctx.Err())
	require.False(t, report.OK)
	found := map[string]verdict{}
	for _, c := range report.Checks {
		found[c.ID] = c.Status
	}
	for _, id := range []string{"database.reachable", "stripe.reachable", "broker.reachable"} {
		require.Equal(t, bad, found[id], id)
	}
	require.Len(t, report.Checks, 29)
}

// TestDoctorEscapesWhatCameFromOutside: Stripe and proxies choose the text of errors.
func TestDoctorEscapesWhatCameFromOutside(t *testing.T) {
	t.Parallel()
	var d diagnosis
	d.say(bad, "stripe.reachable", "%w", errors.New(hostile+"\n"+hostile))
	report := doctorReport{Checks: d.checks}
	var table, asJSON bytes.Buffer
	require.NoError(t, report.print(&table))
	require.NoError(t, printJSON(&asJSON, report))
	for _, out := range []string{table.String(), asJSON.String()} {
		for _, r := range out {
			require.True(t, r == '\n' || !terminal.Unprintable(r), "%q in %q", r, out)
		}
	}
	require.Equal(t, 3, strings.Count(table.String(), "\n"), "a check is a line")
}
