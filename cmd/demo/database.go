package main

import (
	"context"
	"fmt"
	"net/url"

	"example.com/payonce/internal/postgres"
)

// sessionName is the application_name of the demo's own sessions, which
// cutConnections must spare.
const sessionName = "payonce-demo"

// database is created for this run, on whatever server there is, and dropped at
// the end: the demo must not touch what else is on the server.
type database struct {
	name  string
	dsn   string
	admin *postgres.Pool // connected to another database of the server, to rename and drop this one
}

func makeDatabase(ctx context.Context, server string) (*database, error) {
	admin, err := postgres.Open(ctx, server, postgres.Options{Name: sessionName, MaxConn: 1})
	if err != nil {
		return nil, err
	}
	d := &database{name: "payonce_demo_" + randomHex(6), admin: admin}
	if err := d.exec(ctx, "CREATE DATABASE %s", d.name); err != nil {
		admin.Close()
		return nil, fmt.Errorf("cannot create a database on the server of DATABASE_URL"+
			" (unset it, and the demo starts a server): %w", err)
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		d.dsn = server + " dbname=" + d.name // keyword=value, where the last dbname counts
		return d, nil
	}
	u.Path = "/" + d.name
	d.dsn = u.String()
	return d, nil
}

// copy makes the backup. PostgreSQL refuses it while anybody is connected.
func (d *database) copy(ctx context.Context) error {
	return d.exec(ctx, "CREATE DATABASE %s TEMPLATE %s", d.name+"_backup", d.name)
}

// restore puts the backup in the place of the database, while no client is connected.
// The lost database is renamed, and dropped only at the end of the run: dropping
// needs a checkpoint, which takes seconds on a busy disk.
func (d *database) restore(ctx context.Context) error {
	if err := d.exec(ctx, "ALTER DATABASE %s RENAME TO %s", d.name, d.name+"_lost"); err != nil {
		return err
	}
	return d.exec(ctx, "ALTER DATABASE %s RENAME TO %s", d.name+"_backup", d.name)
}

// cutConnections closes every connection but the demo's own, and refuses new ones
// until allowConnections.
func (d *database) cutConnections(ctx context.Context) error {
	if err := d.exec(ctx, "ALTER DATABASE %s ALLOW_CONNECTIONS false", d.name); err != nil {
		return err
	}
	return d.exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = '%s' AND application_name <> '%s'`, d.name, sessionName)
}

func (d *database) allowConnections(ctx context.Context) error {
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

// exec puts names into a statement without quoting, because PostgreSQL takes no
// parameters there. All are the demo's own: letters, digits and underscores.
func (d *database) exec(ctx context.Context, format string, names ...any) error {
	_, err := d.admin.Raw().Exec(ctx, fmt.Sprintf(format, names...))
	return err
}
