package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// commandAt runs a command with a database and CELL, and no other settings.
func commandAt(t *testing.T, url, cell string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	set := map[string]string{"DATABASE_URL": url, "CELL": cell, "DATA_KEY": world.DataKey}
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return set[name] }, &out, &errs)
	return code, out.String(), errs.String()
}

// TestMigrateNamesTheCell: a new database is of the cell that it is first migrated as, and of no other ever after.
func TestMigrateNamesTheCell(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t)
	code, out, errs := commandAt(t, url, "eu1", "migrate")
	require.Zero(t, code, errs)
	require.Contains(t, out, "applied 00001_tenants.sql")
	pool := dbtest.Migrated(t, url)
	named := func() string {
		name, err := pool.CellName(t.Context())
		require.NoError(t, err)
		return name
	}
	require.Equal(t, "eu1", named())

	// Another cell's release must not change it: what is pending stays so.
	pending := func(sql string) {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	pending("UPDATE goose_db_version SET is_applied = false WHERE version_id = 14")
	code, out, errs = commandAt(t, url, "eu2", "migrate")
	pending("UPDATE goose_db_version SET is_applied = true WHERE version_id = 14")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, `api: CELL is "eu2", but the database of DATABASE_URL is that of the cell "eu1"; correct one of the two`+"\n", errs)
	for _, cell := range []string{"eu1", ""} { // which migrate does not need
		code, out, errs = commandAt(t, url, cell, "migrate")
		require.Zero(t, code, errs)
		require.Equal(t, "nothing to apply\n", out)
	}
	code, _, errs = commandAt(t, url, "EU", "migrate")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "CELL must be 1 to 16 characters")
	require.Equal(t, "eu1", named())
}

// TestMigrateNamesNoDatabaseWithTenants: their API keys name no cell, and CELL or DATABASE_URL may be a mistake.
func TestMigrateNamesNoDatabaseWithTenants(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	code, _, errs := commandAt(t, w.URL, "eu1", "migrate")
	require.Equal(t, 1, code)
	require.Regexp(t, `^api: CELL is "eu1", but the database of DATABASE_URL has tenants already, and no cell: unset CELL, .*\n$`, errs)
	require.Zero(t, w.Count(`SELECT count(*) FROM cell`))
}

// TestTenantCreateAgreesWithTheDatabase: the keys of a tenant name the cell of the database that it is in.
func TestTenantCreateAgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	cell, none := dbtest.Empty(t), dbtest.URL(t)
	code, _, errs := commandAt(t, cell, "eu1", "migrate")
	require.Zero(t, code, errs)
	const id, secret = "[0-9a-v]{26}", "[A-Za-z0-9_-]{43}"
	for _, c := range []struct {
		name, url, cell string
		args            []string
		says            string // what stdout is if it works, else the line of stderr
		code            int
	}{
		{"TheDatabases", cell, "", nil, `"api_key":"payonce_eu1_` + id + `_` + secret + `"`, 0},
		{"Both", cell, "eu1", []string{"-cell", "eu1"}, `"api_key":"payonce_eu1_` + id + `_` + secret + `"`, 0},
		{"OtherFlag", cell, "eu1", []string{"-cell", "eu2"}, `^api: -cell is "eu2", but .* that of the cell "eu1"; correct one of the two\n$`, 1},
		{"OtherCELL", cell, "eu2", nil, `^api: CELL is "eu2", but .* that of the cell "eu1"; correct one of the two\n$`, 1},
		{"None", none, "", nil, `"api_key":"payonce_` + id + `_` + secret + `"`, 0},
		{"FlagOfNone", none, "", []string{"-cell", "eu1"}, `^api: -cell is "eu1", but .* that of no cell; run .* CELL=eu1 if it is new`, 1},
		{"CELLOfNone", none, "eu1", nil, `^api: CELL is "eu1", but .* that of no cell; run .* CELL=eu1 if it is new`, 1},
		{"Invalid", cell, "", []string{"-cell", "EU"}, `^api: tenant create: invalid value "EU" for flag -cell: must be 1 to 16`, 2},
		{"InvalidCELL", cell, "EU", nil, `^api: CELL must be 1 to 16 `, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := commandAt(t, c.url, c.cell, append([]string{"tenant", "create", "tea"}, c.args...)...)
			require.Equal(t, c.code, code, errs)
			if c.code != 0 {
				require.Empty(t, out)
				out = errs
			}
			require.Regexp(t, c.says, out)
		})
	}
	pool := dbtest.Migrated(t, cell)
	list, err := pool.TenantList(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2, "of those that worked")

	code, out, errs := commandAt(t, cell, "", "tenant", "key", "create", list[0].ID)
	require.Zero(t, code, errs)
	require.Regexp(t, `"api_key":"payonce_eu1_`+strings.TrimPrefix(list[0].ID, "ten_")+`_`, out)
	code, _, errs = commandAt(t, cell, "eu2", "tenant", "key", "create", list[0].ID)
	require.Equal(t, 1, code)
	require.Contains(t, errs, `CELL is "eu2"`)
}

