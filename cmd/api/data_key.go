package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

// checkDataKey stops a start without a key with which secrets of tenants are sealed: no request of such a tenant could
// be told from another.
func checkDataKey(ctx context.Context, pool *postgres.Pool, log *slog.Logger) error {
	secrets, err := sealedSecrets(postgres.ForAllTenants(ctx, "check of DATA_KEY"), pool, pool.Box())
	if err != nil {
		return err
	}
	if len(secrets.missing) > 0 {
		return fmt.Errorf("DATA_KEY %s", secrets.lacks())
	}
	if !pool.Box().Seals() {
		log.Warn("DATA_KEY is unset or begins with none: what is stored is not encrypted; docs/operations.md, Data key")
	}
	return nil
}

// secretsFound counts the secrets of tenants by how they are sealed.
type secretsFound struct {
	first, others, plain int64    // sealed with the first key of DATA_KEY, with another one, or not at all
	unreadable           int64    // sealed with a key that DATA_KEY does not have
	missing              []string // the ids of those keys
}

func sealedSecrets(ctx context.Context, pool *postgres.Pool, box *sealed.Box) (found secretsFound, err error) {
	rows, err := pool.SecretsSealedBy(ctx)
	if err != nil {
		return found, fmt.Errorf("look for the keys of tenants' secrets: %w", err)
	}
	ids := box.KeyIDs()
	for _, row := range rows {
		switch i := slices.Index(ids, row.KeyID); {
		case row.KeyID == "":
			found.plain += row.Secrets
		case i < 0:
			found.unreadable += row.Secrets
			found.missing = append(found.missing, row.KeyID)
		case i == 0:
			found.first += row.Secrets
		default:
			found.others += row.Secrets
		}
	}
	return found, nil
}

// lacks says which keys are missing, after the name of the setting.
func (f secretsFound) lacks() string {
	return fmt.Sprintf("lacks the keys with the ids %s, which secrets of tenants are sealed with (%d); add them",
		strings.Join(f.missing, ", "), f.unreadable)
}
