package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/world"
)

// TestDataKeyIsReplaced in proof/night/api plays how a key is replaced, with three processes. // part: proof

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
	p.RequireLogged(`"data_keys":["` + w.Box(world.OtherDataKey).KeyIDs()[0] + `","` +
		w.Box(world.DataKey).KeyIDs()[0] + `"]`)
	p.RequireNotLogged(world.DataKey[:12])
}

// TestKeyIsIntroducedByTheOwner: with a key that the owner has not introduced there is no process, because the database
// would take none of its secrets. `api migrate` with it introduces it.
func TestKeyIsIntroducedByTheOwner(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Exec("DELETE FROM data_keys")
	id := w.Box(world.DataKey).KeyIDs()[0]
	unknown := "the database does not know the first key of DATA_KEY, " + id + ": run `api migrate` with this DATA_KEY"
	for _, args := range [][]string{{"serve"}, {"tenant", "create", "new"}} {
		_, errs, status := typed(w, args)
		require.NotZero(t, status)
		require.Contains(t, errs, unknown, args)
	}
	require.Equal(t, 1, w.Count("SELECT count(*) FROM tenants"))

	out, errs, status := typed(w, []string{"migrate"}, "DATABASE_URL="+devpg.As(w.URL, "payonce_owner"))
	require.Zero(t, status, errs)
	require.Contains(t, out, "nothing to apply")
	require.Equal(t, 1, w.Count("SELECT count(*) FROM data_keys WHERE id = decode($1, 'hex') AND plain_until > now() + interval '23 hours'", id))
	p := w.Process()
	p.Order()
	_, errs, status = typed(w, []string{"migrate"}, "DATABASE_URL="+devpg.As(w.URL, "payonce_owner"), "DATA_KEY=none,"+world.DataKey)
	require.Zero(t, status, errs)
	require.Equal(t, 1, w.Count("SELECT count(*) FROM data_keys WHERE plain_until = 'infinity'"), "plain values are read again")
	_, _, status = typed(w, []string{"migrate"}, "DATA_KEY="+world.OtherDataKey) // as the service, which has nothing to apply
	require.Zero(t, status)
	require.Equal(t, 1, w.Count("SELECT count(*) FROM data_keys"))

	w.Exec("INSERT INTO data_keys (id, plain_until) VALUES ($1, now())", w.Box(world.OtherDataKey).SealedBy())
	w.Process().RequireLogged("the first key of DATA_KEY is not the one that was introduced last")
}

// TestNoneIsIntroducedByTheOwner: what a process stores in the clear while the database expects it encrypted, no process
// with the key would read. So there is no such process until `api migrate` has said that nothing is encrypted.
func TestNoneIsIntroducedByTheOwner(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Exec("UPDATE data_keys SET plain_until = clock_timestamp()")
	none := "DATA_KEY=none," + world.DataKey
	for _, args := range [][]string{{"serve"}, {"tenant", "create", "new"}} {
		_, errs, status := typed(w, args, none)
		require.NotZero(t, status)
		require.Contains(t, errs, "run `api migrate` with this DATA_KEY", args)
	}
	_, errs, status := typed(w, []string{"migrate"}, "DATABASE_URL="+devpg.As(w.URL, "payonce_owner"), none)
	require.Zero(t, status, errs)
	plain := w.Process(none)
	order := plain.Order()
	require.Equal(t, http.StatusCreated, plain.Pay("k", order, "pm_card_visa").Status)
	require.Equal(t, http.StatusCreated, w.Process().Pay("k", order, "pm_card_visa").Status)
}

// TestRetentionHasAFloor: the service does not drop a response before the database lets it.
func TestRetentionHasAFloor(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const setting = "IDEMPOTENCY_RETENTION=59m"
	_, errs, status := typed(w, []string{"serve"}, setting)
	require.NotZero(t, status)
	require.Contains(t, errs, "IDEMPOTENCY_RETENTION is 59m0s, but the database keeps each response for 1h0m0s at least")
	w.Process(setting, "IDEMPOTENCY_REAPER=false")
	w.Process("IDEMPOTENCY_RETENTION=1h")
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
	w.Exec("ALTER TABLE tenants ENABLE TRIGGER USER")
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
	w.Exec("INSERT INTO data_keys (id, introduced_at, plain_until) VALUES ($1, '2026-01-01', 'infinity')", w.Box(publishedDataKey).SealedBy())
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
