package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

const (
	webhookSecret = "whsec_of_the_attacked"
	adminToken    = "token-of-the-attacked-operator"
	dataKey       = "a2V5IG9mIHRoZSBhdHRhY2tlZCBzZXJ2aWNlIDEyMzQ="
)

// site is what is attacked: the program as it is deployed, on loopback, with two tenants. One is the victim; the other
// attacks, where an attacker has an account.
type site struct {
	*process.Stage
	long     bool // the long form, by night: more of everything
	api      *process.API
	pool     *postgres.Pool
	server   string // the database server's URL, as a superuser
	database string // of a database on it
	service  string // the same as the service has it
	sim      *stripesim.Sim
	stripe   string // base URL of the simulator
	broker   string
	canary   *canary
	traces   *collector
	victim   tenant
	attacker tenant
	owned    owned
}

type tenant struct {
	id string
	client
}

// owned is what the victim has.
type owned struct{ order, payment, refund, checkout, endpoint, delivery, key, sku string }

func open(ctx context.Context, long bool, say func(string, ...any)) (_ *site, err error) {
	s := &site{long: long, api: &process.API{}}
	if s.Stage, err = process.NewStage("payonce-attack"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(true))
		}
	}()
	program := filepath.Join(s.Dir, "api")
	if err := process.Build(ctx, "cmd/api", program); err != nil {
		return nil, err
	}
	pg, err := devpg.Start(ctx, devpg.Options{URL: os.Getenv("TEST_DATABASE_URL"), URLVar: "TEST_DATABASE_URL", Log: say})
	if err != nil {
		return nil, err
	}
	s.Later(pg.Stop)
	if s.canary, err = startCanary(s.Stage); err != nil {
		return nil, err
	}
	if s.traces, err = startCollector(s.Stage); err != nil {
		return nil, err
	}
	// Nothing of the service may reach the canary, not even as a proxy.
	if err := s.install(ctx, program, pg.URL, "HTTPS_PROXY="+s.canary.url(), "HTTP_PROXY="+s.canary.url(),
		"OTEL_EXPORTER_OTLP_ENDPOINT="+s.traces.url); err != nil {
		return nil, err
	}
	return s, s.furnish(ctx)
}

// another runs an attack on another installation of the same program, on a database server that may be harmed, or in a
// database of its own on the same server. Its log is kept if the attack did not hold.
func (s *site) another(ctx context.Context, server string, settings []string,
	attack func(*site) (string, error)) (seen string, err error) {
	b := &site{long: s.long, canary: s.canary}
	if b.Stage, err = process.NewStage("payonce-attack"); err != nil {
		return "", err
	}
	log := b.Log.Name
	defer func() {
		held := err == nil
		if err = errors.Join(err, b.Strike(!held)); err != nil {
			err = fmt.Errorf("%w (it logged to %s)", err, log)
		}
	}()
	if err := b.install(ctx, s.api.Program, server, settings...); err != nil {
		return "", err
	}
	return attack(b)
}

