package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"example.com/payonce/db"
)

// A process that waits for the migrations of another one polls once a second, for five minutes.
const (
	lockPeriodSeconds = 1
	lockRounds        = 300
)

// ErrSchemaTooOld means that migrations are pending.
var ErrSchemaTooOld = errors.New("the database schema is older than this program")

// ErrOtherSchema means that the database has migrations that this program does not contain and
// lacks some that it does. Nothing can bring it up to date.
var ErrOtherSchema = errors.New("the database was made with other migrations than this program has; create another one")

// Migration is one numbered step of the schema, and whether it was applied.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// Migrate applies pending migrations, each in its own transaction, under a lock that other starting processes wait for.
// It returns those it applied.
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
		if err != nil {
			_, better := status(ctx, g)
			err = cmp.Or(better, err)
		}
		return err
	}, goose.WithSessionLocker(locker))
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	return done, nil
}

// Migrations lists every migration that this program contains, oldest first. It takes no lock: processes that start
// together would wait for each other, a second each.
func (p *Pool) Migrations(ctx context.Context) ([]Migration, error) {
	var list []Migration
	err := p.withMigrations(func(g *goose.Provider) error {
		applied, err := status(ctx, g)
		for _, s := range applied {
			list = append(
				list, Migration{Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied},
			)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	return list, nil
}

// SchemaVersion is the number of the last migration that this program has.
func SchemaVersion() int64 {
	names, err := fs.Glob(db.Migrations, "migrations/*.sql") // sorted by name, and so by number
	if err != nil || len(names) == 0 {
		panic("bug: the program has no migrations")
	}
	version, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic("bug: " + err.Error())
	}
	return version
}

// CheckSchema returns ErrSchemaTooOld unless every migration has been applied. A newer schema is allowed: a rolling
// deployment migrates before it replaces the old processes.
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

// status returns ErrOtherSchema if the database is ahead of this program and lacks one of its
// migrations all the same. A newer version of this program only adds migrations.
func status(ctx context.Context, g *goose.Provider) ([]*goose.MigrationStatus, error) {
	list, err := g.Status(ctx)
	missing := func(s *goose.MigrationStatus) bool { return s.State != goose.StateApplied }
	i := slices.IndexFunc(list, missing)
	if err != nil || i < 0 || !slices.ContainsFunc(list, func(s *goose.MigrationStatus) bool { return !missing(s) }) {
		return list, err
	}
	version, err := g.GetDBVersion(ctx)
	if err == nil && version > list[len(list)-1].Source.Version {
		err = fmt.Errorf("%w: it is at version %d, and %s is missing", ErrOtherSchema, version, list[i].Source.Path)
	}
	return list, err
}

// ownSessions returns an error if a session's lock could end up in another session.
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
	// database/sql silently repeats a statement whose connection was lost. Every migration runs in a transaction, where
	// the repetition finds a new, empty one and fails; so no migration may be marked NO TRANSACTION.
	//
	// They have separate connections: a migration may read a table of any size, which no statement of a request may.
	// But it must not wait long for a lock, because all other statements would queue behind it.
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
