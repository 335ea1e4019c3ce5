package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/payments"
)

// withDatabase runs a command that needs DATABASE_URL and nothing else.
func withDatabase(ctx context.Context, getenv func(string) string, do func(*db.Pool) error) error {
	url := getenv("DATABASE_URL")
	if url == "" {
		return errNoDatabaseURL
	}
	pool, err := db.Open(ctx, url, db.Options{Name: "payonce-cli", MaxConn: 4})
	if err != nil {
		return fmt.Errorf("DATABASE_URL is %w", err)
	}
	defer pool.Close()
	return do(pool)
}

func migrate(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	verb := "up"
	if len(args) > 0 {
		verb = args[0]
	}
	if len(args) > 1 || verb != "up" && verb != "status" {
		return errUsage
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
		}
		return errUsage
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
