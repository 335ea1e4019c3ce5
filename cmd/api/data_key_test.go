package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/world"
)

// TestStartWithoutTheDataKey: a process without the key of a tenant's secret would take each retry for another request,
// so there is none.
func TestStartWithoutTheDataKey(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	lacks := "DATA_KEY lacks the keys with the ids " + w.Box(world.DataKey).KeyIDs()[0] + ", which secrets"
	for _, setting := range []string{"", world.OtherDataKey} {
		_, errs, status := typed(w, []string{"serve"}, "DATA_KEY="+setting)
		require.NotZero(t, status)
		require.Contains(t, errs, lacks)
		require.NotContains(t, errs, `"msg":"serving"`)
	}
	p := w.Process("DATA_KEY=" + world.OtherDataKey + "," + world.DataKey)
	p.Order()
	require.Contains(t, p.Log(), `"data_keys":["`+w.Box(world.OtherDataKey).KeyIDs()[0]+`","`+
		w.Box(world.DataKey).KeyIDs()[0]+`"]`)
	require.NotContains(t, p.Log(), world.DataKey[:12])
}

// TestSecretsOfTenantsAreSealed: by the commands that make them, and so that the service can use them.
func TestSecretsOfTenantsAreSealed(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	created := func(name string, settings ...string) world.Tenant {
		t.Helper()
		out, errs, status := typed(w, []string{"tenant", "create", name}, settings...)
		require.Zero(t, status, errs)
		return tenantOf(t, []byte(out))
	}
	stored := func(tenant string) []byte {
		t.Helper()
		var secret []byte
		require.NoError(t, w.DB.Raw().QueryRow(t.Context(),
			"SELECT fingerprint_secret FROM tenants WHERE id = $1", tenant).Scan(&secret))
		return secret
	}
	with := created("with")
	secret := stored(with.ID)
	require.Equal(t, w.Box(world.DataKey).SealedBy(), sealed.KeyID(secret))
	opened, err := w.Box(world.DataKey).Open(sealed.FingerprintSecret(with.ID), secret)
	require.NoError(t, err)
	require.Len(t, opened, 32)

	without := created("without", "DATA_KEY=none,"+world.DataKey)
	require.Nil(t, sealed.KeyID(stored(without.ID)))

	p := w.Process()
	for _, tenant := range []world.Tenant{with, without} {
		api := p.As(tenant)
		order := api.Order()
		require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
		again := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	}
	_, _, status := typed(w, []string{"tenant", "create", "wrong"}, "DATA_KEY=wrong")
	require.NotZero(t, status)
	require.Zero(t, w.Count("SELECT count(*) FROM tenants WHERE name = 'wrong'"))

	// A secret that was put into another tenant's row does not pass for its own.
	w.Exec("ALTER TABLE tenants DISABLE TRIGGER USER")
	w.Exec("UPDATE tenants SET fingerprint_secret = $2 WHERE id = $1", without.ID, secret)
	swapped := w.Process().As(without).Pay("k", "ord_none", "pm_card_visa")
	require.Equal(t, http.StatusInternalServerError, swapped.Status, "%s", swapped.Body)
}

// tenantOf is what `tenant create` prints.
func tenantOf(t *testing.T, line []byte) world.Tenant {
	t.Helper()
	var made struct {
		ID     string `json:"tenant_id"`
		APIKey string `json:"api_key"`
	}
	require.NoError(t, json.Unmarshal(line, &made))
	return world.Tenant(made)
}

// TestCommandsNeedTheDataKey: a command that stores a secret, without the keys that the service has, stores none. It ends
// as the start of the service does.
func TestCommandsNeedTheDataKey(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	lacks := "api: DATA_KEY lacks the keys with the ids " + w.Box(world.DataKey).KeyIDs()[0] + ", which secrets of tenants " +
		"are encrypted with (1); add them\n"
	for _, args := range [][]string{
		{"tenant", "create", "new"},
		{"tenant", "notify", w.Tenant.ID, "https://93.184.216.34/hook"}, // part: webhooks
	} {
		for _, setting := range []string{"", world.OtherDataKey, "none," + world.OtherDataKey} {
			out, errs, status := typed(w, args, "DATA_KEY="+setting)
			require.Equal(t, exitFailed, status, args)
			require.Empty(t, out)
			require.Equal(t, lacks, errs)
		}
	}
	require.Equal(t, 1, w.Count("SELECT count(*) FROM tenants"))
	require.Zero(t, w.Count("SELECT count(*) FROM webhook_endpoints")) // part: webhooks

	// Where nothing is encrypted yet there is no key to lack, so the command warns.
	w.Exec("ALTER TABLE tenants DISABLE TRIGGER USER")
	w.Exec("UPDATE tenants SET fingerprint_secret = repeat('s', 32)::bytea")
	for setting, warns := range map[string]string{
		"": "DATA_KEY is unset: what is stored is not encrypted", world.DataKey: "",
		"none," + world.DataKey: "DATA_KEY begins with none: what is stored is not encrypted",
		publishedDataKey:        "DATA_KEY is the public one of .env.example and docker-compose.yml: everyone can decrypt",
	} {
		_, errs, status := typed(w, []string{"tenant", "create", "new"}, "DATA_KEY="+setting)
		require.Zero(t, status, errs)
		require.Contains(t, errs, warns)
		require.Equal(t, warns == "", errs == "", errs)
		w.Exec("DELETE FROM api_keys WHERE tenant_id <> $1", w.Tenant.ID)
		w.Exec("DELETE FROM tenants WHERE id <> $1", w.Tenant.ID)
	}
}