// TestServeNeedsTheCellOfTheDatabase: a process of one cell on another's database would finish payments that are not
// its own, at another Stripe account. A copy of a database keeps its name, so it is refused, too.
func TestServeNeedsTheCellOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	serve := func(settings ...string) (int, string) {
		_, errs, status := typed(w, []string{"serve"}, settings...)
		require.NotZero(t, status)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		return strings.Count(errs, `"msg":"serving"`), lines[len(lines)-1]
	}
	served, says := serve("CELL=eu1")
	require.Zero(t, served)
	require.Contains(t, says, `api: CELL is "eu1", but the database of DATABASE_URL is that of no cell`)
	w.Exec(`INSERT INTO cell (name) VALUES ('eu1')`) // as its owner may, docs/cells.md
	for _, c := range [][2]string{
		{"CELL=eu2", `api: CELL is "eu2", but the database of DATABASE_URL is that of the cell "eu1"; correct one of the two`},
		{"CELL=", `api: CELL is unset, but the database of DATABASE_URL is that of the cell "eu1"; set CELL=eu1, or correct DATABASE_URL`},
	} {
		served, says := serve(c[0])
		require.Zero(t, served)
		require.Equal(t, c[1], says)
	}
}

// TestKeysOfCells: a process takes the keys of its own cell, and those without one that its database has.
func TestKeysOfCells(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	keyOf := func(cell string) string {
		key, hash, hint := httpapi.NewCellAPIKey(cell, w.Tenant.ID)
		require.NoError(t, w.DB.APIKeyCreate(t.Context(), db.APIKeyCreateParams{TenantID: w.Tenant.ID, KeyHash: hash, Hint: hint}))
		return key
	}
	own, other := keyOf("eu1"), keyOf("eu2") // as no command would: that the key is stored must not let it in
	status := func(p *world.Process, key string) world.Answer {
		return p.As(world.Tenant{APIKey: key}).Get("/v1/orders")
	}

	unnamed := w.Process()
	require.Equal(t, http.StatusOK, status(unnamed, w.Tenant.APIKey).Status)
	require.Equal(t, http.StatusUnauthorized, status(unnamed, own).Status)
	unnamed.Kill()

	w.Exec(`INSERT INTO cell (name) VALUES ('eu1')`)
	p := w.Process("CELL=eu1")
	var started struct{ Config struct{ Cell string } }
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, `"msg":"serving"`) {
			require.NoError(t, json.Unmarshal([]byte(line), &started))
		}
	}
	require.Equal(t, "eu1", started.Config.Cell)
	require.Equal(t, http.StatusOK, status(p, own).Status)
	require.Equal(t, http.StatusOK, status(p, w.Tenant.APIKey).Status)
	for range 2 {
		a := status(p, other)
		require.Equal(t, http.StatusUnauthorized, a.Status)
		require.Equal(t, "unauthenticated", a.Code())
		require.False(t, a.Problem().Retryable)
		require.NotEmpty(t, a.Header.Get("WWW-Authenticate"))
		require.Contains(t, a.Problem().Detail, "names another cell")
		require.NotContains(t, string(a.Body), "eu1")
	}
	// The secret is that of a valid key, and the rest is not: a key is valid as a whole.
	require.Equal(t, http.StatusUnauthorized, status(p, strings.Replace(own, "_eu1_", "_", 1)).Status)
	require.Equal(t, http.StatusUnauthorized,
		status(p, strings.Replace(w.Tenant.APIKey, "payonce_", "payonce_eu1_", 1)).Status)
	p.RequireNotLogged(other)
}

// TestMovedTenant: what was moved to another cell is listed, and no command works on it here.
func TestMovedTenant(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Exec(`UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = $1`, w.Tenant.ID)
	_, out, _ := commandAt(t, w.URL, "", "tenant", "list")
	require.Contains(t, out, `"disabled":true`)
	require.Contains(t, out, `"moved_to":"eu2"`)
	for _, args := range [][]string{{"enable"}, {"key", "create"}} {
		code, _, errs := commandAt(t, w.URL, "", append(append([]string{"tenant"}, args...), w.Tenant.ID)...)
		require.Equal(t, 1, code)
		require.Contains(t, errs, "or it was moved to another cell")
	}
	w.NewTenant()
	_, out, _ = commandAt(t, w.URL, "", "tenant", "list")
	require.Equal(t, 1, strings.Count(out, "moved_to"), "of the others nothing new is said")
}
