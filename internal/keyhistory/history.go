package keyhistory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// Options of New.
type Options struct {
	Retention time.Duration // how long answers are kept
	Paths     ids.Paths     // where the API shows what keys made
	// Operations say what the keys of the operations made that are not payments' own, by
	// name. An operation that is not in it is unknown to this service.
	Operations map[string]Describe
}

// Describe reads what a key of an operation made. Nothing may exist yet.
type Describe func(ctx context.Context, q *db.Queries, tenantID, resourceID string) (Made, error)

// Made is what a key made.
type Made struct {
	OrderID, PaymentID string   // that it belongs to; empty: none
	IntentIDs          []string // of PaymentIntents that are not the payment's
	StripeKeys         []string // that it was sent under, beside those that the key's own name leads to
	// Finished is the verdict of a key that is finished; payment is nil if there is none.
	Finished func(payment *db.Payment) string
	// MovesMoney: the outcome of these calls decides whether money has moved.
	MovesMoney []string
}

// Reader reads the history of keys.
type Reader struct {
	pool *postgres.Pool
	o    Options
}

// New returns a reader.
func New(pool *postgres.Pool, o Options) *Reader { return &Reader{pool: pool, o: o} }

// History is everything known about a key, for the person who is asked whether a
// customer was charged twice. The stored answer is not in it.
type History struct {
	Object        string       `json:"object"`
	Key           string       `json:"key"`
	State         string       `json:"state"`
	Operation     string       `json:"operation"`
	RequestID     string       `json:"request_id"`
	Resource      Resource     `json:"resource"`
	Attempts      int32        `json:"attempts"`
	RecoveryPoint string       `json:"recovery_point"`
	CreatedAt     ids.Instant  `json:"created_at"`
	FinishedAt    *ids.Instant `json:"finished_at"`
	ExpiresAt     *ids.Instant `json:"expires_at"`
	AnswerStatus  *int16       `json:"answer_status"`
	LastError     *string      `json:"last_error"`
	Trail         []Step       `json:"trail"`
	Calls         []Call       `json:"provider_calls"`
	Webhooks      []Webhook    `json:"webhooks"`
	Events        []Event      `json:"events"`
	Verdict       string       `json:"verdict"`
}

// Resource is what the key made.
type Resource struct {
	ID   string  `json:"id"`
	Href *string `json:"href"` // nil: this service does not show such objects
}

// Step is a recovery point reached, or a takeover by another holder. How far the first holder came is recorded when the
// second takes over.
type Step struct {
	LeaseToken    int64       `json:"lease_token"`
	RecoveryPoint string      `json:"recovery_point"`
	At            ids.Instant `json:"at"`
}

// Call is what was sent to Stripe under one of its keys.
type Call struct {
	Operation   string           `json:"operation"`
	StripeKey   string           `json:"stripe_key"`
	Outcome     db.StripeOutcome `json:"outcome"`
	Attempts    int32            `json:"attempts"`
	FirstSentAt ids.Instant      `json:"first_sent_at"`
	LastSentAt  ids.Instant      `json:"last_sent_at"`
	HTTPStatus  *int16           `json:"http_status"`
	ErrorCode   *string          `json:"error_code"`
	ObjectID    *string          `json:"object_id"`
	RequestIDs  []string         `json:"request_ids"`
}

// Webhook is an event received from Stripe.
type Webhook struct {
	ID         string       `json:"id"`
	Type       string       `json:"type"`
	ReceivedAt ids.Instant  `json:"received_at"`
	AppliedAt  *ids.Instant `json:"applied_at"`
}

// Event is an event that we published.
type Event struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Time        ids.Instant  `json:"time"`
	PublishedAt *ids.Instant `json:"published_at"`
}

// The states of a key.
const (
	inFlight = "in_flight"
	waiting  = "waiting"
	parked   = "parked"
	finished = "finished"
	expired  = "expired"
)

// made is what a key made, with the rows that it belongs to, as far as they exist.
type made struct {
	Made
	known   bool // the operation is
	order   *db.Order
	payment *db.Payment
	refund  *db.Refund
}

// Get returns the history of a caller's key, or payments.ErrNotFound.
func (r *Reader) Get(ctx context.Context, tenantID, key string) (History, error) {
	if strings.Contains(key, " ") {
		return History{}, payments.ErrNotFound // It is a key of our own.
	}
	return r.GetAny(ctx, tenantID, key)
}

