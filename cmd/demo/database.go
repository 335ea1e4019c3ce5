package main

import (
	"context"
	"fmt"
	"net/url"

	"example.com/payonce/internal/postgres"
)

// sessionName is how PostgreSQL knows our own sessions from the API's.
const sessionName = "payonce-demo"

// database is ours alone: made for this run, on whatever server there is, and
// dropped at its end.
type database struct {
	name  string
	dsn   string
	admin *postgres.Pool // to another database of the server
}

func makeDatabase(ctx context.Context, server string) (*database, error) {
	admin, err := postgres.Open(ctx, server, postgres.Options{Name: sessionName, MaxConn: 1})
	if err != nil {
		return nil, err
	}
	d := &database{name: "payonce_demo_" + noise(6), admin: admin}
	if err := d.exec(ctx, "CREATE DATABASE %s", d.name); err != nil {
		admin.Close()
		return nil, fmt.Errorf("make a database for this run on the server of DATABASE_URL (without it the demo starts a server): %w", err)
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		d.dsn = server + " dbname=" + d.name // keyword=value, where the last word counts
		return d, nil
	}
	u.Path = "/" + d.name
	d.dsn = u.String()
	return d, nil
}

// copy makes the backup. Nobody may be connected.
func (d *database) copy(ctx context.Context) error {
	return d.exec(ctx, "CREATE DATABASE %s TEMPLATE %s", d.name+"_backup", d.name)
}

// restore puts the backup in the place of the database. Nobody may be connected.
// The lost one is dropped at the end of the run: PostgreSQL does that in a
// checkpoint, for which a busy disk may take seconds.
func (d *database) restore(ctx context.Context) error {
	if err := d.exec(ctx, "ALTER DATABASE %s RENAME TO %s", d.name, d.name+"_lost"); err != nil {
		return err
	}
	return d.exec(ctx, "ALTER DATABASE %s RENAME TO %s", d.name+"_backup", d.name)
}

// away cuts every connection but our own, and refuses new ones until back.
func (d *database) away(ctx context.Context) error {
	if err := d.exec(ctx, "ALTER DATABASE %s ALLOW_CONNECTIONS false", d.name); err != nil {
		return err
	}
	return d.exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' AND application_name <> '%s'", d.name, sessionName)
}

func (d *database) back(ctx context.Context) error {
	return d.exec(ctx, "ALTER DATABASE %s ALLOW_CONNECTIONS true", d.name)
}

func (d *database) drop() error {
	defer d.admin.Close()
	for _, name := range []string{d.name + "_backup", d.name + "_lost", d.name} {
		if err := d.exec(context.Background(), "DROP DATABASE IF EXISTS %s WITH (FORCE)", name); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a statement on names that are all ours, of letters and digits.
func (d *database) exec(ctx context.Context, format string, names ...any) error {
	_, err := d.admin.Raw().Exec(ctx, fmt.Sprintf(format, names...))
	return err
}
