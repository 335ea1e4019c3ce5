package operator_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

const adminToken = "only-for-tests-0123456789abcdef"

// desk is a world with a service and the operator's page. No loop runs: each test runs
// the completer when it needs it.
type desk struct {
	*world.World
	api        *world.Local
	reconciler *payments.Reconciler
	url        string // of the page
}

func newDesk(t *testing.T, token string) *desk {
	t.Helper()
	w := world.New(t)
	d := &desk{World: w, api: w.Local(world.LocalOptions{})}
	d.reconciler = payments.NewReconciler(d.api.Payments, nil)
	d.url = d.page(t, w.URL, token)
	return d
}

// page serves the page for a database.
func (d *desk) page(t *testing.T, database, token string) string {
	t.Helper()
	pool, err := postgres.Open(context.Background(), database,
		postgres.Options{Name: "operator", MaxConn: operator.Connections, Statement: operator.Statement})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	server := httptest.NewServer(operator.New(operator.Options{Pool: pool, Payments: d.api.Payments, Token: token,
		Retention: 72 * 3600e9}))
	t.Cleanup(server.Close)
	return server.URL
}

// person is an HTTP client with the cookies of a browser and none of its protections.
type person struct {
	t      testing.TB
	url    string
	client *http.Client
}

func (d *desk) person(t testing.TB) *person {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &person{t: t, url: d.url, client: &http.Client{Jar: jar}}
}

// signedIn is a person who has signed in with the token.
func (d *desk) signedIn(t testing.TB, name string) *person {
	t.Helper()
	p := d.person(t)
	a := p.post("/operator/login", url.Values{"actor": {name}, "token": {adminToken}})
	require.Equal(t, http.StatusOK, a.status, a.body)
	return p
}

// page is a response after all redirects.
type page struct {
	status int
	path   string
	body   string
	header http.Header
}

// says is the page's visible text.
func (p page) says() string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(p.body, " ")
	return strings.NewReplacer("&#39;", "'", "&#34;", `"`, "&amp;",
		"&").Replace(strings.Join(strings.Fields(text), " "))
}

// field is the value of a hidden field.
func (p page) field(name string) string {
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(p.body)
	if m == nil {
		return ""
	}
	return m[1]
}

func (p *person) do(method, path string, form url.Values, header ...string) page {
	p.t.Helper()
	a, err := p.try(method, path, form, header...)
	require.NoError(p.t, err)
	return a
}

func (p *person) try(method, path string, form url.Values, header ...string) (page, error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return page{}, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return page{res.StatusCode, res.Request.URL.RequestURI(), string(body), res.Header}, err
}

func (p *person) get(path string, header ...string) page {
	p.t.Helper()
	return p.do(http.MethodGet, path, nil, header...)
}

func (p *person) post(path string, form url.Values, header ...string) page {
	p.t.Helper()
	return p.do(http.MethodPost, path, form, header...)
}

// form is the form of an action with a reason filled in.
func (p *person) form(kind, tenant, id, of string) url.Values {
	p.t.Helper()
	a := p.get("/operator/act?" + url.Values{"kind": {kind}, "tenant": {tenant}, "id": {id}, "of": {of}}.Encode())
	require.Equal(p.t, http.StatusOK, a.status, a.body)
	form := url.Values{"reason": {"the customer called"}, "csrf": {a.field("csrf")}, "action": {a.field("action")},
		"kind": {kind}, "tenant": {tenant}, "id": {id}, "of": {of}}
	if a.field("action") == "" { // Not possible, and the page says why. The form may still be submitted.
		require.Contains(p.t, a.says(), "Not possible.")
		form.Set("csrf", p.get("/operator").field("csrf"))
		form.Set("action", payments.NewActionID())
	}
	return form
}

// act fills in an action's form and submits it.
func (p *person) act(kind, tenant, id, of string) page {
	p.t.Helper()
	return p.post("/operator/act", p.form(kind, tenant, id, of))
}

// deaf makes Stripe charge the money and not respond from then on.
func (d *desk) deaf() {
	d.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop, Times: -1})
	d.Sim.Inject(stripesim.Fault{Op: "*.get", Kind: stripesim.Refuse, Status: http.StatusBadGateway, Times: -1})
}

// unknown is a payment with an unknown outcome; it returns its id.
func (d *desk) unknown(key string) (payment, order string) {
	d.T.Helper()
	d.deaf()
	order = d.api.Order()
	a := d.api.Pay(key, order, "pm_card_visa")
	require.Equal(d.T, http.StatusAccepted, a.Status, a)
	return a.ID(), order
}

// parked is a payment about which Stripe has not responded for two days.
func (d *desk) parked(key string) (payment, order string) {
	d.T.Helper()
	payment, order = d.unknown(key)
	d.Exec("UPDATE idempotency_keys SET created_at = created_at - interval '49 hours' WHERE key = $1", key)
	d.api.Complete()
	require.Equal(d.T, 1, d.Count("SELECT count(*) FROM idempotency_keys WHERE key = $1 AND parked_at IS NOT NULL",
		key), "the completer parked it")
	return payment, order
}

// stripe calls the simulator directly, as Stripe's dashboard would.
func (d *desk) stripe(method, path string, form url.Values) string {
	d.T.Helper()
	req, err := http.NewRequest(method, d.StripeURL+path, strings.NewReader(form.Encode()))
	require.NoError(d.T, err)
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(d.T, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(d.T, err)
	require.Equal(d.T, http.StatusOK, res.StatusCode, string(body))
	return regexp.MustCompile(`"id": ?"((?:pi|re)_[^"]*)"`).FindStringSubmatch(string(body))[1]
}

// ghost is a charge at Stripe that matches no payment; it returns the intent.
func (d *desk) ghost(order string) string { return d.ghostOf(order, "1000", "pm_card_visa") }

func (d *desk) ghostOf(order, amount, card string) string {
	d.T.Helper()
	return d.stripe(http.MethodPost, "/v1/payment_intents", url.Values{
		"amount": {amount}, "currency": {"usd"}, "payment_method_types[]": {"card"}, "payment_method": {card},
		"confirm":             {"true"},
		"metadata[tenant_id]": {d.Tenant.ID}, "metadata[order_id]": {order},
	})
}

func (d *desk) reconcile() {
	d.T.Helper()
	d.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	for {
		n, err := d.reconciler.RunOnce(context.Background())
		require.NoError(d.T, err)
		if n == 0 {
			return
		}
	}
}

func hash(key string) string { return idempotency.HashForLog(key) }

// actions is the audit trail, oldest first.
func (d *desk) actions() string {
	return d.Text(`SELECT string_agg(concat_ws(' ', actor, kind, subject, outcome), '; ' ORDER BY created_at)
		FROM operator_actions`)
}
