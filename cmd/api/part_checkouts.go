package main

import (
	"context"
	"time"
)

// reserveEvery is how late the stock of an abandoned checkout may be released.
const reserveEvery = 10 * time.Second

// checkoutsPart is POST /v1/checkouts: an order, its stock and its payment as one saga.
var checkoutsPart = part{name: "checkouts", read: func(*environment) partSettings { return checkouts{} }}

type checkouts struct{}

func (checkouts) wire(_ context.Context, s *service) error {
	// Releases the stock of abandoned checkouts whose payment has not begun. One whose payment has begun never
	// expires: the customer may be charged at that moment.
	s.loops = append(s.loops, loop{name: "reservations", every: reserveEvery, runOnce: s.payments.ExpireReservations})
	return nil
}
