package payments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
)

// KeyStory is everything known about a key, for the person who is asked whether a
// customer was charged twice. The stored answer is not in it.
type KeyStory struct {
	Object        string         `json:"object"`
	Key           string         `json:"key"`
	State         string         `json:"state"`
	Operation     string         `json:"operation"`
	RequestID     string         `json:"request_id"`
	Resource      StoryResource  `json:"resource"`
	Attempts      int32          `json:"attempts"`
	RecoveryPoint string         `json:"recovery_point"`
	CreatedAt     instant        `json:"created_at"`
	FinishedAt    *instant       `json:"finished_at"`
	ExpiresAt     *instant       `json:"expires_at"`
	AnswerStatus  *int16         `json:"answer_status"`
	LastError     *string        `json:"last_error"`
	Trail         []StoryStep    `json:"trail"`
	Calls         []StoryCall    `json:"provider_calls"`
	Webhooks      []StoryWebhook `json:"webhooks"`
	Events        []StoryEvent   `json:"events"`
	Verdict       string         `json:"verdict"`
}

// StoryResource is what the key made.
type StoryResource struct {
	ID   string `json:"id"`
	Href string `json:"href"`
}

// StoryStep is a recovery point reached, or a takeover by another holder.
type StoryStep struct {
	LeaseToken    int64   `json:"lease_token"`
	RecoveryPoint string  `json:"recovery_point"`
	At            instant `json:"at"`
}

// StoryCall is what was sent to Stripe under one of its keys.
type StoryCall struct {
	Operation   string           `json:"operation"`
	StripeKey   string           `json:"stripe_key"`
	Outcome     db.StripeOutcome `json:"outcome"`
	Attempts    int32            `json:"attempts"`
	FirstSentAt instant          `json:"first_sent_at"`
	LastSentAt  instant          `json:"last_sent_at"`
	HTTPStatus  *int16           `json:"http_status"`
	ErrorCode   *string          `json:"error_code"`
	ObjectID    *string          `json:"object_id"`
	RequestIDs  []string         `json:"request_ids"`
}

// StoryWebhook is an event received from Stripe.
type StoryWebhook struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	ReceivedAt instant  `json:"received_at"`
	AppliedAt  *instant `json:"applied_at"`
}

// StoryEvent is an event that we published.
type StoryEvent struct {
	ID          string   `json:"id"`
	Type        string   `json:"type"`
	Time        instant  `json:"time"`
	PublishedAt *instant `json:"published_at"`
}

// The states of a key, as its story has them.
const (
	storyInFlight = "in_flight"
	storyWaiting  = "waiting"
	storyParked   = "parked"
	storyFinished = "finished"
	storyExpired  = "expired"
)

// made is what a key has created or is about, as far as it exists.
type made struct {
	order    *db.Order
	payment  *db.Payment
	refund   *db.Refund
	checkout *db.Checkout
}

// KeyStory returns the story of a caller's key, or ErrNotFound. retention is how long
// answers are kept.
func (s *Service) KeyStory(ctx context.Context, tenantID, key string, retention time.Duration) (KeyStory, error) {
	if strings.Contains(key, " ") {
		return KeyStory{}, ErrNotFound // It is a key of our own.
	}
	return s.StoryOf(ctx, tenantID, key, retention)
}

