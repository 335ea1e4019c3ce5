package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/notifier"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
)

// secretsInOutputs: after everything that was tried, no secret stands where it may be read.
var secretsInOutputs = attack{
	name: "secrets in outputs", who: "who reads logs, metrics, traces, profiles, pages, events, the database or the process list",
	tries: "Stripe's key, the webhook secrets, API keys, the admin token, the database's password and clients' secrets in each, and the card number that was sent; the process's environment as another user",
	holds: "none is there but where it is used; of API keys the database has a hash; the environment is the process's own",
	run: func(ctx context.Context, s *site) (string, error) {
		clients, err := s.clientSecret(ctx)
		if err != nil {
			return "", err
		}
		secrets := map[string]string{"Stripe's key": stripesim.DefaultKey, "the webhook secret": webhookSecret,
			"the victim's API key": s.victim.key, "the attacker's API key": s.attacker.key, "the admin token": adminToken,
			"a client's secret": clients, "a card number": sentCard,
			"a tenant's webhook secret": endpointSecret, "the bytes of it": "0123456789abcdef0123456789abcdef"}
		if u, err := url.Parse(s.database); err == nil && u.User != nil {
			if password, _ := u.User.Password(); len(password) > 3 {
				secrets["the database's password"] = password
			}
		}
		l := lookout{secrets: secrets, outputs: map[string]bool{}}
		if err := errors.Join(s.outputs(ctx, l), s.tables(ctx, l)); err != nil {
			return "", err
		}
		if err := s.environmentIsItsOwn(); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d secrets in none of %d outputs", len(secrets), len(l.outputs)), nil
	},
}

// lookout reads what somebody may read, in pieces: a table may be larger than memory.
type lookout struct {
	secrets map[string]string // by their names
	outputs map[string]bool   // that were read
}

func (l lookout) read(where, text string) error {
	if text == "" {
		return fmt.Errorf("%s: nothing was read", where)
	}
	l.outputs[where] = true
	for what, secret := range l.secrets {
		if strings.Contains(text, secret) && !slices.Contains(homes[what], where) {
			return didNotHold("%s is in %s", what, where)
		}
	}
	return nil
}

// homes are the outputs that have a secret because it is used from there. A client's secret is for the customer whose
// payment waits: the tenant's own view of the payment has it, and the row that it is read from. A tenant's is sealed if
// there is a DATA_KEY, and here there is none.
var homes = map[string][]string{
	"a client's secret": {"payments", "table payments"},
	"the bytes of it":   {"table webhook_secrets"},
}

