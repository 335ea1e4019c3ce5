package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/postgres"
)

// operatorPart is the operator's page on the admin address.
var operatorPart = part{
	name: "operator",
	read: func(e *environment) partSettings { return operatorPage{token: e.token("ADMIN_TOKEN")} },
}

type operatorPage struct {
	token string // signs operators in, and lets them act; empty: the page is read-only
}

// wire gives the page a separate pool: it must open while the service's pool is exhausted, and it must never be the
// one that exhausts it.
func (p operatorPage) wire(ctx context.Context, s *service) error {
	pool, err := postgres.Open(ctx, s.config.DatabaseURL, postgres.Options{
		Name: "payonce operator", MaxConn: operator.Connections, Statement: operator.Statement,
	})
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	s.closers = append(s.closers, pool.Close)
	page := operator.New(operator.Options{
		Pool: pool, Payments: s.payments, History: s.history, Token: p.token, Log: s.log,
		Checkouts: s.http.Checkouts, // part: checkouts
	})
	s.pages["/operator"] = page
	s.pages["/operator/"] = page
	s.pages["GET /{$}"] = http.RedirectHandler("/operator", http.StatusSeeOther)
	return nil
}

func (p operatorPage) logAttrs() []slog.Attr {
	return []slog.Attr{slog.Bool("operator_may_act", p.token != "")}
}

// tokenMin is a length that cannot be guessed at one attempt a millisecond.
const tokenMin = 24

func (e *environment) token(name string) string {
	v := e.getenv(name)
	if v != "" && len(v) < tokenMin {
		e.fail(name, fmt.Sprintf("must have at least %d characters; generate it with openssl rand -hex 24", tokenMin))
	}
	if v != strings.TrimSpace(v) { // most likely the line break of a file, which a login form would remove
		e.fail(name, "must not begin or end with white space")
	}
	return v
}
