package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

// tenantCommands are for the operator of the service: no route creates a tenant or an API key.
var tenantCommands = []command{
	{
		"tenant create", "NAME [-cell CELL] [-id TENANT]",
		"create a tenant; prints its id and API key, once", tenantCreate,
	},
	{"tenant list", "", "list the tenants, as JSON, one a line", tenantList},
	{"tenant disable", "TENANT", "refuse the tenant's API keys; what it has begun is finished", tenantDisable},
	{"tenant enable", "TENANT", "accept the tenant's API keys again", tenantEnable},
	{
		"tenant key create", "TENANT [-name N] [-expires 90d] [-read-only]", "create another API key; prints it, once",
		tenantKeyCreate,
	},
	{"tenant key list", "TENANT", "list the tenant's API keys, as JSON, one a line", tenantKeyList},
	{"tenant key revoke", "TENANT HINT", "revoke the tenant's keys that end in HINT", tenantKeyRevoke},
	{
		"tenant erase-customer", "TENANT REFERENCE [-by NAME]",
		"blank what names the customer in the tenant's orders and all that repeats it; money and keys stay; -by is recorded; " +
			"exit codes: 0 erased, 1 failed, 2 wrong usage, 3 no such tenant, 4 no such customer, 5 something is unfinished",
		tenantEraseCustomer,
	},
}

// tenantCreate prints the first API key together with the tenant: without a key the tenant could do nothing.
func tenantCreate(ctx context.Context, cli cli, args []string) error {
	flags, cell := flags("tenant create"), ""
	flags.Func("cell", "the cell that the tenant is made in, and that its API keys name; default: that of the database",
		func(s string) error { cell = s; return httpapi.CheckCell(s) })
	id := ids.New(ids.Tenant)
	flags.Func("id", "the id of a tenant that a restore has lost; default: a new id", func(s string) error {
		if id = s; !ids.Is(ids.Tenant, id) {
			return errors.New("this is no tenant's id")
		}
		return nil
	})
	given, err := parse(flags, args, "NAME")
	if err != nil {
		return err
	}
	name := given[0]
	if err := checkText("the name", name); err != nil {
		return err
	}
	secret := make([]byte, 32) // of the fingerprints: requests of two tenants never have the same one
	_, _ = rand.Read(secret)   // never fails
	return cli.withDataKey(ctx, func(pool *postgres.Pool) error {
		cell, err := cli.cellOf(ctx, pool, cell)
		if err != nil {
			return err
		}
		return pool.InTx(ctx, func(q *db.Queries) error {
			if err := q.TenantCreate(ctx, db.TenantCreateParams{ID: id, Name: name,
				FingerprintSecret: pool.Box().Seal(sealed.FingerprintSecret(id), secret)}); err != nil {
				if postgres.IsRejected(err) {
					return fmt.Errorf("there is a tenant %s: `api tenant key create %[1]s` makes another key: %w", id, err)
				}
				return fmt.Errorf("create the tenant: %w", err)
			}
			key, _, err := newAPIKey(ctx, q, cell, db.APIKeyCreateParams{TenantID: id})
			if err != nil {
				return err
			}
			return json.NewEncoder(cli.stdout).Encode(struct {
				TenantID string `json:"tenant_id"`
				APIKey   string `json:"api_key"`
			}{id, key})
		})
	})
}

func tenantList(ctx context.Context, cli cli, args []string) error {
	if err := arguments(args); err != nil {
		return err
	}
	return cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		list, err := pool.TenantList(ctx)
		if err != nil {
			return fmt.Errorf("list the tenants: %w", err)
		}
		return printLines(cli.stdout, list, func(t db.TenantListRow) any {
			return struct {
				TenantID  string    `json:"tenant_id"`
				Name      string    `json:"name"`
				Disabled  bool      `json:"disabled"`
				CreatedAt time.Time `json:"created_at"`
				MovedTo   *string   `json:"moved_to,omitempty"`
			}{t.ID, t.Name, t.Disabled, t.CreatedAt.UTC(), t.MovedTo}
		})
	})
}

func tenantDisable(ctx context.Context, cli cli, args []string) error {
	return withTenant(ctx, cli, args, func(pool *postgres.Pool, tenantID string) error {
		_, err := pool.TenantDisable(ctx, tenantID) // Disabling it again changes nothing.
		return err
	})
}

func tenantEnable(ctx context.Context, cli cli, args []string) error {
	return withTenant(ctx, cli, args, func(pool *postgres.Pool, tenantID string) error {
		_, err := pool.TenantEnable(ctx, tenantID)
		return err
	})
}

// withTenant runs a command whose only argument is a tenant's id.
func withTenant(ctx context.Context, cli cli, args []string, do func(*postgres.Pool, string) error) error {
	if err := arguments(args, "TENANT"); err != nil {
		return err
	}
	return cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		if err := mustBeServed(ctx, pool, args[0]); err != nil {
			return err
		}
		return do(pool, args[0])
	})
}