// environmentIsItsOwn compares the rights to the process's environment, which has every secret.
func (s *site) environmentIsItsOwn() error {
	info, err := os.Stat(filepath.Join("/proc", fmt.Sprint(s.api.PID()), "environ"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // not Linux
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = didNotHold("others may read the process's environment: %s", info.Mode())
	}
	return err
}

// clientSecret is that of a payment that waits for the customer.
func (s *site) clientSecret(ctx context.Context) (string, error) {
	order, err := s.victim.must(ctx, 201, "POST", "/v1/orders", "waits",
		`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":1000}]}`)
	if err != nil {
		return "", err
	}
	payment, err := s.victim.must(ctx, 202, "POST", "/v1/payments", "waits-for-the-customer",
		fmt.Sprintf(`{"order_id":"%s","payment_method":"pm_card_threeDSecure2Required"}`, order["id"]))
	if err != nil {
		return "", err
	}
	next, _ := payment["next_action"].(map[string]any)
	secret, _ := next["client_secret"].(string)
	if secret == "" {
		return "", fmt.Errorf("a payment that waits has no client secret: %v", payment)
	}
	return secret, nil
}

// outputs are what somebody may read without the database.
func (s *site) outputs(ctx context.Context, l lookout) error {
	cookie, err := s.signIn(ctx)
	if err != nil {
		return err
	}
	if err := notifier.SetEndpoint(ctx, s.pool, s.victim.id, "https://victim.invalid/hooks", endpointSecret); err != nil {
		return err
	}
	profiles := client{base: s.admin().base, key: adminToken}
	for where, from := range map[string]struct {
		client
		path string
	}{
		"the metrics":             {s.admin(), "/metrics"},
		"the operator's page":     {s.admin(), "/operator"},
		"a payment's page":        {s.admin(), s.owned.in("/operator/objects/" + s.victim.id + "/PAYMENT")},
		"events":                  {s.victim.client, "/v1/events?limit=100"},
		"payments":                {s.victim.client, "/v1/payments?limit=100"},
		"the history of a key":    {s.victim.client, "/v1/idempotency-keys/" + s.owned.key},
		"the OpenAPI document":    {s.victim.client, "/openapi.json"},
		"goroutines of a profile": {profiles, "/debug/pprof/goroutine?debug=2"},
		"the heap's profile":      {profiles, "/debug/pprof/heap?debug=1"},
		"what was allocated":      {profiles, "/debug/pprof/allocs?debug=1"},
		"an execution trace":      {profiles, "/debug/pprof/trace?seconds=1"},
		"the command line":        {profiles, "/debug/pprof/cmdline"},
	} {
		a, err := from.send(ctx, "GET", from.path, "", map[string][]string{"Cookie": {cookie}})
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("read %s: %d", where, a.status)
		}
		if err := errors.Join(err, l.read(where, a.body)); err != nil {
			return err
		}
	}
	traces, err := s.traces.received(ctx)
	if err := errors.Join(err, l.read("the traces", traces)); err != nil {
		return err
	}
	log, err := os.ReadFile(s.Log.Name)
	if err := errors.Join(err, l.read("the log", string(log))); err != nil {
		return err
	}
	if line, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(s.api.PID()), "cmdline")); err == nil { // Linux
		return l.read("the process list", string(line))
	}
	return nil
}

// tables reads each table of the database, as a dump has it, and with the text of its bytes, which a dump has in
// hexadecimal.
func (s *site) tables(ctx context.Context, l lookout) error {
	var tables, columns []string
	if err := s.pool.Raw().QueryRow(ctx, `
		SELECT array_agg(t.table_name), array_agg(t.columns) FROM (
			SELECT table_name, string_agg(CASE data_type WHEN 'bytea' THEN format('encode(%I, ''escape'')', column_name)
				ELSE format('%I::text', column_name) END, ', ') AS columns
			FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
			WHERE table_schema = 'public' AND table_type = 'BASE TABLE' GROUP BY table_name) t`).
		Scan(&tables, &columns); err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	tx, err := s.pool.Raw().Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil { // the floods have made the tables large
		return err
	}
	read := func(query, where string) error {
		rows, err := tx.Query(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var row string
			if err := errors.Join(rows.Scan(&row), l.read(where, row)); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	for i, table := range tables {
		where := "table " + table
		l.outputs[where] = true // also an empty one
		if err := read(fmt.Sprintf("SELECT concat_ws(' ', '-', %s) FROM %q", columns[i], table), where); err != nil {
			return fmt.Errorf("read %s: %w", where, err)
		}
	}
	return nil
}

// collector keeps what the service exports as traces. Protobuf does not encode texts.
type collector struct {
	url string

	mu   sync.Mutex
	body strings.Builder
}

func startCollector(stage *process.Stage) (*collector, error) {
	c := &collector{}
	var err error
	c.url, err = stage.Listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.body.Write(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	return c, err
}

// received waits until the spans of payments have been exported, which happens every few seconds.
func (c *collector) received(ctx context.Context) (string, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		c.mu.Lock()
		text := c.body.String()
		c.mu.Unlock()
		if strings.Contains(text, "stripe confirm") {
			return text, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return "", errors.New("no traces of payments were exported")
}
