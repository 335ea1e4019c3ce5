package main

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// settings of a service that could start, but for what a test changes.
func settings(change map[string]string) func(string) string {
	env := map[string]string{
		"DATABASE_URL":      "postgres://user:hunter2@127.0.0.1:1/none", // no server listens there
		"STRIPE_SECRET_KEY": "sk_test_hunter2",
		"HTTP_ADDR":         "127.0.0.1:0",
		"ADMIN_ADDR":        "127.0.0.1:0",
	}
	maps.Copy(env, change)
	return func(name string) string { return env[name] }
}

// TestBadSettingsStopTheStart: each with one line that names the variable and
// says what is wrong, and that gives no secret away, because such lines end up in
// tickets.
func TestBadSettingsStopTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, says string }{
		{"DATABASE_URL", "", "is required"},
		{"DATABASE_URL", "postgres://user:hunter2@host:notaport/db", "not a PostgreSQL connection string"},
		{"DATABASE_URL", "mysql://user:hunter2@host/db", "not a PostgreSQL connection string"},
		{"DATABASE_URL", "postgres://user:hunter2 with space@host/db", "not a PostgreSQL connection string"},
		// which the driver would quote
		{"DATABASE_URL", "host=127.0.0.1 password = hunter2 sslmode=perhaps", "not a PostgreSQL connection string"},
		{"DATABASE_URL", "postgres://user:hunter2@127.0.0.1:1/none", "cannot connect"},
		{"STRIPE_SECRET_KEY", "", "is required"},
		{"STRIPE_SECRET_KEY", "sk_test_", "must have visible ASCII characters after sk_test_"},
		{"STRIPE_SECRET_KEY", "sk_test_hunter2 hunter2", "must have visible ASCII characters after sk_test_"},
		{"STRIPE_WEBHOOK_SECRET", "whsec_good,whsec_", "must have visible ASCII characters after whsec_"},
		{"STRIPE_SECRET_KEY", "hunter2", "must begin with sk_test_, sk_live_, rk_test_ or rk_live_"},
		{"STRIPE_SECRET_KEY", "pk_test_hunter2", "must begin with sk_test_, sk_live_, rk_test_ or rk_live_"},
		{"STRIPE_API_BASE", "stripe.com", "must be an http or https URL"},
		{"STRIPE_API_BASE", "ftp://hunter2@stripe.com", "must be an http or https URL"},
		{"STRIPE_WEBHOOK_SECRET", " , ", "contains no secret"},
		{"STRIPE_WEBHOOK_SECRET", "hunter2", "must begin with whsec_"},
		{"STRIPE_WEBHOOK_SECRET", "whsec_good,hunter2", "must begin with whsec_"},
		{"STRIPE_TIMEOUT", "15", "must be a duration"},
		{"STRIPE_TIMEOUT", "0s", "must be a duration above zero"},
		{"STRIPE_TIMEOUT", "-1s", "must be a duration above zero"},
		{"STRIPE_RPS", "many", "must be a number"},
		{"STRIPE_RPS", "-1", "must be a number"},
		{"STRIPE_RPS", "NaN", "must be a number"},
		{"RATE_LIMIT_RPS", "1e9", "must be a number"},
		{"IDEMPOTENCY_LEASE", "45s", "must exceed 3 × STRIPE_TIMEOUT"}, // just as long is too short
		{"IDEMPOTENCY_RETENTION", "1m", "must exceed IDEMPOTENCY_LEASE"},
		{"IDEMPOTENCY_RETENTION", "never", "must be a duration"},
		{"ACTION_TIMEOUT", "soon", "must be a duration"},
		{"AUTO_MIGRATE", "perhaps", "must be true or false"},
		{"IDEMPOTENCY_REAPER", "no", "must be true or false"},
		{"LOG_LEVEL", "loud", "must be debug, info, warn or error"},
		{"LOG_LEVEL", "info+3", "must be debug, info, warn or error"},
		{"LOG_LEVEL", " info", "must be debug, info, warn or error"},
		{"STRIPE_TIMEOUT", " 15s", "must be a duration"},
		{"STRIPE_TIMEOUT", "1d", "must be a duration"},
		{"STRIPE_TIMEOUT", "9999999h", "must be a duration"},
		{"IDEMPOTENCY_LEASE", "0", "must be a duration above zero"},
		{"ACTION_TIMEOUT", "-1h", "must be a duration above zero"},
		{"STRIPE_RPS", "Inf", "must be a number"},
		{"STRIPE_RPS", " 25", "must be a number"},
		{"RATE_LIMIT_RPS", "100/s", "must be a number"},
		{"AUTO_MIGRATE", " true", "must be true or false"},
		{"NOTIFY_PRIVATE_ADDRESSES", "on", "must be true or false"}, // part: webhooks
		{"STRIPE_API_BASE", "http://:12111", "must be an http or https URL"},
		{"STRIPE_API_BASE", "https://proxy/?to=hunter2", "must be an http or https URL, without a query"},
		{"STRIPE_API_BASE", " https://proxy", "must be an http or https URL"},
		{"ADMIN_TOKEN", "hunter2-hunter2-hunter2-hunter2\n", "must not begin or end with white space"},
		{"LOG_FORMAT", "xml", "must be json or text"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318", "must be an http or https URL"},   // part: tracing
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector", "must be an http or https URL"}, // part: tracing
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf"},                    // part: tracing
		{"OTEL_SDK_DISABLED", "perhaps", "must be true or false"},                           // part: tracing
		{"HTTP_ADDR", "8080", "must be host:port"},
		{"HTTP_ADDR", "localhost:", "must be host:port"},
		{"ADMIN_ADDR", "localhost", "must be host:port"},
		{"ADMIN_TOKEN", "hunter2", "must have at least 24 characters"},
		{"DATA_KEY", "hunter2", "must be keys of 32 bytes in base64, separated by commas"},
		{"DATA_KEY", world.DataKey + ",aHVudGVyMg==", "number 2: it has 7 bytes"},
		{"CELL", "Eu1", "must be 1 to 16 characters of a-z, 0-9 and -"},
		{"DRAIN_DELAY", "5", "must be a duration"},
		{"DRAIN_DELAY", "-1s", "must be a duration"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.Equal(t, 1, run(ctx, nil, settings(map[string]string{c.name: c.value}), &stdout, &stderr))
			line := stderr.String()
			require.Equal(t, 1, strings.Count(line, "\n"), "one line: %s", line)
			require.Regexp(t, "^api: "+c.name+":? ", line)
			require.Contains(t, line, c.says)
			require.NotContains(t, line, "hunter2")
			require.Empty(t, stdout.String())
		})
	}
}

