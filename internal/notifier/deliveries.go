package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// pingType is the type of a test event. It goes to one endpoint, whatever types that wants, and is in no feed.
const pingType = "ping"

// deliveryQueued is the recovery point of a test and a retry: the delivery is to be made.
const deliveryQueued = "delivery_queued"

// attemptSoon is the pause before the completer looks for the attempt again.
const attemptSoon = 2 * time.Second

// Delivery is a delivery as the API shows it.
type Delivery struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	EndpointID    string            `json:"endpoint_id"`
	EventID       string            `json:"event_id"`
	Type          string            `json:"type"`
	Status        db.DeliveryStatus `json:"status"`
	Attempts      int32             `json:"attempts"`
	LastStatus    *int32            `json:"last_status"`
	LastAttemptAt *ids.Instant      `json:"last_attempt_at"`
	NextAttemptAt *ids.Instant      `json:"next_attempt_at"`
	CreatedAt     ids.Instant       `json:"created_at"`
}

func deliveryOf(row db.DeliveryGetRow) Delivery {
	d := Delivery{
		ID: row.ID, Object: "webhook_delivery", EndpointID: row.EndpointID, EventID: row.EventID, Type: row.EventType,
		Status: row.Status, Attempts: row.Attempts, LastStatus: row.HttpStatus,
		LastAttemptAt: ids.InstantOf(row.LastAttemptAt), CreatedAt: ids.Instant(row.CreatedAt),
	}
	if row.Status == db.DeliveryStatusPending {
		d.NextAttemptAt = ids.InstantOf(&row.NextAttemptAt)
	}
	return d
}

// Deliveries returns up to limit deliveries to an endpoint, newest first, that have the status (empty: any) and come after
// the one named (empty: from the first), and whether there are more. payments.ErrNotFound: the tenant has no such
// endpoint; ErrNoSuchDelivery: the endpoint has no such delivery.
func (s *Endpoints) Deliveries(
	ctx context.Context, tenantID, endpointID string, status db.DeliveryStatus, after string, limit int,
) (list []Delivery, more bool, err error) {
	if _, err := s.Get(ctx, tenantID, endpointID); err != nil {
		return nil, false, err
	}
	if after != "" {
		row, err := s.delivery(ctx, tenantID, after)
		if errors.Is(err, payments.ErrNotFound) || err == nil && row.EndpointID != endpointID {
			return nil, false, ErrNoSuchDelivery
		}
		if err != nil {
			return nil, false, err
		}
	}
	var statuses []string
	for _, each := range db.AllDeliveryStatusValues() {
		if status == "" || status == each {
			statuses = append(statuses, string(each))
		}
	}
	rows, err := s.pool.DeliveryList(ctx, db.DeliveryListParams{
		TenantID: tenantID, EndpointID: endpointID, Statuses: statuses, After: after,
		LimitRows: int32(limit + 1), //nolint:gosec // 101 at most
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the deliveries to %s: %w", endpointID, err)
	}
	more = len(rows) > limit
	for _, row := range rows[:min(len(rows), limit)] {
		list = append(list, deliveryOf(db.DeliveryGetRow{
			ID: row.ID, EndpointID: row.EndpointID, EventID: row.EventID, EventType: row.EventType, Status: row.Status,
			Attempts: row.Attempts, HttpStatus: row.HttpStatus, LastAttemptAt: row.LastAttemptAt,
			NextAttemptAt: row.NextAttemptAt, CreatedAt: row.CreatedAt,
		}))
	}
	return list, more, nil
}

// Delivery returns one delivery of the tenant, or payments.ErrNotFound.
func (s *Endpoints) Delivery(ctx context.Context, tenantID, id string) (Delivery, error) {
	row, err := s.delivery(ctx, tenantID, id)
	return deliveryOf(row), err
}

// ErrNoSuchDelivery means that an endpoint has no delivery with this id.
var ErrNoSuchDelivery = errors.New("the endpoint has no such delivery")

func (s *Endpoints) delivery(ctx context.Context, tenantID, id string) (db.DeliveryGetRow, error) {
	if !ids.Is(ids.Delivery, id) {
		return db.DeliveryGetRow{}, payments.ErrNotFound
	}
	row, err := s.pool.DeliveryGet(ctx, db.DeliveryGetParams{TenantID: tenantID, ID: id})
	return row, notFound(err, "get webhook delivery %s", id)
}

// beginTest writes a delivery of a test event.
func (s *Endpoints) beginTest(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	endpoint, err := s.Get(ctx, r.TenantID, idempotency.Decode[IDRequest](r.Body).ID)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	id := ids.New(ids.Delivery) // in the list it is where its time puts it
	body, err := json.Marshal(outbox.Envelope{
		ID: id, Type: pingType, Subject: endpoint.ID, TenantID: r.TenantID, Version: 1, Time: time.Now(),
		Data: outbox.Data(endpoint),
	})
	if err != nil {
		return nil, idempotency.Answer{}, fmt.Errorf("encode a test event: %w", err)
	}
	claim, err := s.keys.Begin(ctx, r, id, deliveryQueued, func(q *db.Queries) error {
		return q.DeliveryInsert(ctx, db.DeliveryInsertParams{
			TenantID: r.TenantID, ID: id, EndpointID: endpoint.ID, EventID: id, EventType: pingType, Body: body,
		})
	})
	return claim, idempotency.Answer{}, err
}

// beginRetry has a delivery made again. One that waits for its next attempt is made now, and one that arrived arrives
// again, under the same event id.
func (s *Endpoints) beginRetry(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	row, err := s.delivery(ctx, r.TenantID, idempotency.Decode[IDRequest](r.Body).ID)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	claim, err := s.keys.Begin(ctx, r, row.ID, deliveryQueued, func(q *db.Queries) error {
		_, err := q.DeliveryRequeue(ctx, db.DeliveryRequeueParams{TenantID: r.TenantID, ID: row.ID})
		return err // No row is changed of one whose endpoint is disabled: the answer shows it.
	})
	return claim, idempotency.Answer{}, err
}

// awaitAttempt is 202 until the delivery has been tried, and then shows it. It does not wait until the delivery has
// arrived, which may take days.
func (s *Endpoints) awaitAttempt(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	row, err := s.delivery(ctx, c.TenantID, c.ResourceID)
	if err != nil {
		return idempotency.Answer{}, err
	}
	shown := deliveryOf(row)
	if !row.Tried { // an attempt that has begun says nothing yet
		waits := s.answers.Object(http.StatusAccepted, "", shown)
		return waits, c.YieldFor(ctx, attemptSoon, errors.New("the delivery has not been tried yet"))
	}
	var answer idempotency.Answer
	err = c.Finish(ctx, func(*db.Queries) (idempotency.Answer, error) {
		answer = s.answers.Object(http.StatusOK, "", shown)
		return answer, nil
	})
	return answer, err
}