// install starts the service on a database of its own, with two tenants.
func (s *site) install(ctx context.Context, program, server string, settings ...string) (err error) {
	if err := s.makeDatabase(ctx, server); err != nil {
		return err
	}
	if s.sim, err = stripesim.New(stripesim.Options{}); err != nil {
		return err
	}
	s.Later(s.sim.Close)
	if s.stripe, err = s.Listen(s.sim.Handler()); err != nil {
		return err
	}
	events, err := broker.Open(ctx, "embedded:"+filepath.Join(s.Dir, "broker")+"?listen="+process.AnyPort,
		broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	s.Later(events.Close)
	s.broker = "nats://" + events.(interface{ Addr() string }).Addr()
	s.api = &process.API{Child: process.Child{Name: "API process", Program: program, Args: []string{"serve"},
		Group: s.Group, Log: s.Log, Env: append([]string{
			"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.Dir, "DATABASE_URL=" + s.service,
			"BROKER_URL=" + s.broker,
			"STRIPE_API_BASE=" + s.stripe, "STRIPE_SECRET_KEY=" + stripesim.DefaultKey,
			"STRIPE_WEBHOOK_SECRET=" + webhookSecret, "ADMIN_TOKEN=" + adminToken, "DATA_KEY=" + dataKey,
		}, settings...)}}
	s.Later(s.api.Stop)
	if err := s.api.Start(ctx); err != nil {
		return err
	}
	if _, err := s.sim.AddWebhookEndpoint(stripesim.DefaultKey, s.api.URL+"/v1/webhooks/stripe", webhookSecret); err != nil {
		return err
	}
	for _, t := range []*tenant{&s.victim, &s.attacker} {
		if *t, err = s.tenant(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) makeDatabase(ctx context.Context, server string) error {
	s.server = server
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("the database's URL: %w", err)
	}
	admin, err := postgres.Open(ctx, server, postgres.Options{MaxConn: 1})
	if err != nil {
		return err
	}
	s.Later(func() error { admin.Close(); return nil })
	name := "payonce_attack_" + strings.ToLower(strings.TrimPrefix(ids.New(ids.Tenant), "ten_"))
	if _, err := admin.Raw().Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("make a database for this run: %w", err)
	}
	s.Later(func() error {
		_, err := admin.Raw().Exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		return err
	})
	u.Path = "/" + name
	s.database = u.String()
	box, err := sealed.New(dataKey)
	if err != nil {
		return err
	}
	if s.pool, err = postgres.Open(ctx, s.database, postgres.Options{MaxConn: 2, Box: box}); err != nil {
		return err
	}
	s.Later(func() error { s.pool.Close(); return nil })
	roles, err := devpg.Migrate(ctx, s.database)
	s.service = roles.Service
	if err == nil {
		err = s.pool.IntroduceKey(postgres.ForAllTenants(ctx, "introduction of DATA_KEY"))
	}
	return err
}

// form is the first number in the short form of an attack, the second in the long one.
func (s *site) form(short, long int) int {
	if s.long {
		return long
	}
	return short
}

// tenant makes one, as `api tenant create` does.
func (s *site) tenant(ctx context.Context) (tenant, error) {
	id := ids.New(ids.Tenant)
	err := s.pool.InTx(ctx, func(q *db.Queries) error {
		return q.TenantCreate(ctx, db.TenantCreateParams{ID: id, Name: "attack",
			FingerprintSecret: s.pool.Box().Seal(sealed.FingerprintSecret(id), make([]byte, 32))})
	})
	if err != nil {
		return tenant{}, err
	}
	key, err := s.apiKey(ctx, id, false)
	return tenant{id, client{base: s.api.URL, key: key}}, err
}

// apiKey makes one, as `api tenant key create` does.
func (s *site) apiKey(ctx context.Context, tenantID string, readOnly bool) (string, error) {
	key, hash, hint := httpapi.NewAPIKey(tenantID)
	return key, s.pool.InTx(ctx, func(q *db.Queries) error {
		return q.APIKeyCreate(ctx,
			db.APIKeyCreateParams{TenantID: tenantID, KeyHash: hash, Hint: hint, ReadOnly: readOnly})
	})
}

// furnish gives the victim one of everything.
func (s *site) furnish(ctx context.Context) error {
	const item = `"currency":"usd","items":[{"sku":"sku-of-victim","quantity":1,"unit_amount":1000}]`
	v := s.victim
	s.owned.key, s.owned.sku = "key-of-the-victim", "sku-of-victim"
	for _, step := range []struct {
		want                    int
		method, path, key, body string
		id                      *string
	}{
		{200, "PUT", "/v1/stock/sku-of-victim", "", `{"available":9}`, nil},
		{201, "POST", "/v1/orders", "order", "{" + item + "}", &s.owned.order},
		{201, "POST", "/v1/payments", s.owned.key, `{"order_id":"ORDER","payment_method":"pm_card_visa"}`, &s.owned.payment},
		{201, "POST", "/v1/payments/PAYMENT/refunds", "refund", `{"amount":100}`, &s.owned.refund},
		{201, "POST", "/v1/checkouts", "checkout", `{"payment_method":"pm_card_visa",` + item + "}", &s.owned.checkout},
		// It is disabled, so nothing is sent, and the test event is skipped.
		{201, "POST", "/v1/webhook-endpoints", "endpoint", `{"url":"https://victim.invalid/hooks"}`, &s.owned.endpoint},
		{200, "POST", "/v1/webhook-endpoints/ENDPOINT/disable", "disable", "", nil},
		{202, "POST", "/v1/webhook-endpoints/ENDPOINT/test", "test", "", &s.owned.delivery},
	} {
		object, err := v.must(ctx, step.want, step.method, s.owned.in(step.path), step.key, s.owned.in(step.body))
		if err != nil {
			return fmt.Errorf("what the victim owns: %w", err)
		}
		if step.id != nil {
			*step.id, _ = object["id"].(string)
		}
	}
	return nil
}

// in names what the victim has in a path or a body.
func (o owned) in(text string) string {
	return strings.NewReplacer("ORDER", o.order, "PAYMENT", o.payment, "REFUND", o.refund, "CHECKOUT", o.checkout,
		"ENDPOINT", o.endpoint, "SKU", o.sku, "KEY", o.key).Replace(text)
}

// rows is a digest of everything that a tenant has: no attack may change it.
func (s *site) rows(ctx context.Context, tenantID string) (digest string, err error) {
	err = s.pool.Raw().QueryRow(ctx, `
		SELECT md5(concat(
			(SELECT string_agg(o::text, ';' ORDER BY id) FROM orders o WHERE tenant_id = $1),
			(SELECT string_agg(p::text, ';' ORDER BY id) FROM payments p WHERE tenant_id = $1),
			(SELECT string_agg(r::text, ';' ORDER BY id) FROM refunds r WHERE tenant_id = $1),
			(SELECT string_agg(c::text, ';' ORDER BY id) FROM checkouts c WHERE tenant_id = $1),
			(SELECT string_agg(w::text, ';' ORDER BY id) FROM webhook_endpoints w WHERE tenant_id = $1),
			(SELECT string_agg(x::text, ';' ORDER BY endpoint_id, version) FROM webhook_secrets x WHERE tenant_id = $1),
			(SELECT string_agg(d.id || d.attempts, ';' ORDER BY id) FROM webhook_deliveries d WHERE tenant_id = $1),
			(SELECT string_agg(k.key || k.recovery_point, ';' ORDER BY key) FROM idempotency_keys k WHERE tenant_id = $1),
			(SELECT string_agg(s::text, ';' ORDER BY sku) FROM stock s WHERE tenant_id = $1)))`, tenantID).Scan(&digest)
	return digest, err
}

// still is rows once they have not changed for a second: what the attack before left behind ends in the meantime.
func (s *site) still(ctx context.Context, tenantID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for last := ""; ; {
		now, err := s.rows(ctx, tenantID)
		if err != nil {
			return "", fmt.Errorf("wait until nothing changes: %w", err)
		}
		if now == last {
			return now, nil
		}
		last = now
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// untouched runs an attack, and checks that it changed nothing of the victim's.
func (s *site) untouched(ctx context.Context, attack func() error) error {
	before, err := s.still(ctx, s.victim.id)
	if err != nil {
		return err
	}
	if err := attack(); err != nil {
		return err
	}
	after, err := s.rows(ctx, s.victim.id)
	if err == nil && after != before {
		err = didNotHold("rows of the victim have changed")
	}
	return err
}

// routes are the operations of the service's own OpenAPI document.
func (s *site) routes(ctx context.Context) (map[string][]string, error) {
	a, err := s.victim.send(ctx, "GET", "/openapi.json", "", nil)
	if err != nil {
		return nil, err
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(a.body), &document); err != nil {
		return nil, fmt.Errorf("read /openapi.json: %w", err)
	}
	routes := map[string][]string{}
	for path, methods := range document.Paths {
		for method := range methods {
			switch method = strings.ToUpper(method); method {
			case "GET", "POST", "PUT", "DELETE", "PATCH":
				routes[path] = append(routes[path], method)
			}
		}
	}
	if len(routes) < 20 {
		return nil, fmt.Errorf("/openapi.json names %d paths", len(routes))
	}
	return routes, nil
}
