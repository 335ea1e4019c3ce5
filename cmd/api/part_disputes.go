package main

import (
	"context"
	"maps"
	"time"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/payments"
)

// disputesEvery is how late a dispute may be noticed that is due to be read; windows and disputes have their own
// periods.
const disputesEvery = 10 * time.Second

// disputesPart records what banks take back: every dispute, its movements, fee and deadline.
var disputesPart = part{name: "disputes", read: func(*environment) partSettings { return disputeReader{} }}

type disputeReader struct{}

func (disputeReader) wire(_ context.Context, s *service) error {
	maps.Copy(s.paths, disputes.Paths())
	s.http.Disputes = s.disputes
	s.handlers[payments.StripeEvents] = s.disputes.WebhookHandler(s.handlers[payments.StripeEvents])
	s.loops = append(s.loops,
		loop{name: "disputes", every: disputesEvery, runOnce: s.disputes.RunOnce},
		loop{name: "dispute gauges", every: measureEvery, runOnce: s.disputes.Measure},
	)
	return nil
}