// mustBeServed fails for a tenant that is not: a typing error must not pass for success.
func mustBeServed(ctx context.Context, pool *postgres.Pool, tenantID string) error {
	served, err := pool.TenantServedHere(ctx, tenantID)
	if err == nil && !served {
		return unknownTenantError(tenantID)
	}
	return err
}

type unknownTenantError string

func (e unknownTenantError) Error() string {
	return fmt.Sprintf("there is no tenant %q, or it was moved to another cell; `api tenant list` lists them", string(e))
}

func tenantKeyCreate(ctx context.Context, cli cli, args []string) error {
	flags := flags("tenant key create")
	key := db.APIKeyCreateParams{}
	flags.StringVar(&key.Name, "name", "", fmt.Sprintf("what the key is for, up to %d characters", apiKeyNameMax))
	flags.Func("expires", "how long the key is valid, such as 90d or 12h; default: until it is revoked",
		func(s string) (err error) { key.ExpiresIn, err = parseLifetime(s); return err })
	flags.BoolVar(&key.ReadOnly, "read-only", false, "the key may send GET only")
	given, err := parse(flags, args, "TENANT")
	if err != nil {
		return err
	}
	if utf8.RuneCountInString(key.Name) > apiKeyNameMax {
		return usageError(fmt.Sprintf("-name must have at most %d characters", apiKeyNameMax))
	}
	if err := checkText("the name", key.Name); err != nil {
		return err
	}
	return withTenant(ctx, cli, given, func(pool *postgres.Pool, tenantID string) error {
		key.TenantID = tenantID
		cell, err := cli.cellOf(ctx, pool, "")
		if err != nil {
			return err
		}
		secret, hint, err := newAPIKey(ctx, pool.Queries, cell, key)
		if err != nil {
			return err
		}
		return json.NewEncoder(cli.stdout).Encode(struct {
			APIKey string `json:"api_key"`
			Hint   string `json:"hint"`
		}{secret, hint})
	})
}

// apiKeyNameMax is how many characters the name of an API key may have.
const apiKeyNameMax = 100

// lifetimeMax is a hundred years: more than anybody means, and less than a time can hold.
const lifetimeMax = 100 * 365 * 24 * time.Hour

// parseLifetime reads days, which Go's durations do not have, or a duration.
func parseLifetime(s string) (d time.Duration, err error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errors.New("must be days or a duration, such as 90d or 12h")
		}
		d = time.Duration(n) * 24 * time.Hour
	} else if d, err = time.ParseDuration(s); err != nil {
		return 0, errors.New("must be days or a duration, such as 90d or 12h")
	}
	if d < time.Second || d > lifetimeMax {
		return 0, errors.New("must be from a second to a hundred years")
	}
	return d, nil
}

// newAPIKey returns the only copy of the key: the database has its hash.
func newAPIKey(ctx context.Context, q *db.Queries, cell string, p db.APIKeyCreateParams) (key, hint string, err error) {
	key, p.KeyHash, p.Hint = httpapi.NewCellAPIKey(cell, p.TenantID)
	if err := q.APIKeyCreate(ctx, p); err != nil {
		return "", "", fmt.Errorf("create an API key: %w", err)
	}
	return key, p.Hint, nil
}

func tenantKeyList(ctx context.Context, cli cli, args []string) error {
	return withTenant(ctx, cli, args, func(pool *postgres.Pool, tenantID string) error {
		list, err := pool.APIKeyList(ctx, tenantID)
		if err != nil {
			return fmt.Errorf("list the API keys: %w", err)
		}
		return printLines(cli.stdout, list, func(k db.APIKeyListRow) any {
			return struct {
				Hint       string     `json:"hint"`
				Name       string     `json:"name"`
				ReadOnly   bool       `json:"read_only"`
				CreatedAt  time.Time  `json:"created_at"`
				ExpiresAt  *time.Time `json:"expires_at"`
				LastUsedAt *time.Time `json:"last_used_at"`
				RevokedAt  *time.Time `json:"revoked_at"`
			}{k.Hint, k.Name, k.ReadOnly, k.CreatedAt.UTC(), utc(k.ExpiresAt), utc(k.LastUsedAt), utc(k.RevokedAt)}
		})
	})
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// printLines prints one JSON object a line.
func printLines[T any](w io.Writer, list []T, line func(T) any) error {
	for _, item := range list {
		if err := printJSON(w, line(item)); err != nil {
			return err
		}
	}
	return nil
}

// tenantKeyRevoke takes the key's last characters, because only hashes are stored.
func tenantKeyRevoke(ctx context.Context, cli cli, args []string) error {
	if err := arguments(args, "TENANT", "HINT"); err != nil {
		return err
	}
	tenantID, hint := args[0], args[1]
	return cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		n, err := pool.APIKeyRevoke(ctx, db.APIKeyRevokeParams{TenantID: tenantID, Hint: hint})
		if err == nil && n == 0 { // a typing error must not pass for a revocation
			return fmt.Errorf("the tenant has no active key that ends in %q", hint)
		}
		return err
	})
}
