package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/internal/postgres"
)

const (
	crowdDefault = 12 // customers of a scenario
	crowdMin     = 6  // more than the connections of the smallest pool

	connsDefault = 40 // enough that no request waits for a connection, except where that is the exhibit
)

// museum is the building. Wrong sides share a database, and so do right ones;
// each finds it empty.
type museum struct {
	admin          *pgxpool.Pool
	wrong, payonce *place
	right          func(*side) shop // payonce, but for a test
	crowd          int              // how many customers a scenario has
}

// place is a database for sides.
type place struct {
	name, url string
	empty     string // the statement that makes it as it was
}

// open prepares the museum on a server whose role may create databases.
func open(ctx context.Context, url string, crowd int) (*museum, error) {
	admin, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	var noise [4]byte
	_, _ = rand.Read(noise[:]) // never fails
	prefix := "museum_" + hex.EncodeToString(noise[:])
	m := &museum{admin: admin, right: payonce, crowd: crowd,
		wrong: &place{name: prefix + "_wrong"}, payonce: &place{name: prefix + "_payonce"}}
	for _, p := range []*place{m.wrong, m.payonce} {
		p.url = on(url, p.name)
		if _, err := admin.Exec(ctx, "CREATE DATABASE "+p.name); err != nil {
			m.close()
			return nil, fmt.Errorf("the role must be allowed to create databases: %w", err)
		}
	}
	if err := m.prepare(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *museum) prepare(ctx context.Context) error {
	pool, err := postgres.Open(ctx, m.payonce.url, postgres.Options{Name: "museum"})
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Raw().Exec(ctx, ordersOfTheMuseum); err != nil {
		return err
	}
	m.wrong.empty = `DROP SCHEMA public CASCADE; CREATE SCHEMA public`
	return pool.Raw().QueryRow(ctx, `SELECT 'TRUNCATE ' || string_agg(quote_ident(tablename), ', ') FROM pg_tables
		WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'`).Scan(&m.payonce.empty)
}

func (m *museum) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, p := range []*place{m.wrong, m.payonce} {
		_, _ = m.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+p.name+" WITH (FORCE)") // or it goes with its server
	}
	m.admin.Close()
}

// on is the server's DSN with another database.
func on(server, database string) string {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return server + " dbname=" + database // keyword=value, where the last word counts
	}
	u.Path = "/" + database
	return u.String()
}

// play runs the exhibit's scenario against a shop, and returns the damage.
func (m *museum) play(ctx context.Context, at *place, e exhibit, open func(*side) shop) (t tally, err error) {
	admin, err := pgxpool.New(ctx, at.url)
	if err != nil {
		return t, err
	}
	defer admin.Close()
	conns := e.conns
	if conns == 0 {
		conns = connsDefault
	}
	pool, err := postgres.Open(ctx, at.url, postgres.Options{Name: "museum", MaxConn: conns})
	if err != nil {
		return t, err
	}
	defer pool.Close()
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("the scenario went wrong: %v", bug)
		}
	}()
	dir, err := os.MkdirTemp("", "museum-")
	if err != nil {
		return t, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	exec(ctx, admin, at.empty)
	s := &side{DB: pool.Raw(), pool: pool, dir: dir, provider: newProvider(), broker: newBroker(), ctx: ctx, admin: admin,
		crowd: m.crowd, open: open}
	s.restart()
	e.scenario(s)
	return s.check(), nil
}
