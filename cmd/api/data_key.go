package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

// checkDataKey refuses to work without a key with which secrets of tenants are encrypted: the service could not tell one
// request of such a tenant from another, and a command would store a new secret as another key, or none, leaves it.
func checkDataKey(ctx context.Context, pool *postgres.Pool, log *slog.Logger) error {
	secrets, err := encryptedSecrets(postgres.ForAllTenants(ctx, "check of DATA_KEY"), pool, pool.Box())
	if err != nil {
		return err
	}
	if len(secrets.missing) > 0 {
		return fmt.Errorf("DATA_KEY %s", secrets.lacks())
	}
	if why := notSecret(pool.Box()); why != "" {
		log.Warn("DATA_KEY " + why + "; docs/operations.md, Data key")
	}
	return checkKeyIntroduced(ctx, pool, log)
}

// introduceKey records in the database that the first key of DATA_KEY encrypts from now on. Only the owner of the tables
// may: a service that finds a current schema has nothing to introduce.
func introduceKey(ctx context.Context, pool *postgres.Pool) error {
	owns, err := pool.OwnsTables(ctx)
	if err != nil || !owns {
		return err
	}
	return pool.IntroduceKey(postgres.ForAllTenants(ctx, "introduction of DATA_KEY"))
}

// checkKeyIntroduced refuses to encrypt with a key of which the database would accept no secret, and to encrypt nothing while
// no process with the key would read what is plain.
func checkKeyIntroduced(ctx context.Context, pool *postgres.Pool, log *slog.Logger) error {
	if !pool.Box().Seals() {
		read, err := pool.PlainIsRead(ctx, time.Now())
		if err == nil && !read {
			err = errors.New("DATA_KEY encrypts nothing, and what is stored in this database has to be encrypted: set the key, or run " +
				"`api migrate` with this DATA_KEY, none,KEY, as the owner of the tables (docs/operations.md, Data key)")
		}
		return err
	}
	introduced, err := pool.KeyIntroduced(ctx)
	if err != nil {
		return err
	}
	switch id := pool.Box().KeyIDs()[0]; introduced {
	case postgres.KeyIsUnknown:
		owns, err := pool.OwnsTables(ctx) // Its role is bound by nothing.
		if err == nil && !owns {
			err = fmt.Errorf("the database does not know the first key of DATA_KEY, %s: run `api migrate` with this DATA_KEY, as "+
				"the owner of the tables (docs/operations.md, Data key)", id)
		}
		return err
	case postgres.KeyIsOlder:
		log.Warn("the first key of DATA_KEY is not the one that was introduced last, so this process encrypts nothing anew; "+
			"run `api migrate` with this DATA_KEY if it is to stay (docs/operations.md, Data key)", "key_id", id)
	case postgres.KeyIsNewest:
	}
	return nil
}

// checkRetention refuses to drop responses before the database lets them be dropped.
func checkRetention(ctx context.Context, pool *postgres.Pool, c config) error {
	owns, err := pool.OwnsTables(ctx)
	if err != nil || owns || !c.IdempotencyReaper {
		return err
	}
	seconds, err := pool.RetentionFloor(ctx)
	if err != nil {
		return fmt.Errorf("read for how long responses are kept at least: %w", err)
	}
	if floor := time.Duration(seconds * float64(time.Second)); c.IdempotencyRetention < floor {
		return fmt.Errorf("IDEMPOTENCY_RETENTION is %s, but the database keeps each response for %s at least (retention_floor, which "+
			"the owner of the tables may change)", c.IdempotencyRetention, floor)
	}
	return nil
}

// notSecret says of DATA_KEY, after its name, why a copy of the database shows what is stored; empty: it does not.
func notSecret(box *sealed.Box) string {
	switch {
	case box == nil:
		return "is unset: what is stored is not encrypted"
	case !box.Seals():
		return "begins with none: what is stored is not encrypted"
	case published(box):
		return "is " + isPublished
	}
	return ""
}

// publishedDataKey is the DATA_KEY of .env.example and docker-compose.yml. What it encrypts, every reader of this
// repository can decrypt.
const (
	publishedDataKey = "bG9jYWwgb25seTogZXZlcnlib2R5IGtub3dzIHRoaXM="
	isPublished      = "the public one of .env.example and docker-compose.yml: everyone can decrypt what is stored"
)

// published reports whether a box that seals does so with publishedDataKey. Behind another key that only decrypts.
func published(box *sealed.Box) bool {
	known, _ := sealed.New(publishedDataKey) // a key, as its test sees to
	return box.KeyIDs()[0] == known.KeyIDs()[0]
}

// withDataKey runs a command that stores a secret. Like the service it needs each key that secrets are encrypted with.
func (c cli) withDataKey(ctx context.Context, do func(*postgres.Pool) error) error {
	return c.withDatabase(ctx, func(pool *postgres.Pool) error {
		if err := checkDataKey(ctx, pool, slog.New(slog.NewTextHandler(c.stderr, nil))); err != nil {
			return err
		}
		return do(pool)
	})
}

// secretsFound counts the secrets of tenants by how they are encrypted.
type secretsFound struct {
	first, others, plain int64    // encrypted with the first key of DATA_KEY, with another one, or not at all
	unreadable           int64    // encrypted with a key that DATA_KEY does not have
	missing              []string // the ids of those keys
}

func encryptedSecrets(ctx context.Context, pool *postgres.Pool, box *sealed.Box) (found secretsFound, err error) {
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
	return fmt.Sprintf("lacks the keys with the ids %s, which secrets of tenants are encrypted with (%d); add them",
		strings.Join(f.missing, ", "), f.unreadable)
}
