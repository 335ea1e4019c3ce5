package devpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/deploy"
	"example.com/payonce/internal/postgres"
)

// Roles are the ways to one database, one for each role of deploy/roles.sql.
type Roles struct{ Owner, Service, Audit string }

// MakeRoles makes the roles in the database at dsn, whose own role may create roles, and gives them its password.
// Migrate as the owner afterwards, also on a database that is migrated already: that is when the others get their
// rights.
func MakeRoles(ctx context.Context, dsn string) (Roles, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return Roles{}, err
	}
	for range 10 { // Roles belong to the server: a process that makes them for another database may be in the way.
		if err = makeRoles(ctx, config); err == nil || !isConcurrent(err) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return Roles{}, fmt.Errorf("make the roles of the service: %w", err)
	}
	return Roles{
		Owner: As(dsn, "payonce_owner"), Service: As(dsn, "payonce_service"), Audit: As(dsn, "payonce_audit"),
	}, nil
}

func makeRoles(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, deploy.Roles); err != nil {
		return err
	}
	if config.Password == "" {
		return nil
	}
	password := "'" + strings.ReplaceAll(config.Password, "'", "''") + "'"
	for _, role := range []string{"payonce_owner", "payonce_service", "payonce_audit"} {
		if _, err := conn.Exec(ctx, "ALTER ROLE "+role+" PASSWORD "+password); err != nil {
			return err
		}
	}
	return nil
}

// MayNotMakeRoles reports whether MakeRoles failed because the role of its dsn may not create roles, as one with a
// database on a server of others.
func MayNotMakeRoles(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "42501" // insufficient_privilege
}

// isConcurrent reports whether another session changed the same role: "tuple concurrently updated" is an internal error.
func isConcurrent(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "XX000"
}

// Migrate makes the roles in the database at dsn and migrates it as their owner, as an installation does that
// docs/operations.md describes.
func Migrate(ctx context.Context, dsn string) (Roles, error) {
	roles, err := MakeRoles(ctx, dsn)
	if err != nil {
		return roles, err
	}
	pool, err := postgres.Open(ctx, roles.Owner, postgres.Options{Name: "payonce migrate", MaxConn: 1})
	if err != nil {
		return roles, err
	}
	defer pool.Close()
	_, err = pool.Migrate(ctx)
	return roles, err
}

// As returns dsn with another role; an empty one leaves it as it is.
func As(dsn, role string) string {
	if role == "" {
		return dsn
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " user=" + role // keyword=value, where the last user counts
	}
	if password, ok := u.User.Password(); ok {
		u.User = url.UserPassword(role, password)
	} else {
		u.User = url.User(role)
	}
	return u.String()
}
