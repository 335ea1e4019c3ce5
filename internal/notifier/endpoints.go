package notifier

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

const (
	// EndpointsMax is how many endpoints a tenant may have. Nothing deletes one. The table enforces it.
	EndpointsMax = 10
	// RotationGrace is how long the secret before the newest signs deliveries, too.
	RotationGrace = 24 * time.Hour
	// failsFor is how long every attempt must have failed, before an endpoint is disabled.
	failsFor = 72 * time.Hour

	secretBytes   = 32
	secretPrefix  = "whsec_" // of Standard Webhooks
	disabledEvent = "webhook_endpoint.disabled"
)

// The operations. Their names are stored with each key.
const (
	CreateEndpoint  = "create_webhook_endpoint"
	DisableEndpoint = "disable_webhook_endpoint"
	EnableEndpoint  = "enable_webhook_endpoint"
	RotateSecret    = "rotate_webhook_secret" //nolint:gosec // an operation
	TestEndpoint    = "test_webhook_endpoint"
	RetryDelivery   = "retry_webhook_delivery"
)

// ErrTooManyEndpoints means that the tenant has EndpointsMax endpoints.
var ErrTooManyEndpoints = fmt.Errorf("a tenant may have %d webhook endpoints", EndpointsMax)

// Endpoint is a webhook endpoint as the API shows it.
type Endpoint struct {
	ID          string      `json:"id"`
	Object      string      `json:"object"`
	URL         string      `json:"url"`
	Events      []string    `json:"events"`
	Description *string     `json:"description"`
	Status      string      `json:"status"`
	Secret      string      `json:"secret,omitempty"` // only when it is new
	CreatedAt   ids.Instant `json:"created_at"`
}

func endpointOf(row db.WebhookEndpoint) Endpoint {
	e := Endpoint{
		ID: row.ID, Object: "webhook_endpoint", URL: row.Url, Events: row.EventTypes, Description: row.Description,
		Status: "enabled", CreatedAt: ids.Instant(row.CreatedAt),
	}
	if row.DisabledAt != nil {
		e.Status = "disabled"
	}
	return e
}

// EndpointRequest is what POST /v1/webhook-endpoints asks for, decoded and validated, but for where its host is.
type EndpointRequest struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // types, or a star alone
	Description *string  `json:"description"`
}

// IDRequest is the request of what is done to one endpoint or delivery: the id of its path.
type IDRequest struct {
	ID string `json:"id"`
}

// Endpoints are what tenants do with their endpoints. It holds no state of its own.
type Endpoints struct {
	pool         *postgres.Pool
	keys         *idempotency.Store
	answers      payments.Answers
	allowPrivate bool
}

// NewEndpoints returns the service. allowPrivate is that of Options.
func NewEndpoints(
	pool *postgres.Pool, keys *idempotency.Store, answers payments.Answers, allowPrivate bool,
) *Endpoints {
	return &Endpoints{pool: pool, keys: keys, answers: answers, allowPrivate: allowPrivate}
}

// Paths are where the API shows endpoints and deliveries.
func Paths() ids.Paths {
	return ids.Paths{ids.Endpoint: "/v1/webhook-endpoints/", ids.Delivery: "/v1/webhook-deliveries/"}
}

// Operations is every operation of this package.
func (s *Endpoints) Operations() map[string]idempotency.Operation {
	all := map[string]idempotency.Operation{
		CreateEndpoint: {Begin: s.create, Run: neverRuns},
		TestEndpoint:   {Begin: s.beginTest, Run: s.awaitAttempt},
		RetryDelivery:  {Begin: s.beginRetry, Run: s.awaitAttempt},
	}
	for name, change := range map[string]func(context.Context, *db.Queries, db.WebhookEndpoint) (Endpoint, error){
		DisableEndpoint: s.disable, EnableEndpoint: s.enable, RotateSecret: s.rotate,
	} {
		maps.Copy(all, map[string]idempotency.Operation{name: {Begin: s.changing(change), Run: neverRuns}})
	}
	return all
}

// neverRuns is the Run of an operation that finishes in its first phase.
func neverRuns(_ context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	panic(fmt.Sprintf("bug: %s has no second phase, but is at %q", c.Operation, c.RecoveryPoint()))
}

