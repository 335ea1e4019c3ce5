package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/payonce/stripesim"
)

// secretsInOutputs: after everything that was tried, no secret stands where it may be read.
var secretsInOutputs = attack{
	name: "secrets in outputs", who: "who reads logs, metrics, pages, events, the database or the process list",
	tries: "Stripe's key, the webhook secret, API keys, the admin token, the database's password and clients' secrets in each, and the card number that was sent",
	holds: "none is there; of API keys the database has a hash",
	run: func(ctx context.Context, s *site) (string, error) {
		clients, err := s.clientSecret(ctx)
		if err != nil {
			return "", err
		}
		outputs, err := s.outputs(ctx)
		if err != nil {
			return "", err
		}
		secrets := map[string]string{"Stripe's key": stripesim.DefaultKey, "the webhook secret": webhookSecret,
			"the victim's API key": s.victim.key, "the attacker's API key": s.attacker.key, "the admin token": adminToken,
			"a client's secret": clients, "a card number": sentCard}
		if u, err := url.Parse(s.database); err == nil && u.User != nil {
			if password, _ := u.User.Password(); len(password) > 3 {
				secrets["the database's password"] = password
			}
		}
		for where, text := range outputs {
			if len(text) == 0 {
				return "", fmt.Errorf("%s: nothing was read", where)
			}
			for what, secret := range secrets {
				if strings.Contains(text, secret) && !(secret == clients && slices.Contains(showsClientSecret, where)) {
					return "", didNotHold("%s is in %s", what, where)
				}
			}
		}
		return fmt.Sprintf("%d secrets in none of %d outputs", len(secrets), len(outputs)), nil
	},
}

// showsClientSecret are the outputs that have it for the customer whose payment waits: the tenant's own view of the
// payment, and the row that it is read from.
var showsClientSecret = []string{"payments", "table payments"}

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

// outputs are what somebody may read.
func (s *site) outputs(ctx context.Context) (map[string]string, error) {
	cookie, err := s.signIn(ctx)
	if err != nil {
		return nil, err
	}
	outputs := map[string]string{}
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
		"goroutines of a profile": {client{base: s.admin().base, key: adminToken}, "/debug/pprof/goroutine?debug=2"},
	} {
		a, err := from.send(ctx, "GET", from.path, "", map[string][]string{"Cookie": {cookie}})
		if err != nil {
			return nil, err
		}
		if a.status != http.StatusOK {
			return nil, fmt.Errorf("read %s: %d", where, a.status)
		}
		outputs[where] = a.body
	}
	log, err := os.ReadFile(s.Log.Name)
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	outputs["the log"] = string(log)
	if line, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(s.api.PID()), "cmdline")); err == nil { // Linux
		outputs["the process list"] = string(line)
	}
	return outputs, s.tables(ctx, outputs)
}

// tables adds each table of the database, as a dump has it, and with the text of its bytes, which a dump has in
// hexadecimal.
func (s *site) tables(ctx context.Context, outputs map[string]string) error {
	rows, err := s.pool.Raw().Query(ctx, `
		SELECT table_name, string_agg(CASE data_type WHEN 'bytea' THEN format('encode(%I, ''escape'')', column_name)
			ELSE format('%I::text', column_name) END, ', ')
		FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE' GROUP BY table_name`)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	defer rows.Close()
	queries := map[string]string{}
	for rows.Next() {
		var table, columns string
		if err := rows.Scan(&table, &columns); err != nil {
			return fmt.Errorf("list the tables: %w", err)
		}
		queries[table] = fmt.Sprintf("SELECT coalesce(string_agg(concat_ws(' ', %s), ' '), '-') FROM %q", columns, table)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	for table, query := range queries {
		var text string
		if err := s.pool.Raw().QueryRow(ctx, query).Scan(&text); err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
		outputs["table "+table] = text
	}
	return nil
}