// TestRestoreNeedsTheKeyOfItsTime: of a database from before the key was replaced, doctor and the start say which key is
// missing, and the audit does for responses. With that key behind the present one all of it is read.
func TestRestoreNeedsTheKeyOfItsTime(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	then := w.Process()
	order := then.Order()
	paid := then.Pay("paid", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	w.Until("its events are published", func() bool {
		return w.Count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL") == 0
	})
	then.Kill()
	id := w.Box(world.DataKey).KeyIDs()[0]
	said := func(name, dataKey string) string {
		out, errs, _ := typed(w, []string{name}, "DATA_KEY="+dataKey)
		return out + errs
	}
	for _, now := range []string{world.OtherDataKey, ""} {
		lacks := "DATA_KEY lacks the keys with the ids " + id
		require.Regexp(t, `(?m)^bad +database.encryption +`+lacks, said("doctor", now))
		require.Contains(t, said("serve", now), lacks)
		require.Contains(t, said("audit", now), "DATA_KEY has no key with the id "+id)
	}
	both := world.OtherDataKey + "," + world.DataKey
	require.Regexp(t, `(?m)^ok +database.encryption `, said("doctor", both))
	require.NotContains(t, said("audit", both), "DATA_KEY")
	again := w.Process("DATA_KEY="+both).Pay("paid", order, "pm_card_visa")
	require.Equal(t, string(paid.Body), string(again.Body))
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
}

// TestDataKeyIsReplaced: while one key is replaced by another, in the steps of docs/operations.md, a retry gets the same
// bytes at every process, and afterwards the old key can be forgotten.
func TestDataKeyIsReplaced(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	old, replacement := world.DataKey, world.OtherDataKey
	first := w.Process("DATA_KEY=" + old + "," + replacement)
	order := first.Order()
	paid := first.Pay("paid", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	declined := first.Pay("declined", first.Order(), "pm_card_visa_chargeDeclined")
	w.Exec("ALTER TABLE idempotency_keys DISABLE TRIGGER USER") // an hour passes
	w.Exec("UPDATE idempotency_keys SET finished_at = finished_at - interval '1 hour' WHERE finished_at IS NOT NULL")
	w.Exec("ALTER TABLE idempotency_keys ENABLE TRIGGER USER")

	second := w.Process("DATA_KEY=" + replacement + "," + old)
	same := func(p *world.Process) {
		t.Helper()
		for key, was := range map[string]world.Answer{"paid": paid, "declined": declined} {
			again := p.Pay(key, orderOf(t, was), map[string]string{"paid": "pm_card_visa",
				"declined": "pm_card_visa_chargeDeclined"}[key])
			require.Equal(t, was.Status, again.Status, "%s", again.Body)
			require.Equal(t, string(was.Body), string(again.Body))
			require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		}
	}
	same(first)
	same(second)
	first.Kill() // While it runs, it encrypts with the old key what it finds under the new one.
	w.Until("everything is sealed with the new key", func() bool {
		return w.Count(`SELECT count(*) FROM (SELECT sealed_by(fingerprint_secret) AS by FROM tenants
			UNION ALL SELECT sealed_by(request) FROM idempotency_keys
			UNION ALL SELECT sealed_by(answer_body) FROM idempotency_keys) v WHERE by <> $1`,
			w.Box(replacement).SealedBy()) == 0
	})
	w.Until("it says so", func() bool {
		return strings.Contains(second.Log(), "stored until a minute ago are encrypted with the first key of DATA_KEY")
	})
	require.Positive(t, second.Metric("payonce_reencrypted_total"))
	require.Zero(t, second.Metric("payonce_reencryption_unreadable"))
	last := w.Process("DATA_KEY=" + replacement)
	same(last)
	require.Equal(t, http.StatusCreated, last.Pay("more", last.Order(), "pm_card_visa").Status)
}

// orderOf is the order of a payment, also of one that was declined.
func orderOf(t *testing.T, a world.Answer) string {
	t.Helper()
	var body struct {
		OrderID string `json:"order_id"`
		Payment struct {
			OrderID string `json:"order_id"`
		}
	}
	require.NoError(t, json.Unmarshal(a.Body, &body))
	return body.OrderID + body.Payment.OrderID
}