// TestLiveKeyIsNotSentUnencrypted: by no program that has it.
func TestLiveKeyIsNotSentUnencrypted(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"sk_live_hidden_000", "rk_live_hidden_000"} {
		for _, args := range [][]string{{"serve"}, {"setup", "stripe", "-url", "https://pay.example.com/v1/webhooks/stripe"}, {"audit"}} {
			var out bytes.Buffer
			require.NotZero(t, run(t.Context(), args, settings(map[string]string{
				"STRIPE_SECRET_KEY": key, "STRIPE_API_BASE": "HTTP://127.0.0.1:1"}), &out, &out), args)
			require.Contains(t, out.String(), "STRIPE_API_BASE must begin with https: for a live key", args)
			require.NotContains(t, out.String(), "hidden")
		}
	}
	e := environment{}
	e.encryptedFor("sk_live_hidden_000", "https://proxy")
	e.encryptedFor("sk_test_hidden_000", "http://127.0.0.1:12111")
	require.NoError(t, e.err)
}

// TestPoolerStopsTheStart: what would fail strangely at night says so at once.
func TestPoolerStopsTheStart(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(world.New(t).URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	proxy.Pool(pgproxy.Pooling{})
	for _, command := range [][]string{{"serve"}, {"migrate", "status"}, {"tenant", "create", "tea"}} {
		var stdout, stderr bytes.Buffer
		require.Equal(
			t, 1,
			run(t.Context(), command, settings(map[string]string{"DATABASE_URL": proxy.URL()}), &stdout, &stderr),
		)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
		require.True(
			t,
			strings.HasPrefix(stderr.String(), "api: DATABASE_URL: this is a connection pooler"),
			stderr.String(),
		)
		require.Empty(t, stdout.String())
	}
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	c, err := readConfig(settings(nil))
	require.NoError(t, err)
	require.Equal(t, 15*time.Second, c.StripeTimeout)
	require.Equal(t, time.Minute, c.IdempotencyLease)
	require.Equal(t, 72*time.Hour, c.IdempotencyRetention)
	require.Less(t, c.within(), 3*c.StripeTimeout, "a POST is answered within three times the timeout")
	require.Greater(t, c.IdempotencyLease, c.within(), "a lease outlives its holder's work")

	c, err = readConfig(
		settings(
			map[string]string{
				"STRIPE_WEBHOOK_SECRET": " whsec_new , whsec_old ,",
				"STRIPE_API_BASE":       "https://user:hunter2@proxy:8443",
				"ADMIN_TOKEN":           "hunter2-hunter2-hunter2-hunter2",
			},
		),
	)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_new", "whsec_old"}, c.StripeWebhookSecrets)
	shown := c.LogValue().String()
	require.Contains(t, shown, "stripe_timeout=15s")
	for _, secret := range []string{"hunter2", "whsec_", "sk_test_"} {
		require.NotContains(t, shown, secret)
	}
}

// TestStripeMode: the line of the start says whether money is real.
func TestStripeMode(t *testing.T) {
	t.Parallel()
	for key, mode := range map[string]string{"sk_test_a": "test", "rk_test_a": "test", "sk_live_a": "live", "rk_live_a": "live"} {
		require.Contains(t, config{StripeSecretKey: key}.LogValue().String(), "stripe_mode="+mode+" ", key)
	}
}

func TestReadConfigNormalisesValues(t *testing.T) {
	t.Parallel()
	// three of which are more than a duration can be
	_, err := readConfig(settings(map[string]string{"STRIPE_TIMEOUT": "2000000h"}))
	require.ErrorContains(t, err, "IDEMPOTENCY_LEASE must exceed 3 × STRIPE_TIMEOUT")
	c, err := readConfig(
		settings(map[string]string{"STRIPE_API_BASE": "http://proxy:12111/stripe/", "LOG_LEVEL": "WARN"}),
	)
	require.NoError(t, err)
	require.Equal(t, "http://proxy:12111/stripe", c.StripeAPIBase, "what follows begins with a slash")
	require.Equal(t, slog.LevelWarn, c.LogLevel)
}

func TestCommands(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	do := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		set := map[string]string{"DATABASE_URL": w.URL, "DATA_KEY": world.DataKey} // and nothing else
		env := func(name string) string { return set[name] }
		code = run(t.Context(), args, env, &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, _ := do("tenant", "create", "Tea & Co")
	require.Zero(t, code)
	require.Regexp(t, `^\{"tenant_id":"ten_[0-9a-v]{26}","api_key":"payonce_[0-9a-v]{26}_[A-Za-z0-9_-]{43}"\}\n$`, out)

	code, out, _ = do("migrate", "status")
	require.Zero(t, code)
	require.NotContains(t, out, "pending")
	code, out, _ = do("migrate")
	require.Zero(t, code)
	require.Equal(t, "nothing to apply\n", out)

	for _, wrong := range [][]string{{"pay"}, {"serve", "now"}, {"tenant"}, {"tenant", "create"},
		{"tenant", "create", ""}, {"tenant", "list", "all"}, {"tenant", "disable"}, {"tenant", "key", "list"},
		{"tenant", "key", "create"}, {"tenant", "key", "create", "ten_1", "ten_2"},
		{"tenant", "key", "create", "ten_1", "-expires", "soon"}, {"tenant", "key", "create", "ten_1", "-expires", "0d"},
		{"tenant", "key", "create", "ten_1", "-expires", "-1h"}, {"tenant", "key", "create", "ten_1", "-expires", "99999d"},
		{"tenant", "key", "create", "ten_1", "-name", strings.Repeat("x", 101)}, {"migrate", "down"}, {"migrate", "up", "twice"}} {
		code, out, errs := do(wrong...)
		require.Equal(t, 2, code, wrong)
		require.Empty(t, out)
		require.Contains(t, errs, "usage: api")
	}
	for says, wrong := range map[string][]string{
		`unknown command "bogus"`:            {"bogus"},
		`incomplete command "tenant"`:        {"tenant"},
		`unknown command "tenant bogus"`:     {"tenant", "bogus", "ten_1"},
		`unknown command "tenant key bogus"`: {"tenant", "key", "bogus", "ten_1"},

		`migrate: "down" is none of up, status and print`: {"migrate", "down"},
		`migrate: unexpected argument "twice"`:            {"migrate", "up", "twice"},
		`version: unexpected argument "x"`:                {"version", "x"},
		`tenant create: NAME is empty`:                    {"tenant", "create", ""},
		`tenant key revoke: HINT is missing`:              {"tenant", "key", "revoke", "ten_1"},
		`setup stripe: -url is missing`:                   {"setup", "stripe"},
		`setup stripe: unexpected argument "http://localhost"; the URL follows -url`: {
			"setup", "stripe", "http://localhost",
		},
		`tenant key create: invalid value "90x" for flag -expires: must be days or a duration, such as 90d or 12h`: {
			"tenant", "key", "create", "ten_1", "-expires", "90x",
		},
		`tenant key create: -name must have at most 100 characters`: {
			"tenant", "key", "create", "ten_1", "-name", strings.Repeat("x", 101),
		},
		`relay replay: -since must be a duration above zero, such as 2h`: {"relay", "replay"},
		`audit: -since must be a duration above zero, such as 48h`:       {"audit", "-since", "0s"},
	} {
		code, out, errs := do(wrong...)
		require.Equal(t, 2, code)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(errs, "api: "+says+"\n\nusage: api"), errs)
		require.LessOrEqual(t, strings.Count(errs, "\n"), 5+len(tenantCommands), "not the usage of every command: %s", errs)
	}
	_, _, errs := do("tenant", "create")
	require.Equal(t, "api: tenant create: NAME is missing\n\nusage: api tenant create NAME [-cell CELL] [-id TENANT]\n\n"+
		"  create a tenant; prints its id and API key, once\n", errs)
	_, _, errs = do("bogus")
	require.Equal(t, "api: unknown command \"bogus\"\n\nusage: api COMMAND\n\n`api help` lists the commands.\n", errs)
	_, _, errs = do("tenant", "key")
	require.Regexp(t, "(?s)^api: incomplete command .*\n  tenant key create .*\n  tenant key revoke ", errs)
	require.NotContains(t, errs, "migrate")

	for _, asked := range [][]string{{"tenant", "create", "-h"}, {"setup", "stripe", "--help"}, {"tenant", "key", "create", "-h"}} {
		code, out, errs := do(asked...)
		require.Zero(t, code, asked)
		require.Empty(t, errs)
		require.Contains(t, out, "usage: api "+strings.Join(asked[:len(asked)-1], " ")+" ")
	}
	_, out, _ = do("setup", "stripe", "-h")
	require.Contains(t, out, "\n  -url string\n", "its flags")

	code, out, _ = do("migrate", "print")
	require.Zero(t, code)
	require.Regexp(t, `^SET check_function_bodies = off;[^\n]*\s+CREATE TYPE`, out)

	code, _, errs = do("tenant", "key", "revoke", w.Tenant.ID, "none")
	require.Equal(t, 1, code)
	require.Equal(t, "api: the tenant has no active key that ends in \"none\"\n", errs)
}
