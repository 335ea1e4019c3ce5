//go:build linux

package cells

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/world"
)

// TestMoveTenant does what docs/cells.md says of moving a tenant, with two cells that have one account at Stripe, and a
// tenant with everything that a tenant can have.
func TestMoveTenant(t *testing.T) {
	t.Parallel()
	installed.Need(t, "psql")
	source := world.New(t)
	target := *world.On(t, dbtest.URL(t))
	target.Sim, target.StripeURL = source.Sim, source.StripeURL
	source.Exec(`INSERT INTO cell (name) VALUES ('eu1')`)
	target.Exec(`INSERT INTO cell (name) VALUES ('eu2')`)
	// The target has a key of its own, and the source's to read what is copied.
	const ownKey = "dGhlIHRhcmdldCBjZWxsJ3Mgb3duIGtleS4uLi4uLi4="
	settings := func(cell string) []string {
		if cell == "eu2" {
			return []string{"CELL=eu2", "DATA_KEY=" + ownKey + "," + world.DataKey}
		}
		return []string{"CELL=" + cell}
	}
	target.Exec("INSERT INTO data_keys (id, plain_until) VALUES ($1, 'infinity')", target.Box(ownKey).SealedBy())
	from, to := source.Process(settings("eu1")...), target.Process(settings("eu2")...)
	bystander := to.PayUntilFinal("of-another-tenant", to.Order(), visa) // as it was before, in the target
	require.Equal(t, http.StatusCreated, bystander.Status)

	// What the tenant has.
	tenant := source.Tenant.ID
	paid, refunded, authorized, declined := from.Order(), from.Order(), from.Order(), from.Order()
	payment := from.PayUntilFinal("paid", paid, visa)
	toRefund := from.PayUntilFinal("to-refund", refunded, visa)
	first := from.Post("/v1/payments/"+toRefund.ID()+"/refunds", "first-refund", `{"amount":300}`)
	require.Equal(t, http.StatusCreated, first.Status)
	reserved := from.Authorize("reserve", authorized, visa)
	require.Equal(t, "authorized", reserved.Get("status"))
	refusal := from.Pay("decline", declined, "pm_card_visa_chargeDeclined")
	require.Equal(t, http.StatusPaymentRequired, refusal.Status)
	require.Equal(t, http.StatusOK, from.Do("PUT", "/v1/stock/tea", `{"available":9}`).Status)
	checkout := from.Post("/v1/checkouts", "check-out",
		`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1000}],"payment_method":"pm_card_visa"}`)
	require.Equal(t, http.StatusCreated, checkout.Status)
	endpoint := from.Post("/v1/webhook-endpoints", "endpoint", `{"url":"https://shop.example.com/hooks"}`)
	require.Equal(t, http.StatusCreated, endpoint.Status)
	require.Equal(t, http.StatusOK, from.Post("/v1/webhook-endpoints/"+endpoint.ID()+"/disable", "off", "{}").Status)
	old := from.PayUntilFinal("expired", from.Order(), visa)
	source.Exec(`UPDATE idempotency_keys SET request = NULL, answer_version = NULL, answer_status = NULL, answer_headers = NULL,
		answer_body = NULL, answer_dropped_at = clock_timestamp() WHERE key = 'expired'`)

	script := func() (string, error) {
		root, err := inventory.Root()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "deploy/copy-tenant.sh"), tenant)
		cmd.Env = append(cmd.Environ(), "SOURCE="+devpg.As(source.URL, "payonce_audit"), "TARGET="+target.URL)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	refuses := func(says string) {
		t.Helper()
		out, err := script()
		require.Error(t, err, out)
		require.Contains(t, out, says)
		require.Zero(t, target.Count(`SELECT count(*) FROM tenants WHERE id = $1`, tenant))
		require.Zero(t, target.Count(`SELECT count(*) FROM payments WHERE tenant_id = $1`, tenant))
	}
	refuses("no tenant " + tenant + " is marked as moved")

	// With something unfinished it would be finished twice.
	waits := from.Pay("waits", from.Order(), "pm_card_threeDSecure2Required")
	require.Equal(t, "requires_action", waits.Get("status"))
	source.Exec(`UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = $1`, tenant)
	refuses("unfinished in SOURCE, so nothing was copied:\nkey waits\n")
	source.Exec(`UPDATE tenants SET disabled_at = NULL, moved_to = NULL WHERE id = $1`, tenant)
	source.Until("the tenant is served", func() bool { return from.Get("/v1/orders").Status == http.StatusOK })
	require.Equal(t, http.StatusOK, from.CancelPayment("give-up", waits.ID()).Status)

	// 1. No new requests.
	command(t, source, "tenant", "disable", tenant)
	source.Until("the tenant is refused", func() bool { return from.Get("/v1/orders").Status == http.StatusUnauthorized })
	// 2. Nothing is unfinished. 3. It is marked.
	source.Until("nothing is unfinished", func() bool {
		return source.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`) == 0 &&
			source.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0 &&
			source.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`) == 0 &&
			source.Count(`SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'`) == 0
	})
	source.Exec(`UPDATE tenants SET moved_to = 'eu3' WHERE id = $1`, tenant)
	refuses("TARGET is not the cell eu3")
	source.Exec(`UPDATE tenants SET moved_to = NULL WHERE id = $1`, tenant)
	source.Exec(ofThePage(t, "UPDATE tenants SET moved_to = 'eu2'", tenant))

	// 4. It is copied, whole.
	out, err := script()
	require.NoError(t, err, out)
	for table, n := range map[string]int{
		"tenants": 1, "orders": 7, "payments": 7, "refunds": 1, "checkouts": 1, "webhook_endpoints": 1,
	} {
		require.Equal(t, n, target.Count(`SELECT count(*) FROM `+table+` WHERE `+idColumn(table)+` = $1`, tenant), table+"\n"+out)
	}
	require.Equal(t, http.StatusCreated, to.PayUntilFinal("meanwhile", to.Order(), visa).Status, "of another tenant")

	// 5. It is served by the target.
	target.Exec(ofThePage(t, "UPDATE tenants SET moved_to = NULL, disabled_at = NULL WHERE id", tenant))
	var created struct {
		APIKey string `json:"api_key"`
	}
	require.NoError(t, json.Unmarshal(command(t, &target, "tenant", "key", "create", tenant), &created))
	require.True(t, strings.HasPrefix(created.APIKey, "payonce_eu2_"))
	here := to.As(world.Tenant{ID: tenant, APIKey: created.APIKey})
	require.Equal(t, http.StatusUnauthorized, to.As(source.Tenant).Get("/v1/orders").Status, "a key of the other cell")

	charges := len(source.Sim.Effects())
	for _, again := range []struct{ before, now world.Answer }{
		{payment, here.Pay("paid", paid, visa)},
		{toRefund, here.Pay("to-refund", refunded, visa)},
		{first, here.Post("/v1/payments/"+toRefund.ID()+"/refunds", "first-refund", `{"amount":300}`)},
		{refusal, here.Pay("decline", declined, "pm_card_visa_chargeDeclined")},
		{endpoint, here.Post("/v1/webhook-endpoints", "endpoint", `{"url":"https://shop.example.com/hooks"}`)},
	} {
		require.True(t, again.now.Replayed(), again.now)
		require.Equal(t, again.before.Identity(), again.now.Identity())
	}
	expired := here.Pay("expired", old.Get("order_id").(string), visa)
	require.Equal(t, http.StatusGone, expired.Status, "a key whose response was dropped is not executed again")
	require.Equal(t, old.ID(), expired.Problem().Resource.ID)
	require.Equal(t, "idempotency-key-mismatch", here.Pay("paid", refunded, visa).Code())
	require.Equal(t, "order-already-paid", here.Pay("another-key", paid, visa).Code())
	require.Len(t, source.Sim.Effects(), charges, "nothing was done at Stripe")

	rest := here.Post("/v1/payments/"+toRefund.ID()+"/refunds", "rest", `{}`)
	require.Equal(t, http.StatusCreated, rest.Status, rest)
	require.Equal(t, "succeeded", here.Capture("capture", reserved.ID(), 0).Get("status"))
	require.Equal(t, http.StatusCreated, here.PayUntilFinal("another-card", declined, visa).Status)
	fresh := here.PayUntilFinal("new", here.Order(), visa)
	require.Equal(t, http.StatusCreated, fresh.Status)
	require.Greater(t, strings.Count(string(here.Get("/v1/events?limit=100").Body), `"order.created"`), 6, "old and new ones")

	// Neither cell does what is the other's, and each is right.
	before, rows := len(source.Sim.Effects()), rowsOf(source, tenant)
	target.Until("all is finished", func() bool {
		return target.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`) == 0 &&
			target.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0
	})
	for cell, w := range map[string]*world.World{"eu1": source, "eu2": &target} {
		books := world.BooksOn(w)
		books.Reconcile()
		books.API.Complete()
		require.Empty(t, books.Discrepancies(), cell)
		out, err := w.Command([]string{"audit", "-json"}, settings(cell)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", cell, out)
	}
	require.Len(t, source.Sim.Effects(), before)
	require.Equal(t, rows, rowsOf(source, tenant), "what the target did is not recorded in the source")
	require.Equal(t, 7, countEffects(source, stripesim.EffectCharge)-2, "each order of the tenant's once, and two of the other's")

	_, err = script()
	require.Error(t, err, "a second copy")
	require.Equal(t, 1, target.Count(`SELECT count(*) FROM payments WHERE id = $1`, payment.ID()))
}

const visa = "pm_card_visa"

// ofThePage is the statement of docs/cells.md that begins so, for this tenant.
func ofThePage(t *testing.T, begins, tenant string) string {
	t.Helper()
	page, err := inventory.Read("docs/cells.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(page, "\n"+begins)
	require.True(t, ok, begins)
	rest, _, _ := strings.Cut(after, "\n")
	require.Contains(t, rest, "'ten_…'")
	return strings.ReplaceAll(begins+rest, "ten_…", tenant)
}

// rowsOf counts what a cell has of a tenant, and the changes of it.
func rowsOf(w *world.World, tenant string) string {
	return w.Text(`SELECT concat_ws(' ', (SELECT sum(version) FROM orders WHERE tenant_id = $1),
		(SELECT sum(version) FROM payments WHERE tenant_id = $1), (SELECT count(*) FROM outbox_events WHERE tenant_id = $1),
		(SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1))`, tenant)
}

func idColumn(table string) string {
	if table == "tenants" {
		return "id"
	}
	return "tenant_id"
}

func countEffects(w *world.World, kind string) (n int) {
	for _, e := range w.Sim.Effects() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// command runs a command of the service with the world's settings.
func command(t *testing.T, w *world.World, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
	defer cancel()
	cmd := w.Command(args)
	run := exec.CommandContext(ctx, cmd.Path, args...)
	run.Env, run.Dir = cmd.Env, cmd.Dir
	out, err := run.Output()
	require.NoError(t, err, args)
	return out
}

// TestPageListsTables: docs/cells.md says what becomes of each table's rows; one that is new is in neither list.
func TestPageListsTables(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	page, err := inventory.Read("docs/cells.md")
	require.NoError(t, err)
	rows, err := pool.Raw().Query(t.Context(), `SELECT c.relname, EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid
			AND (a.attname = 'tenant_id' OR c.relname = 'tenants' AND a.attname = 'id'))
		FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'goose%'`)
	require.NoError(t, err)
	defer rows.Close()
	copied, stays := section(t, page, "is copied"), section(t, page, "stays")
	n := 0
	for rows.Next() {
		var table string
		var ofTenant bool
		require.NoError(t, rows.Scan(&table, &ofTenant))
		in := map[bool]string{true: copied, false: stays}
		if table == "api_keys" {
			ofTenant = false // they name the cell that the tenant leaves
		}
		require.Contains(t, in[ofTenant], "`"+table+"`", "what becomes of its rows?")
		require.NotContains(t, in[!ofTenant], "`"+table+"`")
		n++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, n, strings.Count(copied, "`")/2+strings.Count(stays, "`")/2, "the page names a table that does not exist")
}

// section is the line of the page's table that begins so.
func section(t *testing.T, page, begins string) string {
	t.Helper()
	_, after, ok := strings.Cut(page, "\n| "+begins+" |")
	require.True(t, ok, begins)
	line, _, _ := strings.Cut(after, "\n")
	return line
}
