package checkout

import (
	"log/slog"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// Create is the name of the operation, as the table of keys has it.
const Create = "create_checkout"

// Options of New.
type Options struct {
	Metrics *Metrics // may be nil
	Log     *slog.Logger
}

// Service carries out checkouts, with the payments of the service that it is given. All
// that it remembers by itself is which checkouts ExpireReservations has just failed on.
type Service struct {
	pool     *postgres.Pool
	keys     *idempotency.Store
	gateway  payments.Gateway
	payments *payments.Service
	answers  payments.Answers
	o        Options

	notExpired FailedLately
	statuses   *postgres.Batched[statusOf, db.CheckoutStatus]
}

// New returns the service. It starts nothing.
func New(
	pool *postgres.Pool, keys *idempotency.Store, gateway payments.Gateway, money *payments.Service,
	answers payments.Answers, o Options,
) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return &Service{
		pool: pool, keys: keys, gateway: gateway, payments: money, answers: answers, o: o, statuses: newStatuses(pool),
	}
}

// Operations is every operation of this package, for the API and the completer.
func (s *Service) Operations() map[string]idempotency.Operation {
	return map[string]idempotency.Operation{Create: {Begin: s.begin, Run: s.run}}
}

// Paths are where the API shows checkouts.
func Paths() ids.Paths { return ids.Paths{ids.Checkout: "/v1/checkouts/"} }
