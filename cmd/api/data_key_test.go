package main

import (
	"bytes"
	"encoding/json"
	"net/http"
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
		cmd := w.Command([]string{"serve"}, "DATA_KEY="+setting)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.Error(t, cmd.Run())
		require.Contains(t, errs.String(), lacks)
		require.NotContains(t, errs.String(), `"msg":"serving"`)
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
	command := func(args []string, settings ...string) []byte {
		t.Helper()
		out, err := w.Command(args, settings...).Output()
		require.NoError(t, err)
		return out
	}
	stored := func(tenant string) []byte {
		t.Helper()
		var secret []byte
		require.NoError(t, w.DB.Raw().QueryRow(t.Context(),
			"SELECT fingerprint_secret FROM tenants WHERE id = $1", tenant).Scan(&secret))
		return secret
	}
	with := tenantOf(t, command([]string{"tenant", "create", "with"}))
	secret := stored(with.ID)
	require.Equal(t, w.Box(world.DataKey).SealedBy(), sealed.KeyID(secret))
	opened, err := w.Box(world.DataKey).Open(sealed.FingerprintSecret(with.ID), secret)
	require.NoError(t, err)
	require.Len(t, opened, 32)

	without := tenantOf(t, command([]string{"tenant", "create", "without"}, "DATA_KEY="))
	require.Nil(t, sealed.KeyID(stored(without.ID)))

	p := w.Process()
	for _, tenant := range []world.Tenant{with, without} {
		api := p.As(tenant)
		order := api.Order()
		require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
		again := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	}
	require.Error(t, w.Command([]string{"tenant", "create", "wrong"}, "DATA_KEY=wrong").Run())
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