// StoryOf is KeyStory for an operator, who may also see our own keys.
func (s *Service) StoryOf(ctx context.Context, tenantID, key string, retention time.Duration) (KeyStory, error) {
	row, err := s.pool.KeyHistoryKey(ctx, db.KeyHistoryKeyParams{TenantID: tenantID, Key: key})
	if err != nil {
		return KeyStory{}, notFound(err, "look up a key")
	}
	m, err := s.madeBy(ctx, row)
	if err != nil {
		return KeyStory{}, err
	}
	story := KeyStory{
		Object: "idempotency_key", Key: key, State: stateOf(row), Operation: row.Operation, RequestID: row.RequestID,
		Resource: StoryResource{row.ResourceID, Href(row.ResourceID)}, Attempts: row.Attempts, RecoveryPoint: row.RecoveryPoint,
		CreatedAt: instant(row.CreatedAt), FinishedAt: instantOf(row.FinishedAt), ExpiresAt: instantOf(row.AnswerDroppedAt),
		AnswerStatus: row.AnswerStatus, LastError: row.LastError, Trail: trailOf(row.History),
	}
	if story.State == storyFinished {
		expires := instant(row.FinishedAt.Add(retention))
		story.ExpiresAt = &expires
	}
	if story.Calls, err = s.storyCalls(ctx, row, m); err != nil {
		return KeyStory{}, err
	}
	if story.Events, err = s.storyEvents(ctx, row, m); err != nil {
		return KeyStory{}, err
	}
	if story.Webhooks, err = s.storyWebhooks(ctx, m, story.Calls); err != nil {
		return KeyStory{}, err
	}
	story.Verdict = verdictOf(row, m, story.Calls)
	return s.withFindings(ctx, story, tenantID, m)
}

// stateOf is the state of a key: finished, or who is to finish it.
func stateOf(row db.KeyHistoryKeyRow) string {
	switch {
	case row.AnswerDroppedAt != nil:
		return storyExpired
	case row.FinishedAt != nil:
		return storyFinished
	case row.Held:
		return storyInFlight
	case row.ParkedAt != nil:
		return storyParked
	}
	return storyWaiting
}

// trailOf reads "<lease token> <recovery point> <time>", as the queries of the
// table of keys write it.
func trailOf(entries []string) []StoryStep {
	trail := []StoryStep{}
	for _, entry := range entries {
		token, rest, _ := strings.Cut(entry, " ")
		point, at, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(token, 10, 64)
		moment, timeErr := time.Parse("2006-01-02 15:04:05.999999Z07", at)
		if err != nil || timeErr != nil {
			panic("bug: a trail that cannot be read: " + entry)
		}
		trail = append(trail, StoryStep{n, point, instant(moment)})
	}
	return trail
}

// madeBy reads the key's resource, and the order it belongs to.
func (s *Service) madeBy(ctx context.Context, row db.KeyHistoryKeyRow) (m made, err error) {
	id := row.ResourceID
	var orderOf, paymentOf string
	switch {
	case isID(checkoutID, id):
		if m.checkout, err = found(s.pool.KeyHistoryCheckout(ctx, db.KeyHistoryCheckoutParams{TenantID: row.TenantID, ID: id})); m.checkout != nil {
			orderOf, paymentOf = deref(m.checkout.OrderID), deref(m.checkout.PaymentID)
		}
	case isID(refundID, id):
		if m.refund, err = found(s.pool.RefundGet(ctx, db.RefundGetParams{TenantID: row.TenantID, ID: id})); m.refund != nil {
			orderOf, paymentOf = m.refund.OrderID, m.refund.PaymentID
		}
	case isID(paymentID, id):
		paymentOf = id
	case isID(orderID, id):
		orderOf = id
	}
	if err == nil && paymentOf != "" {
		if m.payment, err = found(s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: row.TenantID, ID: paymentOf})); m.payment != nil {
			orderOf = m.payment.OrderID
		}
	}
	if err == nil && orderOf != "" {
		m.order, err = found(s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: row.TenantID, ID: orderOf}))
	}
	if err != nil {
		return m, fmt.Errorf("read what a key made: %w", err)
	}
	return m, nil
}