// create makes an endpoint and its secret. Where its host is, is asked for a new key only: a replay tells what was made,
// whatever the name resolves to by then.
func (s *Endpoints) create(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	request := idempotency.Decode[EndpointRequest](r.Body)
	if err := CheckURL(ctx, request.URL, s.allowPrivate); err != nil {
		return nil, idempotency.Answer{}, &payments.InvalidError{Pointer: "/url", Message: err.Error()}
	}
	id := ids.New(ids.Endpoint)
	row := db.WebhookEndpoint{
		TenantID: r.TenantID, ID: id, Url: request.URL, EventTypes: request.Events, Description: request.Description,
		CreatedAt: ids.Time(id),
	}
	answer, err := s.keys.BeginFinished(ctx, r, id, func(q *db.Queries) (idempotency.Answer, error) {
		n, err := q.EndpointCount(ctx, r.TenantID)
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("count the webhook endpoints of %s: %w", r.TenantID, err)
		}
		if n >= EndpointsMax {
			return s.answers.Problem(ErrTooManyEndpoints, r.RequestID), nil
		}
		made, err := q.EndpointInsert(ctx, db.EndpointInsertParams{
			TenantID: row.TenantID, ID: row.ID, Number: int16(n + 1), Url: row.Url, EventTypes: row.EventTypes, //nolint:gosec // ten at most
			Description: row.Description, CreatedAt: row.CreatedAt,
		})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("insert webhook endpoint %s: %w", id, err)
		}
		if made == 0 {
			return idempotency.Answer{}, idempotency.ErrTaken // Another was made meanwhile: start over.
		}
		shown := endpointOf(row)
		shown.Secret, err = newSecret(ctx, q, s.pool.Box(), row.TenantID, id)
		return s.answers.Object(http.StatusCreated, "/v1/webhook-endpoints/"+id, shown), err
	})
	return nil, answer, err
}

// changing is the Begin of an operation that changes one endpoint, in one transaction with its answer.
func (s *Endpoints) changing(
	change func(context.Context, *db.Queries, db.WebhookEndpoint) (Endpoint, error),
) func(context.Context, idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	return func(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
		id := idempotency.Decode[IDRequest](r.Body).ID
		if !ids.Is(ids.Endpoint, id) {
			return nil, idempotency.Answer{}, payments.ErrNotFound
		}
		answer, err := s.keys.BeginFinished(ctx, r, id, func(q *db.Queries) (idempotency.Answer, error) {
			row, err := q.EndpointLock(ctx, db.EndpointLockParams{TenantID: r.TenantID, ID: id})
			if err != nil {
				return idempotency.Answer{}, notFound(err, "lock webhook endpoint %s", id)
			}
			shown, err := change(ctx, q, row)
			return s.answers.Object(http.StatusOK, "", shown), err
		})
		return nil, answer, err
	}
}

// disable stops deliveries to an endpoint. Those that wait are skipped by the notifier.
func (s *Endpoints) disable(ctx context.Context, q *db.Queries, row db.WebhookEndpoint) (Endpoint, error) {
	if row.DisabledAt != nil {
		return endpointOf(row), nil
	}
	row, err := q.EndpointDisable(ctx, db.EndpointDisableParams{TenantID: row.TenantID, ID: row.ID})
	if err != nil {
		return Endpoint{}, fmt.Errorf("disable webhook endpoint %s: %w", row.ID, err)
	}
	return endpointOf(row), nil
}

func (s *Endpoints) enable(ctx context.Context, q *db.Queries, row db.WebhookEndpoint) (Endpoint, error) {
	row, err := q.EndpointEnable(ctx, db.EndpointEnableParams{TenantID: row.TenantID, ID: row.ID})
	if err != nil {
		return Endpoint{}, fmt.Errorf("enable webhook endpoint %s: %w", row.ID, err)
	}
	return endpointOf(row), nil
}

func (s *Endpoints) rotate(ctx context.Context, q *db.Queries, row db.WebhookEndpoint) (Endpoint, error) {
	if err := endSecret(ctx, q, row.TenantID, row.ID, RotationGrace); err != nil {
		return Endpoint{}, err
	}
	shown := endpointOf(row)
	var err error
	shown.Secret, err = newSecret(ctx, q, s.pool.Box(), row.TenantID, row.ID)
	return shown, err
}

// disableFailing disables an endpoint whose attempts have failed for so long (0: any), and says so in an event. It does
// nothing if it is disabled, or has recovered.
func disableFailing(
	ctx context.Context, q *db.Queries, tenantID, id string, failed time.Duration,
) (disabled bool, err error) {
	row, err := q.EndpointDisable(ctx, db.EndpointDisableParams{
		TenantID: tenantID, ID: id, Events: 1, FailingFor: failed,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("disable webhook endpoint %s: %w", id, err)
	}
	return true, outbox.Append(ctx, q, outbox.Event{
		TenantID: tenantID, AggregateID: id, Version: row.Version, Type: disabledEvent, Data: outbox.Data(disabledOf(row)),
	})
}

// disabledOf is an endpoint as its event shows it, which is sent to the tenant's other endpoints: of its URL only the host,
// because path and query may be a secret.
func disabledOf(row db.WebhookEndpoint) Endpoint {
	e := endpointOf(row)
	if u, err := url.Parse(e.URL); err == nil {
		e.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}).String()
	}
	return e
}

