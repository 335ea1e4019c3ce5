package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// withDatabase runs a command that needs DATABASE_URL, and DATA_KEY if the service has one, and no other setting. If the
// command fails because migrations are pending, the error says so.
func (c cli) withDatabase(ctx context.Context, do func(*postgres.Pool) error) error {
	return c.withAnySchema(ctx, func(pool *postgres.Pool) error {
		err := do(pool)
		if postgres.IsUndefined(err) || errors.Is(err, postgres.ErrSchemaTooOld) {
			if schema := pool.CheckSchema(ctx); errors.Is(schema, postgres.ErrSchemaTooOld) {
				return fmt.Errorf("%w; run `api migrate`", schema)
			}
		}
		return err
	})
}

// withAnySchema is withDatabase for a command that works without the tables.
func (c cli) withAnySchema(ctx context.Context, do func(*postgres.Pool) error) error {
	url := c.getenv("DATABASE_URL")
	if url == "" {
		return errNoDatabaseURL
	}
	e := environment{getenv: c.getenv}
	o := postgres.Options{Name: "payonce-cli", MaxConn: 4, ReadOnly: c.readOnly, Box: e.dataKey()}
	if e.err != nil {
		return e.err
	}
	pool, err := openDatabase(ctx, url, o, slog.New(slog.NewTextHandler(c.stderr, nil)))
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}

// openDatabase opens a pool and checks the connection. A URL that leads nowhere, or through a pooler
// that drops session settings, is a wrong setting like any other, so the error names the variable.
// Without the check it would show up as errors of the first requests. A server that is not ready yet is waited for.
func openDatabase(ctx context.Context, url string, o postgres.Options, log *slog.Logger) (*postgres.Pool, error) {
	pool, err := postgres.Open(ctx, url, o)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	if err := whenReady(ctx, log, func() error { return pool.Check(ctx) }); err != nil {
		pool.Close()
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	return pool, nil
}

// migrate lists or applies migrations. There is no "down": a released migration is never undone,
// another one follows it.
func migrate(ctx context.Context, cli cli, args []string) error {
	if len(args) == 0 {
		args = []string{"up"}
	}
	if err := arguments(args, "up, status or print"); err != nil {
		return err
	}
	verb := args[0]
	if verb != "up" && verb != "status" && verb != "print" {
		return usageError(fmt.Sprintf("%q is none of up, status and print", verb))
	}
	if verb == "print" { // needs no database
		_, schema, _ := strings.Cut(db.Schema, "\n\n") // The header says how the file is generated.
		_, err := io.WriteString(cli.stdout, schema)
		return err
	}
	cli.readOnly = verb == "status"
	return cli.withAnySchema(ctx, func(pool *postgres.Pool) error {
		if verb == "up" {
			return cli.migrateUp(ctx, pool)
		}
		list, err := pool.Migrations(ctx)
		for _, m := range list {
			state := "pending"
			if m.Applied {
				state = "applied"
			}
			_, _ = fmt.Fprintf(cli.stdout, "%-8s %s\n", state, m.Name)
		}
		return err
	})
}

func (c cli) migrateUp(ctx context.Context, pool *postgres.Pool) error {
	e := environment{getenv: c.getenv}
	cell := e.cell()
	if e.err != nil {
		return e.err
	}
	applied, err := migrateAs(ctx, pool, cell)
	for _, m := range applied { // also before an error: each was committed by itself
		_, _ = fmt.Fprintf(c.stdout, "applied %s\n", m.Name)
	}
	if err == nil && len(applied) == 0 {
		_, _ = fmt.Fprintln(c.stdout, "nothing to apply")
	}
	return err
}

// relayReplay marks published events as unpublished, for a broker that lost its log. Running relays send them.
func relayReplay(ctx context.Context, cli cli, args []string) error {
	flags := flags("relay replay")
	since := flags.Duration("since", 0, "events published in this time until now, such as 2h")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	if *since <= 0 {
		return usageError("-since must be a duration above zero, such as 2h")
	}
	return cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		now, err := pool.OutboxNow(ctx) // published_at is of the database's clock
		if err != nil {
			return fmt.Errorf("read the database's clock: %w", err)
		}
		n, err := outbox.Replay(ctx, pool, now.Add(-*since))
		_, _ = fmt.Fprintf(cli.stdout, "%d events will be sent again by the running relays\n", n)
		return err
	})
}

// healthcheck is for containers, whose image has no curl.
func healthcheck(ctx context.Context, cli cli, _ []string) error {
	e := environment{getenv: cli.getenv}
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
		return fmt.Errorf("cannot connect to the service: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the service is not ready: status %d", res.StatusCode)
	}
	return nil
}
