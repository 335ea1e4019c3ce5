package disputes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// Gateway is what this package reads at Stripe; stripe.Client is it.
type Gateway interface {
	// GetDispute reads a dispute with its balance transactions.
	GetDispute(ctx context.Context, id string) (stripe.Dispute, error)
	// ListDisputes lists what was created in a window, newest first, one page at a time.
	ListDisputes(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Dispute], error)
	// DisputesOf lists the disputes of an intent.
	DisputesOf(ctx context.Context, intentID string) ([]stripe.Dispute, error)
	// GetIntent reads the intent of a dispute that is not recorded, whose metadata names the order.
	GetIntent(ctx context.Context, tenantID, intentID string) (stripe.Intent, error)
}

// Options of New.
type Options struct {
	Metrics *Metrics // may be nil
	Log     *slog.Logger
}

// Adopter adopts the intents of disputes; payments.Repairs is it.
type Adopter interface {
	// AdoptDisputed adopts an intent that no payment has. Not pending: none will have it.
	AdoptDisputed(ctx context.Context, i stripe.Intent) (pending bool, err error)
}

// Service records disputes. It holds no state of its own.
type Service struct {
	pool    *postgres.Pool
	gateway Gateway
	metrics *Metrics
	log     *slog.Logger
	adopter Adopter // nil: the reconciler alone adopts
}

// AdoptWith has intents adopted to which a dispute leads. It is called once, before the service is used: the payments
// that adopt need the disputes first.
func (s *Service) AdoptWith(a Adopter) { s.adopter = a }

// New returns the service. It starts nothing.
func New(pool *postgres.Pool, gateway Gateway, o Options) *Service {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{pool: pool, gateway: gateway, metrics: o.Metrics, log: o.Log}
}

// Dispute is a dispute as the API shows it.
type Dispute struct {
	ID            string          `json:"id"`
	Object        string          `json:"object"`
	Status        string          `json:"status"`
	PaymentID     string          `json:"payment_id"`
	OrderID       string          `json:"order_id"`
	Amount        int64           `json:"amount"`
	Fee           int64           `json:"fee"`
	Currency      string          `json:"currency"`
	Reason        string          `json:"reason"`
	EvidenceDueBy *ids.Instant    `json:"evidence_due_by"`
	Stripe        DisputeAtStripe `json:"stripe"`
	CreatedAt     ids.Instant     `json:"created_at"`
}

// DisputeAtStripe is the id of Stripe's object.
type DisputeAtStripe struct {
	Dispute string `json:"dispute"`
}

func disputeOf(row db.Dispute) Dispute {
	return Dispute{
		ID: row.ID, Object: "dispute", Status: row.Status, PaymentID: row.PaymentID, OrderID: row.OrderID,
		Amount: row.AmountMinor, Fee: row.FeeMinor, Currency: row.Currency, Reason: row.Reason,
		EvidenceDueBy: ids.InstantOf(row.EvidenceDueBy), Stripe: DisputeAtStripe{Dispute: row.StripeDisputeID},
		CreatedAt: ids.Instant(row.CreatedAt),
	}
}

// Paths are where the API shows disputes.
func Paths() ids.Paths { return ids.Paths{ids.Dispute: "/v1/disputes/"} }

// Get returns one dispute of the tenant, or payments.ErrNotFound.
func (s *Service) Get(ctx context.Context, tenantID, id string) (Dispute, error) {
	row, err := s.get(ctx, tenantID, id)
	return disputeOf(row), err
}

func (s *Service) get(ctx context.Context, tenantID, id string) (db.Dispute, error) {
	if !ids.Is(ids.Dispute, id) {
		return db.Dispute{}, payments.ErrNotFound
	}
	row, err := s.pool.DisputeGet(ctx, db.DisputeGetParams{TenantID: tenantID, ID: id})
	if errors.Is(err, postgres.ErrNoRows) {
		return row, payments.ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("get dispute %s: %w", id, err)
	}
	return row, nil
}

// Filter says which disputes a list has; empty members say nothing.
type Filter struct{ PaymentID, OrderID, Status string }

// ErrUnknownStatus means that no dispute can have the status that a list is filtered by.
var ErrUnknownStatus = errors.New("no dispute has this status")

// documented reports whether Stripe documents the status: those of today, and two that older disputes have.
func documented(status string) bool {
	switch status {
	case "warning_needs_response", "warning_under_review", "warning_closed", "needs_response", "under_review", "won",
		"lost", "charge_refunded", "prevented":
		return true
	}
	return false
}