// found returns nil for a row that does not exist.
func found[T any](row T, err error) (*T, error) {
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &row, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (s *Service) storyCalls(ctx context.Context, row db.KeyHistoryKeyRow, m made) ([]StoryCall, error) {
	own := row.TenantID + ":" + row.Key
	p := db.KeyHistoryCallsParams{TenantID: row.TenantID, OwnKeys: []string{own + ":confirm", own + ":refund"}}
	if m.refund != nil {
		p.OwnKeys = append(p.OwnKeys, m.refund.StripeKey) // of a refund that no caller asked for, it names the order
	}
	if m.order != nil && m.refund == nil {
		p.OrderPrefix = row.TenantID + ":" + m.order.ID + ":"
	}
	rows, err := s.pool.KeyHistoryCalls(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read the calls of a key: %w", err)
	}
	calls := []StoryCall{}
	for _, c := range rows {
		calls = append(calls, StoryCall{
			c.Operation, c.StripeKey, c.Outcome, c.Attempts, instant(c.FirstSentAt), instant(c.LastSentAt),
			answered(c.HttpStatus), c.ErrorCode, c.ObjectID, append([]string{}, c.RequestIds...),
		})
	}
	return calls, nil
}

// answered leaves out the status of a response that never came.
func answered(status *int16) *int16 {
	if status != nil && *status == 0 {
		return nil
	}
	return status
}

func (s *Service) storyEvents(ctx context.Context, row db.KeyHistoryKeyRow, m made) ([]StoryEvent, error) {
	about := []string{row.ResourceID}
	if m.checkout != nil && m.payment != nil {
		about = append(about, m.payment.ID)
	}
	if m.order != nil {
		about = append(about, m.order.ID)
	}
	rows, err := s.pool.KeyHistoryEvents(ctx, db.KeyHistoryEventsParams{TenantID: row.TenantID, AggregateIds: about})
	if err != nil {
		return nil, fmt.Errorf("read the events of a key: %w", err)
	}
	events := []StoryEvent{}
	for _, e := range rows {
		events = append(events, StoryEvent{outbox.EventID(e.AggregateID, e.Version), e.Type, instant(e.CreatedAt), instantOf(e.PublishedAt)})
	}
	return events, nil
}

// storyWebhooks are the webhooks about the payment's intent and those that its calls
// made or changed, such as that of a canceled order.
func (s *Service) storyWebhooks(ctx context.Context, m made, calls []StoryCall) ([]StoryWebhook, error) {
	webhooks, about := []StoryWebhook{}, []string{}
	if m.payment != nil && m.payment.IntentID != nil {
		about = append(about, *m.payment.IntentID)
	}
	for _, c := range calls {
		if id := deref(c.ObjectID); strings.HasPrefix(id, "pi_") && !slices.Contains(about, id) {
			about = append(about, id)
		}
	}
	if len(about) == 0 {
		return webhooks, nil
	}
	rows, err := s.pool.KeyHistoryWebhooks(ctx, db.KeyHistoryWebhooksParams{Consumer: StripeEvents, ObjectIds: about})
	if err != nil {
		return nil, fmt.Errorf("read the webhooks of a key: %w", err)
	}
	for _, w := range rows {
		webhooks = append(webhooks, StoryWebhook{w.EventID, w.Type, instant(w.ReceivedAt), instantOf(w.DoneAt)})
	}
	return webhooks, nil
}

// withFindings adds the reconciler's open findings to the verdict: our own rows may be
// the ones that are wrong.
func (s *Service) withFindings(ctx context.Context, story KeyStory, tenantID string, m made) (KeyStory, error) {
	if m.order == nil {
		return story, nil
	}
	details, err := s.pool.KeyHistoryDiscrepancies(ctx, db.KeyHistoryDiscrepanciesParams{TenantID: tenantID, OrderID: m.order.ID})
	if err != nil {
		return story, fmt.Errorf("read the findings of order %s: %w", m.order.ID, err)
	}
	for _, detail := range details {
		story.Verdict += "; a person must look: " + detail
	}
	return story, nil
}

func instantOf(t *time.Time) *instant {
	if t == nil {
		return nil
	}
	i := instant(*t)
	return &i
}