// GetAny is Get for an operator, who may also see our own keys.
func (r *Reader) GetAny(ctx context.Context, tenantID, key string) (History, error) {
	row, err := r.pool.KeyHistoryKey(ctx, db.KeyHistoryKeyParams{TenantID: tenantID, Key: key})
	if errors.Is(err, postgres.ErrNoRows) {
		return History{}, payments.ErrNotFound
	}
	if err != nil {
		return History{}, fmt.Errorf("look up a key: %w", err)
	}
	m, err := r.madeBy(ctx, row)
	if err != nil {
		return History{}, err
	}
	h := History{
		Object: "idempotency_key", Key: key, State: stateOf(row), Operation: row.Operation, RequestID: row.RequestID,
		Resource: Resource{row.ResourceID, postgres.Nullable(r.o.Paths.Href(row.ResourceID))}, Attempts: row.Attempts,
		RecoveryPoint: row.RecoveryPoint, CreatedAt: ids.Instant(row.CreatedAt),
		FinishedAt: ids.InstantOf(row.FinishedAt), ExpiresAt: ids.InstantOf(row.AnswerDroppedAt),
		AnswerStatus: row.AnswerStatus, LastError: WithoutPlaces(row.LastError), Trail: trailOf(row),
	}
	if h.State == finished {
		expires := ids.Instant(row.FinishedAt.Add(r.o.Retention))
		h.ExpiresAt = &expires
	}
	if h.Calls, err = r.calls(ctx, row, m); err != nil {
		return History{}, err
	}
	if h.Events, err = r.events(ctx, row, m); err != nil {
		return History{}, err
	}
	if h.Webhooks, err = r.webhooks(ctx, m, h.Calls); err != nil {
		return History{}, err
	}
	h.Verdict = verdictOf(row, m, h.Calls)
	return r.withDiscrepancies(ctx, h, tenantID, m)
}

// stateOf is the state of a key: finished, or who is to finish it.
func stateOf(row db.KeyHistoryKeyRow) string {
	switch {
	case row.AnswerDroppedAt != nil:
		return expired
	case row.FinishedAt != nil:
		return finished
	case row.Held:
		return inFlight
	case row.ParkedAt != nil:
		return parked
	}
	return waiting
}

// trailOf is the way of a key: from its claim to its end, with the takeovers between them. Entries are "<lease token>
// <recovery point> <time>", as the queries of the table of keys write them; a key with one holder has none.
func trailOf(row db.KeyHistoryKeyRow) []Step {
	trail := []Step{{1, "started", ids.Instant(row.CreatedAt)}}
	for _, entry := range row.History {
		token, rest, _ := strings.Cut(entry, " ")
		point, at, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(token, 10, 64)
		moment, timeErr := time.Parse("2006-01-02 15:04:05.999999Z07", at)
		if err != nil || timeErr != nil {
			panic("bug: a trail that cannot be read: " + entry)
		}
		trail = append(trail, Step{n, point, ids.Instant(moment)})
	}
	if row.FinishedAt != nil && len(row.History) == 0 {
		trail = append(trail, Step{1, row.RecoveryPoint, ids.Instant(*row.FinishedAt)})
	}
	return trail
}

// madeBy reads the key's resource, and the order and payment it belongs to.
func (r *Reader) madeBy(ctx context.Context, row db.KeyHistoryKeyRow) (m made, err error) {
	id := row.ResourceID
	describe, registered := r.o.Operations[row.Operation]
	m.known = registered || builtIn(row.Operation)
	switch {
	case registered:
		m.Made, err = describe(ctx, r.pool.Queries, row.TenantID, id)
	case ids.Is(ids.Refund, id):
		m.refund, err = found(r.pool.RefundGet(ctx, db.RefundGetParams{TenantID: row.TenantID, ID: id}))
		if m.refund != nil {
			m.OrderID, m.PaymentID = m.refund.OrderID, m.refund.PaymentID
		}
	case ids.Is(ids.Payment, id):
		m.PaymentID = id
	case ids.Is(ids.Order, id):
		m.OrderID = id
	}
	if err == nil && m.PaymentID != "" {
		m.payment, err = found(r.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: row.TenantID, ID: m.PaymentID}))
		if m.payment != nil {
			m.OrderID = m.payment.OrderID
		}
	}
	if err == nil && m.OrderID != "" {
		m.order, err = found(r.pool.OrderGet(ctx, db.OrderGetParams{TenantID: row.TenantID, ID: m.OrderID}))
	}
	if err != nil {
		return m, fmt.Errorf("read what a key made: %w", err)
	}
	return m, nil
}

