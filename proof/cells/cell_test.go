//go:build linux

package cells

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// cell is a whole deployment: a PostgreSQL server, a process with a broker in it, and an account at Stripe.
type cell struct {
	*world.World
	name     string
	postgres *devpg.Server
	addr     string // of the API
	settings []string
	process  *world.Process
	tenant   world.Tenant
}

// newCell makes one, as docs/cells.md says: migrated with CELL, and then its first tenant.
func newCell(t *testing.T, name string) *cell {
	t.Helper()
	server := dbtest.Server(t)
	dbtest.Migrated(t, server.URL)
	c := &cell{World: world.On(t, server.URL), name: name, postgres: server, addr: freeAddr(t)}
	c.settings = []string{
		"CELL=" + name, "HTTP_ADDR=" + c.addr, "ADMIN_ADDR=" + freeAddr(t), "STRIPE_WEBHOOK_SECRET=" + c.webhookSecret(),
		"BROKER_URL=embedded:" + filepath.Join(t.TempDir(), "broker"),
	}
	c.Exec("DELETE FROM api_keys")
	c.Exec("DELETE FROM tenants") // the world's own, whose key names no cell
	c.command("migrate")
	require.NoError(t, json.Unmarshal(c.command("tenant", "create", "shop", "-cell", name), &struct {
		TenantID *string `json:"tenant_id"`
		APIKey   *string `json:"api_key"`
	}{&c.tenant.ID, &c.tenant.APIKey}))
	require.Regexp(t, "^payonce_"+name+"_", c.tenant.APIKey)
	c.start()
	return c
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := port.Loopback(t.Context())
	require.NoError(t, err)
	return addr.String()
}

func (c *cell) webhookSecret() string { return "whsec_" + c.name }

// command runs a command of the service as the owner of the tables, and returns what it prints.
func (c *cell) command(words ...string) []byte {
	c.T.Helper()
	out, err := c.Command(words, "CELL="+c.name, "DATABASE_URL="+devpg.As(c.postgres.URL, "payonce_owner")).Output()
	require.NoError(c.T, err, words)
	return out
}

func (c *cell) start() { c.process = c.Process(world.ShortTimes(c.settings...)...) }

// hostOfWebhooks is where Stripe sends the cell's webhooks: to its own name, whose first label the router reads.
func (c *cell) hostOfWebhooks() string { return c.name + ".api.example.com" }

// sendWebhooksTo has the cell's Stripe send its webhooks to the router. What resolves the name is in between.
func (c *cell) sendWebhooksTo(router string) {
	c.T.Helper()
	target, err := url.Parse(router)
	require.NoError(c.T, err)
	internet := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = c.hostOfWebhooks()
	}})
	c.T.Cleanup(internet.Close)
	_, err = c.Sim.AddWebhookEndpoint(stripesim.DefaultKey, internet.URL+"/v1/webhooks/stripe", c.webhookSecret())
	require.NoError(c.T, err)
}

// kill ends the process and every process of PostgreSQL with SIGKILL.
func (c *cell) kill() {
	c.T.Helper()
	c.process.Kill()
	postmaster := c.postgres.PID()
	for _, pid := range append(childrenOf(c.T, postmaster), postmaster) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != syscall.ESRCH {
			require.NoError(c.T, err)
		}
	}
	require.NoError(c.T, c.postgres.Halt("immediate")) // waits for its end
}

// back starts what kill has ended.
func (c *cell) back() {
	c.T.Helper()
	require.NoError(c.T, c.postgres.Resume())
	c.start()
}

// finishes waits until nothing that was begun is open.
func (c *cell) finishes() {
	c.T.Helper()
	for what, open := range map[string]string{
		"keys":     `SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`,
		"webhooks": `SELECT count(*) FROM inbox_events WHERE done_at IS NULL`,
		"events":   `SELECT count(*) FROM outbox_events WHERE published_at IS NULL`,
	} {
		c.Until(c.name+" has no unfinished "+what, func() bool { return c.Count(open) == 0 })
	}
}

// childrenOf are the processes that a process has started.
func childrenOf(t testing.TB, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may have ended
		of, after, _ := strings.Cut(string(text), " (")
		_, after, _ = strings.Cut(after[max(0, strings.LastIndex(after, ")")):], " ") // behind the command's name
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(of)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// get sends a GET to the router, or past it to a process.
func get(t *testing.T, base, key, path string) (*http.Response, problem) {
	t.Helper()
	return send(t, http.MethodGet, base, key, path, "")
}

// problem is a response of the API that says what is wrong.
type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	Retryable                 bool
	RequestID                 string `json:"request_id"`
}

// audit is the service's own.
func (c *cell) audit() {
	c.T.Helper()
	out, err := c.Command([]string{"audit", "-json"}, c.settings...).CombinedOutput()
	require.NoError(c.T, err, string(out))
}