func (f Filter) has(row db.Dispute) bool {
	return (f.PaymentID == "" || f.PaymentID == row.PaymentID) && (f.OrderID == "" || f.OrderID == row.OrderID) &&
		(f.Status == "" || f.Status == row.Status)
}

// List returns up to limit disputes, newest first, that come after the one named (empty:
// from the start), and whether there are more. payments.ErrNotFound: the tenant has no
// dispute of that id, or it is not of the payment or order. ErrUnknownStatus: Stripe does not document the status, and no
// dispute of the tenant has it, as one would if Stripe had added it.
func (s *Service) List(ctx context.Context, tenantID string, f Filter, after string, limit int) (
	[]Dispute, bool, error,
) {
	beforeAt, beforeID := farFuture, ""
	if f.Status != "" && !documented(f.Status) {
		rows, err := s.list(ctx, tenantID, Filter{Status: f.Status}, beforeAt, beforeID, 1)
		if err != nil {
			return nil, false, fmt.Errorf("look for disputes of a status: %w", err)
		}
		if len(rows) == 0 {
			return nil, false, ErrUnknownStatus
		}
	}
	if after != "" {
		row, err := s.get(ctx, tenantID, after)
		if err != nil {
			return nil, false, err
		}
		// Its status may have changed since the page before was read, and then it still says where the next begins.
		if !(Filter{PaymentID: f.PaymentID, OrderID: f.OrderID}).has(row) {
			return nil, false, payments.ErrNotFound
		}
		beforeAt, beforeID = row.CreatedAt, row.ID
	}
	rows, err := s.list(ctx, tenantID, f, beforeAt, beforeID, int32(limit+1)) //nolint:gosec // at most 101
	if err != nil {
		return nil, false, fmt.Errorf("list disputes: %w", err)
	}
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	list := []Dispute{}
	for _, row := range rows {
		if f.has(row) { // A payment of another order has no dispute of this one.
			list = append(list, disputeOf(row))
		}
	}
	return list, more && len(list) > 0, nil
}

// farFuture is later than every dispute.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *Service) list(
	ctx context.Context, tenantID string, f Filter, beforeAt time.Time, beforeID string, limit int32,
) ([]db.Dispute, error) {
	switch {
	case f.PaymentID != "":
		return s.pool.DisputeListOfPayment(ctx, db.DisputeListOfPaymentParams{
			TenantID: tenantID, PaymentID: f.PaymentID, Status: f.Status, BeforeAt: beforeAt, BeforeID: beforeID,
			LimitRows: limit,
		})
	case f.OrderID != "":
		return s.pool.DisputeListOfOrder(ctx, db.DisputeListOfOrderParams{
			TenantID: tenantID, OrderID: f.OrderID, Status: f.Status, BeforeAt: beforeAt, BeforeID: beforeID,
			LimitRows: limit,
		})
	case f.Status != "":
		return s.pool.DisputeListOfStatus(ctx, db.DisputeListOfStatusParams{
			TenantID: tenantID, Status: f.Status, BeforeAt: beforeAt, BeforeID: beforeID, LimitRows: limit,
		})
	}
	return s.pool.DisputeList(ctx, db.DisputeListParams{
		TenantID: tenantID, BeforeAt: beforeAt, BeforeID: beforeID, LimitRows: limit,
	})
}

// AllowsRefund implements payments.Disputes. The caller holds the payment's row lock, and so does whoever records a
// dispute of it: one of the two comes first.
func (s *Service) AllowsRefund(ctx context.Context, q *db.Queries, p db.Payment) error {
	disputed, err := q.DisputeStandsInTheWay(ctx, db.DisputeStandsInTheWayParams{
		TenantID: p.TenantID, PaymentID: p.ID,
	})
	if err != nil {
		return fmt.Errorf("look for disputes of payment %s: %w", p.ID, err)
	}
	if disputed {
		return payments.ErrPaymentDisputed
	}
	return nil
}

// LostOf implements payments.Disputes.
func (s *Service) LostOf(ctx context.Context, intentID string) (lost int64, err error) {
	list, err := s.gateway.DisputesOf(ctx, intentID)
	for _, d := range list {
		if d.Status == "lost" {
			lost += d.AmountMinor
		}
	}
	return lost, err
}

// ReadOf implements payments.Disputes.
func (s *Service) ReadOf(ctx context.Context, order compare.OrderRef, intentID string) error {
	list, err := s.gateway.DisputesOf(ctx, intentID)
	if err != nil {
		return err
	}
	var failed []error
	for _, d := range list {
		failed = append(failed, s.readAs(ctx, d.ID, order))
	}
	return errors.Join(failed...)
}
