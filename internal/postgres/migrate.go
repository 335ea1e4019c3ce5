package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"example.com/payonce/db"
)

// Who waits for the migrations of another process looks once a second, for five minutes.
const (
	lockPeriodSeconds = 1
	lockRounds        = 300
)

// ErrSchemaTooOld says that migrations wait to be applied.
var ErrSchemaTooOld = errors.New("the database schema is older than this program")

// Migration is one numbered step of the schema and whether it has been taken.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// Migrate applies what is missing, each migration in a transaction of its own,
// under a lock that other starting processes wait for. It returns what it applied.
func (p *Pool) Migrate(ctx context.Context) ([]Migration, error) {
	var done []Migration
	if err := p.ownSessions(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockPeriodSeconds, lockRounds))
	if err != nil {
		return nil, err
	}
	err = p.withMigrations(func(g *goose.Provider) error {
		results, err := g.Up(ctx)
		for _, r := range results {
			done = append(done, Migration{Version: r.Source.Version, Name: r.Source.Path, Applied: true})
		}
		return err
	}, goose.WithSessionLocker(locker))
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	return done, nil
}

// Migrations lists every migration this program knows, oldest first. It takes no
// lock: processes that start together would wait for each other, a second each.
func (p *Pool) Migrations(ctx context.Context) ([]Migration, error) {
	var list []Migration
	err := p.withMigrations(func(g *goose.Provider) error {
		status, err := g.Status(ctx)
		for _, s := range status {
			list = append(list, Migration{Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	return list, nil
}

// CheckSchema returns ErrSchemaTooOld unless every migration has been applied.
// A newer schema is welcome: a rolling deploy migrates before it replaces us.
func (p *Pool) CheckSchema(ctx context.Context) error {
	list, err := p.Migrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		if !m.Applied {
			return fmt.Errorf("%w: %s is missing", ErrSchemaTooOld, m.Name)
		}
	}
	return nil
}

// ownSessions returns an error where a session's lock would not be kept by it.
func (p *Pool) ownSessions(ctx context.Context) error {
	conn, err := p.pgx.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pooled, err := behindPooler(ctx, conn)
	if err == nil && pooled {
		err = errPooled
	}
	return err
}

func (p *Pool) withMigrations(fn func(*goose.Provider) error, options ...goose.ProviderOption) error {
	sub, err := fs.Sub(db.Migrations, "migrations")
	if err != nil {
		return err
	}
	// database/sql silently repeats a statement whose connection died. Every
	// migration runs in a transaction, where a repetition finds a new, empty
	// one and fails; nothing here may be marked NO TRANSACTION.
	//
	// They have connections of their own: a migration may read a table of any size,
	// which no statement of a request may. What it must not do is to wait long for a
	// lock, because everybody else waits behind it.
	config := p.pgx.Config().ConnConfig
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "0", ms(lockTimeout)
	conn := stdlib.OpenDB(*config)
	defer func() { _ = conn.Close() }()
	g, err := goose.NewProvider(goose.DialectPostgres, conn, sub, options...)
	if err != nil {
		return err
	}
	return fn(g)
}
