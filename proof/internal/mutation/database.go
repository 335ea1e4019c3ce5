package mutation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/payonce/internal/postgres"
)

// withSchema calls do with a connection to a migrated database of its own, which
// is dropped afterwards. The mutants of the schema are read from it, and those of
// the queries are prepared in it.
func withSchema(ctx context.Context, server string, do func(*pgx.Conn) error) (err error) {
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close(ctx)) }()
	name := fmt.Sprintf("payonce_mutants_%d", time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	defer func() {
		_, dropErr := admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
		err = errors.Join(err, dropErr)
	}()
	config := admin.Config().Copy()
	config.Database = name
	url := fmt.Sprintf("postgres://%s:%s@%s:%d/%s", config.User, config.Password, config.Host, config.Port, name)
	if err := migrate(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return do(conn)
}

func migrate(ctx context.Context, url string) error {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "mutants"})
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Migrate(ctx)
	return err
}
