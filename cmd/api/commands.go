package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// withDatabase runs a command that needs DATABASE_URL and nothing else.
func withDatabase(ctx context.Context, getenv func(string) string, do func(*db.Pool) error) error {
	url := getenv("DATABASE_URL")
	if url == "" {
		return errNoDatabaseURL
	}
	pool, err := openDatabase(ctx, url, db.Options{Name: "payonce-cli", MaxConn: 4})
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}

// openDatabase opens a pool and asks the database whether it is there, and is such
// as we can work with: a URL that leads nowhere, or through a pooler that loses
// half of what we say, is a bad value like any other, and is called by its name.
func openDatabase(ctx context.Context, url string, o db.Options) (*db.Pool, error) {
	pool, err := db.Open(ctx, url, o)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL is %w", err)
	}
	if err := pool.Check(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("DATABASE_URL %w", err)
	}
	return pool, nil
}

func migrate(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	verb := "up"
	if len(args) > 0 {
		verb = args[0]
	}
	if len(args) > 1 || verb != "up" && verb != "status" && verb != "print" {
		return errUsage
	}
	if verb == "print" { // needs no database
		_, err := io.WriteString(stdout, db.Schema)
		return err
	}
	return withDatabase(ctx, getenv, func(pool *db.Pool) error {
		if verb == "up" {
			applied, err := pool.Migrate(ctx)
			for _, m := range applied {
				_, _ = fmt.Fprintf(stdout, "applied %s\n", m.Name)
			}
			if err == nil && len(applied) == 0 {
				_, _ = fmt.Fprintln(stdout, "nothing to apply")
			}
			return err
		}
		list, err := pool.Migrations(ctx)
		for _, m := range list {
			state := "pending"
			if m.Applied {
				state = "applied"
			}
			_, _ = fmt.Fprintf(stdout, "%-8s %s\n", state, m.Name)
		}
		return err
	})
}

func tenant(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	return withDatabase(ctx, getenv, func(pool *db.Pool) error {
		switch {
		case len(args) == 2 && args[0] == "create" && args[1] != "":
			return createTenant(ctx, pool, args[1], stdout)
		case len(args) == 3 && args[0] == "key" && args[1] == "create":
			return pool.InTx(ctx, func(q *db.Queries) error { return printNewKey(ctx, q, args[2], stdout) })
		case len(args) == 4 && args[0] == "key" && args[1] == "revoke":
			n, err := pool.APIKeyRevoke(ctx, db.APIKeyRevokeParams{TenantID: args[2], Hint: args[3]})
			if err == nil && n == 0 {
				return fmt.Errorf("the tenant has no live key that ends in %q", args[3])
			}
			return err
		case len(args) == 3 && args[0] == "notify":
			return notifyTenant(ctx, pool, args[1], args[2], stdout)
		}
		return errUsage
	})
}

// notifyTenant says where a tenant's events go, and prints the secret that
// signs them, once.
func notifyTenant(ctx context.Context, pool *db.Pool, tenantID, url string, stdout io.Writer) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	if err := notifier.SetEndpoint(ctx, pool.Queries, tenantID, url, secret); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(struct {
		URL    string `json:"url"`
		Secret string `json:"secret"`
	}{url, secret})
}

// relay has published events sent again, for a broker that lost its log.
func relay(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) == 0 || args[0] != "replay" {
		return errUsage
	}
	flags := flag.NewFlagSet("relay replay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	since := flags.Duration("since", 0, "events published in this time until now, such as 2h")
	if err := flags.Parse(args[1:]); err != nil || *since <= 0 || flags.NArg() > 0 {
		return errUsage
	}
	return withDatabase(ctx, getenv, func(pool *db.Pool) error {
		now, err := pool.OutboxNow(ctx) // the database's clock stamped them
		if err != nil {
			return fmt.Errorf("read the database's clock: %w", err)
		}
		n, err := outbox.Replay(ctx, pool, now.Add(-*since))
		_, _ = fmt.Fprintf(stdout, "%d events will be sent again by the relays that run\n", n)
		return err
	})
}

func createTenant(ctx context.Context, pool *db.Pool, name string, stdout io.Writer) error {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	id := payments.NewTenantID()
	return pool.InTx(ctx, func(q *db.Queries) error {
		if err := q.TenantCreate(ctx, db.TenantCreateParams{ID: id, Name: name, FingerprintSecret: secret}); err != nil {
			return fmt.Errorf("create the tenant: %w", err)
		}
		return printNewKey(ctx, q, id, stdout)
	})
}

func printNewKey(ctx context.Context, q *db.Queries, tenantID string, stdout io.Writer) error {
	key, hash, hint := httpapi.NewAPIKey(tenantID)
	if err := q.APIKeyCreate(ctx, db.APIKeyCreateParams{TenantID: tenantID, KeyHash: hash, Hint: hint}); err != nil {
		return fmt.Errorf("create an API key: %w", err)
	}
	return json.NewEncoder(stdout).Encode(struct {
		TenantID string `json:"tenant_id"`
		APIKey   string `json:"api_key"`
	}{tenantID, key})
}

// healthcheck is for containers, whose image has no curl.
func healthcheck(ctx context.Context, getenv func(string) string) error {
	e := environment{getenv: getenv}
	_, port, err := net.SplitHostPort(e.address("HTTP_ADDR", ":8080"))
	if err != nil {
		return e.err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: status %d", res.StatusCode)
	}
	return nil
}
