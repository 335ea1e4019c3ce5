package main

import (
	"context"
	"maps"
	"time"

	"example.com/payonce/internal/checkout"
	httpapi "example.com/payonce/internal/http"
)

// reserveEvery is how late the stock of an abandoned checkout may be released.
const reserveEvery = 30 * time.Second

// checkoutsPart is POST /v1/checkouts: an order, its stock and its payment as one saga.
var checkoutsPart = part{name: "checkouts", read: func(*environment) partSettings { return checkouts{} }}

type checkouts struct{}

func (checkouts) wire(_ context.Context, s *service) error {
	service := checkout.New(s.pool, s.keys, s.gateway, s.payments, httpapi.Answers{}, checkout.Options{
		Metrics: checkout.NewMetrics(s.metrics), Log: s.log,
	})
	maps.Copy(s.operations, service.Operations())
	maps.Copy(s.paths, checkout.Paths())
	s.describe[checkout.Create] = checkout.History // part: history
	s.http.Checkouts = service
	s.loops = append(s.loops,
		loop{name: "reservations", every: reserveEvery, runOnce: service.ExpireReservations},
		loop{name: "checkout gauges", every: measureEvery, runOnce: service.Measure},
	)
	return nil
}
