package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// TestTenantsAndTheirKeys: what an operator types, against a running service.
func TestTenantsAndTheirKeys(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	do := func(args ...string) []map[string]any {
		t.Helper()
		out, errs, status := typed(w, append([]string{"tenant"}, args...))
		require.Zero(t, status, "%v\n%s", args, errs)
		var lines []map[string]any
		for line := range strings.Lines(out) {
			object := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(line), &object), line)
			lines = append(lines, object)
		}
		return lines
	}
	mine := func(lines []map[string]any, name string, value any) map[string]any {
		t.Helper()
		for _, line := range lines {
			if line[name] == value {
				return line
			}
		}
		require.Failf(t, "missing", "no %s %v in %v", name, value, lines)
		return nil
	}
	tenant := w.Tenant.ID
	created := do("key", "create", tenant, "-name", "reports", "-expires", "90d", "-read-only")[0]
	require.Len(t, created, 2)
	key, hint := created["api_key"].(string), created["hint"].(string)
	require.True(t, strings.HasSuffix(key, hint))
	listed := mine(do("key", "list", tenant), "hint", hint)
	require.Len(t, listed, 7)
	require.Equal(t, "reports", listed["name"])
	require.Equal(t, true, listed["read_only"])
	require.Nil(t, listed["last_used_at"])
	require.Nil(t, listed["revoked_at"])
	at := func(name string) time.Time {
		t.Helper()
		moment, err := time.Parse(time.RFC3339, listed[name].(string))
		require.NoError(t, err)
		return moment
	}
	require.WithinDuration(t, at("created_at").Add(90*24*time.Hour), at("expires_at"), time.Minute)

	api := w.Process()
	order := api.Order()
	reader := api.As(world.Tenant{ID: tenant, APIKey: key})
	require.Equal(t, http.StatusOK, reader.Get("/v1/orders/"+order).Status)
	require.Equal(t, "forbidden", reader.Pay("k", order, "pm_card_visa").Code())
	world.Eventually(t, 20*time.Second, "its use is noted", func() bool {
		listed = mine(do("key", "list", tenant), "hint", hint)
		return listed["last_used_at"] != nil
	})
	require.Equal(t, at("last_used_at").Truncate(time.Hour), at("last_used_at"))

	require.Equal(t, false, mine(do("list"), "tenant_id", tenant)["disabled"])
	require.Empty(t, do("disable", tenant))
	require.Equal(t, true, mine(do("list"), "tenant_id", tenant)["disabled"])
	world.Eventually(t, 20*time.Second, "a disabled tenant is refused", func() bool {
		return api.Get("/v1/orders/"+order).Status == http.StatusUnauthorized
	})
	require.Empty(t, do("enable", tenant))
	world.Eventually(t, 20*time.Second, "an enabled tenant is served", func() bool {
		return api.Get("/v1/orders/"+order).Status == http.StatusOK
	})

	require.Empty(t, do("key", "revoke", tenant, hint))
	require.NotNil(t, mine(do("key", "list", tenant), "hint", hint)["revoked_at"])

	// A typing error must not pass for success.
	for _, args := range [][]string{
		{"disable", "ten_none"}, {"enable", "ten_none"}, {"key", "create", "ten_none"}, {"key", "list", "ten_none"},
		{"key", "revoke", tenant, hint},
		{"notify", "ten_none", "https://example.com/hook"}, // part: webhooks
		{"notify", tenant, "https://169.254.169.254/"},     // part: webhooks
	} {
		out, errs, status := typed(w, append([]string{"tenant"}, args...))
		require.NotZero(t, status, args)
		require.Empty(t, out)
		require.Contains(t, errs, "tenant", args)
	}
}

// TestCommandsStoreNoCardNumber: what a command would store, and a terminal show later, is refused before it is.
func TestCommandsStoreNoCardNumber(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const card, controls = "4242 4242 4242 4242", "a\u009b2Jb\u202ec"
	for _, text := range []string{card, controls} {
		for _, args := range [][]string{
			{"create", text},
			{"key", "create", w.Tenant.ID, "-name", text},
			{"erase-customer", w.Tenant.ID, "ada", "-by", text},
			{"notify", w.Tenant.ID, "https://93.184.216.34/hook?for=" + text}, // part: webhooks
		} {
			out, errs, status := typed(w, append([]string{"tenant"}, args...))
			require.NotZero(t, status, args)
			require.Empty(t, out)
			require.Regexp(t, "^api: .* must (not contain a card number|consist of printable characters)\n$", errs)
		}
	}
	require.Equal(t, 1, w.Count("SELECT count(*) FROM tenants"))
	require.Equal(t, 1, w.Count("SELECT count(*) FROM api_keys"))
	require.Zero(t, w.Count("SELECT count(*) FROM webhook_endpoints")) // part: webhooks

	// Names that are stored already, by whatever, do no harm.
	w.Exec("UPDATE api_keys SET name = '" + controls + "'")
	out, errs, status := typed(w, []string{"tenant", "key", "list", w.Tenant.ID})
	require.Zero(t, status, errs)
	require.Contains(t, out, `a\u009b2Jb\u202ec`)
}

// TestCommandsOnADatabaseWithoutTheSchema: each says what to do, whatever it reads first.
func TestCommandsOnADatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	commands := [][]string{
		{"tenant", "list"}, {"tenant", "create", "shop"}, {"tenant", "disable", "ten_1"}, {"tenant", "key", "list", "ten_1"},
		{"tenant", "key", "create", "ten_1"}, {"tenant", "key", "revoke", "ten_1", "hint"}, {"relay", "replay", "-since", "1h"},
		{"tenant", "erase-customer", "ten_1", "Ada"}, {"audit"},
		{"tenant", "notify", "ten_1", "https://93.184.216.34/hook"}, // part: webhooks
	}
	says := func(url, want string) {
		t.Helper()
		for _, args := range commands {
			var out, errs bytes.Buffer
			env := settings(map[string]string{"DATABASE_URL": url})
			require.NotZero(t, run(t.Context(), args, env, &out, &errs), args)
			require.Regexp(t, "(?m)^api: (audit: )?"+want+"; run `api migrate`$", errs.String(), args)
		}
	}
	says(dbtest.Empty(t), "the database is empty")

	pool := dbtest.New(t)
	_, err := pool.Raw().Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id > 1;
		ALTER TABLE tenants RENAME TO put_aside; ALTER TABLE outbox_events RENAME TO put_aside_too;
		ALTER TABLE api_keys RENAME TO put_aside_also; ALTER TABLE event_feeds RENAME TO put_aside_at_last`)
	require.NoError(t, err)
	says(pool.Raw().Config().ConnString(), `the database schema is older than this program: 00002_\w+\.sql is missing`)

	// An error of another reason stays what it is.
	pool = dbtest.New(t)
	_, err = pool.Raw().Exec(t.Context(), `ALTER TABLE tenants RENAME TO put_aside`)
	require.NoError(t, err)
	var out, errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"tenant", "list"},
		settings(map[string]string{"DATABASE_URL": pool.Raw().Config().ConnString()}), &out, &errs))
	require.Contains(t, errs.String(), `relation "tenants" does not exist`)
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "12h": 12 * time.Hour, "1s": time.Second} {
		d, err := parseLifetime(text)
		require.NoError(t, err)
		require.Equal(t, want, d)
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "0s", "500ms", "36501d", "65536d", "900000h"} {
		_, err := parseLifetime(text)
		require.Error(t, err, text)
	}
}
