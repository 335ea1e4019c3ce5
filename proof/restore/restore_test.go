//go:build unix

package restore

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

const visa, careful = "pm_card_visa", "pm_card_authenticationRequired"

var fence = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")

// commands are those of the handbook's section, in their order, without comments.
func commands(t *testing.T) (all []string) {
	t.Helper()
	page, err := inventory.Read("docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(page, "\n## Restore drill\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range fence.FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(strings.TrimSpace(line), "    #")
			all = append(all, command)
		}
	}
	return all
}

// page is the handbook at the terminal of its reader.
type page struct {
	*testing.T
	root string
	env  []string
	left []string // commands that are not typed yet
}

// types types the next command, which must begin so, with real values in the place of the page's. It returns what the
// command prints, and its exit code.
func (p *page) types(begins string, exit int, replace ...string) string {
	p.Helper()
	require.NotEmpty(p, p.left, "the page has no more commands")
	line := p.left[0]
	p.left = p.left[1:]
	require.True(p, strings.HasPrefix(line, begins), "the next command is %s", line)
	for n := 0; n < len(replace); n += 2 {
		require.Contains(p, line, replace[n])
	}
	ctx, cancel := context.WithTimeout(p.Context(), world.Patience)
	defer cancel()
	// The exit code of `go run` is 1 for each of the program's that is not 0.
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.NewReplacer(replace...).Replace(line))
	cmd.Dir, cmd.Env = p.root, p.env
	out, err := cmd.CombinedOutput()
	if exit == 0 {
		require.NoError(p, err, "%s\n%s", line, out)
	}
	require.Equal(p, exit, cmd.ProcessState.ExitCode(), "%s\n%s", line, out)
	return string(out)
}