// found returns nil for a row that does not exist.
func found[T any](row T, err error) (*T, error) {
	if errors.Is(err, postgres.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &row, nil
}

func (r *Reader) calls(ctx context.Context, row db.KeyHistoryKeyRow, m made) ([]Call, error) {
	own := row.TenantID + ":" + row.Key
	p := db.KeyHistoryCallsParams{
		TenantID: row.TenantID, Key: row.Key,
		OwnKeys: append([]string{own + ":confirm", own + ":capture", own + ":refund"}, m.StripeKeys...),
	}
	if m.refund != nil {
		p.OwnKeys = append(p.OwnKeys, m.refund.StripeKey) // of a refund that no caller asked for, it names the order
	}
	if m.order != nil && m.refund == nil && len(m.IntentIDs) == 0 {
		p.OrderPrefix, p.OrderID = row.TenantID+":"+m.order.ID+":", m.order.ID
	}
	if !m.known { // It has called what it has called under its own name.
		p.OrderPrefix = own + ":"
	}
	rows, err := r.pool.KeyHistoryCalls(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read the calls of a key: %w", err)
	}
	calls := []Call{}
	for _, c := range rows {
		if !m.known && strings.Contains(strings.TrimPrefix(c.StripeKey, own+":"), ":") {
			continue // of another key, which begins like this one
		}
		calls = append(calls, Call{
			c.Operation, c.StripeKey, c.Outcome, c.Attempts, ids.Instant(c.FirstSentAt), ids.Instant(c.LastSentAt),
			receivedStatus(c.HttpStatus), c.ErrorCode, c.ObjectID, append([]string{}, c.RequestIds...),
		})
	}
	return calls, nil
}

// receivedStatus leaves out the status of a response that never came.
func receivedStatus(status *int16) *int16 {
	if status != nil && *status == 0 {
		return nil
	}
	return status
}

func (r *Reader) events(ctx context.Context, row db.KeyHistoryKeyRow, m made) ([]Event, error) {
	about := []string{row.ResourceID}
	for _, id := range []string{m.PaymentID, m.OrderID} {
		if id != "" && id != row.ResourceID && (m.refund == nil || id != m.PaymentID) {
			about = append(about, id)
		}
	}
	rows, err := r.pool.KeyHistoryEvents(ctx, db.KeyHistoryEventsParams{TenantID: row.TenantID, AggregateIds: about})
	if err != nil {
		return nil, fmt.Errorf("read the events of a key: %w", err)
	}
	events := []Event{}
	for _, e := range rows {
		events = append(events,
			Event{outbox.EventID(e.AggregateID, e.Life+e.Version), e.Type, ids.Instant(e.CreatedAt),
				ids.InstantOf(e.PublishedAt)})
	}
	return events, nil
}

// webhooks are the webhooks about the payment's intent and those that its calls
// made or changed, such as that of a canceled order.
func (r *Reader) webhooks(ctx context.Context, m made, calls []Call) ([]Webhook, error) {
	webhooks, about := []Webhook{}, slices.Clone(m.IntentIDs)
	if m.payment != nil && m.payment.IntentID != nil {
		about = append(about, *m.payment.IntentID)
	}
	for _, c := range calls {
		if id := postgres.Deref(c.ObjectID); strings.HasPrefix(id, "pi_") && !slices.Contains(about, id) {
			about = append(about, id)
		}
	}
	if len(about) == 0 {
		return webhooks, nil
	}
	// A webhook has no tenant, but for those about a refund. The objects are of the tenant's own rows.
	ctx = postgres.ForAllTenants(ctx, "the webhooks about an object")
	rows, err := r.pool.KeyHistoryWebhooks(ctx, db.KeyHistoryWebhooksParams{
		Consumer: payments.StripeEvents, ObjectIds: about,
	})
	if err != nil {
		return nil, fmt.Errorf("read the webhooks of a key: %w", err)
	}
	for _, w := range rows {
		webhooks = append(webhooks, Webhook{w.EventID, w.Type, ids.Instant(w.ReceivedAt), ids.InstantOf(w.DoneAt)})
	}
	return webhooks, nil
}

// withDiscrepancies adds the reconciler's open discrepancies to the verdict: our own
// rows may be the ones that are wrong.
func (r *Reader) withDiscrepancies(ctx context.Context, h History, tenantID string, m made) (History, error) {
	if m.order == nil {
		return h, nil
	}
	details, err := r.pool.KeyHistoryDiscrepancies(ctx, db.KeyHistoryDiscrepanciesParams{
		TenantID: tenantID, OrderID: m.order.ID,
	})
	if err != nil {
		return h, fmt.Errorf("read the discrepancies of order %s: %w", m.order.ID, err)
	}
	for _, detail := range details {
		h.Verdict += "; an operator must look: " + detail
	}
	return h, nil
}
