package main

import (
	"context"
	"fmt"
	"net/http"

	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/postgres"
)

// operatorPart is the operator's page on the admin address.
var operatorPart = part{
	name: "operator",
	read: func(*environment) partSettings { return operatorPage{} },
}

type operatorPage struct{}

// wire gives the page a separate pool: it must open while the service's pool is exhausted, and it must never be the
// one that exhausts it.
func (operatorPage) wire(ctx context.Context, s *service) error {
	pool, err := postgres.Open(ctx, s.config.DatabaseURL, postgres.Options{
		Name: "payonce operator", MaxConn: operator.Connections, Statement: operator.Statement, Box: s.config.DataKey,
	})
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	s.closers = append(s.closers, pool.Close)
	page := operator.New(operator.Options{
		Pool: pool, Payments: s.payments, History: s.history, Token: s.adminToken, Log: s.log,
		Checkouts: s.http.Checkouts, // part: checkouts
	})
	s.pages["/operator"] = page
	s.pages["/operator/"] = page
	s.pages["GET /{$}"] = http.RedirectHandler("/operator", http.StatusSeeOther)
	return nil
}