// receiver is an endpoint that follows docs/receive-webhooks.md: it applies each event once, and of two events of a subject
// the newer.
type receiver struct {
	mu       sync.Mutex
	done     map[string]bool
	sequence map[string]string
	status   map[string]string // of orders and payments
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var event struct {
		Subject, Sequence string
		Data              struct{ Status string }
	}
	if err := json.Unmarshal(body, &event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("Webhook-Id")
	if r.done[id] {
		return
	}
	r.done[id] = true
	newer := len(event.Sequence) > len(r.sequence[event.Subject]) ||
		len(event.Sequence) == len(r.sequence[event.Subject]) && event.Sequence > r.sequence[event.Subject]
	if newer {
		r.sequence[event.Subject], r.status[event.Subject] = event.Sequence, event.Data.Status
	}
}

func (r *receiver) of(subject string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status[subject]
}

// TestRestoreOfTheHandbook: the page's commands, in their order, bring back what the lost life has done: payments with
// both kinds of capture, one whose customer was at the 3-D Secure page, and a checkout between its reservation and its
// payment. A tenant that was made since, and a key that was revoked, are what a person repairs.
func TestRestoreOfTheHandbook(t *testing.T) {
	t.Parallel()
	installed.Need(t, "bash", "pg_dump", "pg_restore", "psql", "createdb", "dropdb")
	empty := dbtest.Empty(t) // what a test keeps in its database can be dumped by no owner
	dbtest.Migrated(t, empty)
	w := world.On(t, empty)
	root, err := inventory.Root()
	require.NoError(t, err)
	at, err := url.Parse(w.URL)
	require.NoError(t, err)
	name := strings.TrimPrefix(at.Path, "/") + "_restored"
	at.Path = "/" + name
	copied := at.String()
	password, _ := at.User.Password()
	broker := "embedded:" + filepath.Join(t.TempDir(), "broker")
	h := &page{T: t, root: root, left: commands(t), env: append(os.Environ(),
		"PGHOST="+at.Hostname(), "PGPORT="+at.Port(), "PGUSER="+at.User.Username(), "PGPASSWORD="+password,
		"PGDATABASE=postgres", "OWNER_URL="+devpg.As(w.URL, "payonce_owner"), "NEW_ADMIN_URL="+w.URL,
		"RESTORED_ADMIN_URL="+copied, "RESTORED_OWNER_URL="+devpg.As(copied, "payonce_owner"),
		"RESTORED_URL="+devpg.As(copied, "payonce_service"), "DATA_KEY="+world.DataKey,
		"STRIPE_SECRET_KEY="+stripesim.DefaultKey, "STRIPE_API_BASE="+w.StripeURL, "BROKER_URL="+broker,
		"ADMIN_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0", "STRIPE_WEBHOOK_SECRET="+world.WebhookSecret)}
	t.Cleanup(func() {
		drop := exec.Command("dropdb", "--if-exists", "--force", name)
		drop.Env = h.env
		_ = drop.Run()
	})
	hooks := &receiver{done: map[string]bool{}, sequence: map[string]string{}, status: map[string]string{}}
	endpoint := httptest.NewServer(hooks)
	t.Cleanup(endpoint.Close)
	settings := []string{"BROKER_URL=" + broker, "NOTIFY_PRIVATE_ADDRESSES=true"}

	// Before the backup.
	dies := w.Process("FAULT_AT=create_checkout/stock_reserved=kill", "BROKER_URL=embedded:"+filepath.Join(t.TempDir(), "beside"))
	require.Equal(t, http.StatusOK, dies.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
	dies.Post("/v1/checkouts", "checkout", shop.TwoTeas(visa))
	require.Equal(t, -1, dies.Wait(world.Patience))
	before := w.Process(settings...)
	require.Equal(t, http.StatusCreated, before.Post("/v1/webhook-endpoints", "endpoint", `{"url":"`+endpoint.URL+`"}`).Status)
	paid, captured, waiting, held, canceled := before.Order(), before.Order(), before.Order(), before.Order(), before.Order()
	authorized := before.Authorize("authorized", captured, visa)
	require.Equal(t, http.StatusCreated, authorized.Status, authorized)
	waits := before.Pay("waiting", waiting, careful)
	require.Equal(t, "requires_action", waits.Get("status"), waits)
	revoked := h.api(w.URL, "tenant", "key", "create", w.Tenant.ID)["api_key"]
	backup := time.Now().UTC()
	dump := filepath.Join(t.TempDir(), "payonce.dump")
	h.types("pg_dump ", 0, "payonce.dump", dump)

	// What is lost.
	require.Equal(t, http.StatusCreated, before.PayUntilFinal("paid", paid, visa).Status)
	require.Equal(t, http.StatusOK, before.Capture("capture", authorized.ID(), 600).Status)
	require.NoError(t, w.Sim.CompleteAuthentication(waits.Get("stripe", "payment_intent").(string), true))
	require.Equal(t, http.StatusCreated, before.PayUntilFinal("waiting", waiting, careful).Status)
	require.Equal(t, http.StatusCreated, before.Authorize("held", held, visa).Status)
	require.Equal(t, http.StatusOK, before.Post("/v1/orders/"+canceled+"/cancel", "cancel", `{}`).Status)
	w.ExpireLeases()
	var bought world.Answer
	w.Until("the checkout is completed", func() bool {
		bought = before.Post("/v1/checkouts", "checkout", shop.TwoTeas(visa))
		return bought.Final()
	})
	require.Equal(t, "completed", bought.Get("status"), bought)
	h.api(w.URL, "tenant", "key", "revoke", w.Tenant.ID, revoked[len(revoked)-4:])
	since := h.api(w.URL, "tenant", "create", "made since the backup")
	lost := before.As(world.Tenant{ID: since["tenant_id"], APIKey: since["api_key"]})
	require.Equal(t, http.StatusCreated, lost.PayUntilFinal("lost", lost.Order(), visa).Status)
	w.Until("the receiver knows that the order is canceled", func() bool { return hooks.of(canceled) == "canceled" })
	events := before.Get("/v1/events?limit=100").Get("data").([]any)
	cursor := events[len(events)-1].(map[string]any)["id"].(string)
	charges := w.Sim.ChargeCount("")
	before.Kill()

	// The page.
	h.types("createdb ", 0, "payonce_restored", name)
	h.types("psql ", 0)
	h.types("pg_restore ", 0, "payonce.dump", dump)
	h.types(`DATABASE_URL="$RESTORED_OWNER_URL" go run ./cmd/api migrate`, 0)
	require.Contains(t, h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api migrate status`, 0), "applied")
	require.Regexp(t, `(?m)^ok +database.rights (?s:.*)^ok +database.encryption `, h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api doctor`, 0))
	require.Regexp(t, `(?m)^I8e .* [1-9]`, h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api audit`, 1))
	says := h.types(`DATABASE_URL="$RESTORED_OWNER_URL" go run ./cmd/api restored`, 1, "2026-11-29T03:00:00Z", backup.Format(time.RFC3339))
	require.Regexp(t, `(?m)^1 reservations are held`, says)
	require.Contains(t, says, "api tenant create NAME -id "+since["tenant_id"])
	require.NotContains(t, says, "-id "+w.Tenant.ID)
	var brought struct {
		TenantID string `json:"tenant_id"`
		APIKey   string `json:"api_key"`
	}
	out := h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api tenant create`, 0, "ten_…", since["tenant_id"])
	require.NoError(t, json.Unmarshal([]byte(out), &brought), out)
	require.Equal(t, since["tenant_id"], brought.TenantID)
	h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api tenant key revoke`, 0, "ten_…", w.Tenant.ID, "HINT", revoked[len(revoked)-4:])
	h.serves()
	r := w.Process(append(settings, "DATABASE_URL="+devpg.As(copied, "payonce_service"))...)
	order := func(id string) any { return r.Get("/v1/orders/" + id).Get("status") }
	for id, status := range map[string]string{paid: "paid", captured: "paid", waiting: "paid", held: "authorized"} {
		w.Until("what was lost of "+id+" is here", func() bool { return order(id) == status })
	}
	require.Regexp(t, `^[1-9][0-9]* events will be sent again`, h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api relay replay`, 0))

	// The clients.
	w.Until("the checkout is completed again", func() bool {
		bought = r.Post("/v1/checkouts", "checkout", shop.TwoTeas(visa))
		return bought.Final()
	})
	require.Equal(t, shop.AllDone, shop.SagaOf(t, bought).Course())
	require.JSONEq(t, `{"sku":"tea","available":8,"reserved":0}`, string(r.Get("/v1/stock/tea").Body))
	require.Equal(t, http.StatusBadRequest, r.Get("/v1/events?after="+cursor).Status)
	require.Equal(t, "order-already-paid", r.Pay("paid", paid, visa).Code())
	require.Equal(t, http.StatusCreated, r.PayUntilFinal("pays-after-all", canceled, visa).Status)
	require.Equal(t, charges+1, w.Sim.ChargeCount(""), "a card was charged again")
	require.Equal(t, http.StatusUnauthorized, r.As(world.Tenant{APIKey: revoked}).Get("/v1/orders").Status)
	require.Equal(t, http.StatusOK, r.As(world.Tenant{APIKey: brought.APIKey}).Get("/v1/orders").Status)

	// The receiver has the truth.
	for _, path := range []string{"/v1/orders", "/v1/payments"} {
		for _, object := range r.Get(path + "?limit=100").Get("data").([]any) {
			id, status := object.(map[string]any)["id"].(string), object.(map[string]any)["status"].(string)
			w.Until("the receiver knows that "+id+" is "+status, func() bool { return hooks.of(id) == status })
		}
	}
	left := h.types(`DATABASE_URL="$RESTORED_URL" go run ./cmd/api audit`, 1)
	require.Contains(t, left, since["tenant_id"], "the charge of the lost order")
	require.Regexp(t, `(?m)^I8e .* 1$`, left)
	require.Empty(t, h.left, "commands of the page that are not typed")
}

// serves takes the command that serves off the page: the test starts the same program, on an address that it is told.
func (p *page) serves() {
	p.Helper()
	require.Equal(p, `DATABASE_URL="$RESTORED_URL" go run ./cmd/api serve`, p.left[0])
	p.left = p.left[1:]
}

// api runs a command of the program on a database, and returns the JSON that it prints.
func (p *page) api(dsn string, args ...string) (printed map[string]string) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), "go", append([]string{"run", "./cmd/api"}, args...)...)
	cmd.Dir, cmd.Env = p.root, append(p.env, "DATABASE_URL="+devpg.As(dsn, "payonce_service"))
	out, err := cmd.Output()
	require.NoError(p, err, "%s", out)
	_ = json.Unmarshal(out, &printed)
	return printed
}