// newSecret makes an endpoint's next secret, and returns it as Standard Webhooks writes it.
func newSecret(ctx context.Context, q *db.Queries, box *sealed.Box, tenantID, endpointID string) (string, error) {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key), setSecret(ctx, q, box, tenantID, endpointID, key)
}

func setSecret(ctx context.Context, q *db.Queries, box *sealed.Box, tenantID, endpointID string, key []byte) error {
	version, err := q.SecretNextVersion(ctx, db.SecretNextVersionParams{TenantID: tenantID, EndpointID: endpointID})
	if err == nil {
		err = q.SecretInsert(ctx, db.SecretInsertParams{
			TenantID: tenantID, EndpointID: endpointID, Version: version,
			Secret: box.Seal(secretPlace(tenantID, endpointID, version), key),
		})
	}
	if err != nil {
		return fmt.Errorf("set the secret of webhook endpoint %s: %w", endpointID, err)
	}
	return nil
}

// endSecret has the newest secret of an endpoint end after the grace, and removes those before it.
func endSecret(ctx context.Context, q *db.Queries, tenantID, endpointID string, grace time.Duration) error {
	err := q.SecretsRemoveOlder(ctx, db.SecretsRemoveOlderParams{TenantID: tenantID, EndpointID: endpointID})
	if err == nil {
		err = q.SecretEnd(ctx, db.SecretEndParams{TenantID: tenantID, EndpointID: endpointID, Grace: grace})
	}
	if err != nil {
		return fmt.Errorf("end the secret of webhook endpoint %s: %w", endpointID, err)
	}
	return nil
}

func secretPlace(tenantID, endpointID string, version int64) sealed.Place {
	return sealed.WebhookSecret(tenantID, endpointID+" "+strconv.FormatInt(version, 10))
}

// SetEndpoint sets the URL of the one endpoint of a tenant that operators set: its events are sent there from now on,
// whatever other endpoints it has. secret is what the tenant verifies the signature with: "whsec_" and base64. It accepts
// private addresses, which are refused when they are dialled: CheckURL tells before.
func SetEndpoint(ctx context.Context, pool *postgres.Pool, tenantID, endpoint, secret string) error {
	if _, err := parseURL(endpoint); err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return errors.New(`a webhook's secret must be "whsec_" and 24 to 64 bytes in base64`)
	}
	id := operatorEndpoint(tenantID)
	err = pool.InTx(ctx, func(q *db.Queries) error {
		if err := q.EndpointSet(ctx, db.EndpointSetParams{TenantID: tenantID, ID: id, Url: endpoint}); err != nil {
			return err
		}
		if err := endSecret(ctx, q, tenantID, id, 0); err != nil {
			return err
		}
		return setSecret(ctx, q, pool.Box(), tenantID, id, key)
	})
	if err != nil {
		return fmt.Errorf("set the webhook endpoint of %s: %w", tenantID, err)
	}
	return nil
}

// operatorEndpoint is the id of the endpoint of a tenant that operators set.
func operatorEndpoint(tenantID string) string { return ids.Keyed(ids.Endpoint, tenantID, "operator") }

// Get returns one endpoint of the tenant, or payments.ErrNotFound.
func (s *Endpoints) Get(ctx context.Context, tenantID, id string) (Endpoint, error) {
	if !ids.Is(ids.Endpoint, id) {
		return Endpoint{}, payments.ErrNotFound
	}
	row, err := s.pool.EndpointGet(ctx, db.EndpointGetParams{TenantID: tenantID, ID: id})
	return endpointOf(row), notFound(err, "get webhook endpoint %s", id)
}

// List returns up to limit endpoints, newest first, that come after the one named (empty: from the first), and whether
// there are more. payments.ErrNotFound: the tenant has no such endpoint.
func (s *Endpoints) List(
	ctx context.Context, tenantID, after string, limit int,
) (list []Endpoint, more bool, err error) {
	if after != "" {
		if _, err := s.Get(ctx, tenantID, after); err != nil {
			return nil, false, err
		}
	}
	rows, err := s.pool.EndpointList(ctx, db.EndpointListParams{
		TenantID: tenantID, After: after, LimitRows: int32(limit + 1), //nolint:gosec // 101 at most
	})
	if err != nil {
		return nil, false, fmt.Errorf("list webhook endpoints: %w", err)
	}
	more = len(rows) > limit
	for _, row := range rows[:min(len(rows), limit)] {
		list = append(list, endpointOf(row))
	}
	return list, more, nil
}

// notFound is payments.ErrNotFound for an error that says that there is no row.
func notFound(err error, format, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, postgres.ErrNoRows):
		return payments.ErrNotFound
	}
	return fmt.Errorf(format+": %w", id, err)
}
