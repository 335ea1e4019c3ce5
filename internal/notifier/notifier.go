package notifier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// Name is the notifier's name as a consumer, at the broker and in the inbox.
const Name = "notifier"

const (
	sendWithin     = 15 * time.Second // one attempt; Standard Webhooks asks for 15 to 30 s
	leaseDefault   = 60 * time.Second // how long a delivery waits if its process was killed
	recordWithin   = 5 * time.Second  // for recording the outcome, also during shutdown
	inFlightMax    = 32               // attempts in progress to endpoints that respond
	perEndpointMax = 8                // of these to one endpoint
	skipMax        = 1000             // deliveries of disabled endpoints that are skipped at once
	slowAfter      = time.Second      // an endpoint that takes longer is slow, until it is not
	slowMax        = 64               // attempts in progress to slow endpoints, one each
	roundWithin    = time.Second      // after this the next round starts, while slow attempts continue
	statsEvery     = 5 * time.Second
	// unreadableFor is how long a process leaves an endpoint alone whose secret it cannot decrypt.
	unreadableFor = time.Minute
)

const _ = uint(leaseDefault - sendWithin - recordWithin) // an attempt must end before its lease does

// retryAfter are the pauses between attempts: about three days in all.
var retryAfter = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour,
}

// Handler writes a delivery of each event for every endpoint of its tenant that wants its type.
func Handler() inbox.Handler {
	return inbox.Handler{Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, _ any) error {
		fresh := make([]string, EndpointsMax)
		for i := range fresh {
			fresh[i] = ids.New(ids.Delivery)
		}
		if _, err := q.DeliveriesCreate(ctx, db.DeliveriesCreateParams{
			TenantID: e.TenantID, EventID: e.ID, EventType: e.Type, Body: e.Payload, Ids: fresh,
		}); err != nil {
			return fmt.Errorf("write the deliveries of %s: %w", e.ID, err)
		}
		return nil
	}}
}

// Options of New. The zero value is valid.
type Options struct {
	AllowPrivate bool // deliver to loopback and private addresses, and over plain HTTP: for development
	Metrics      *Metrics
	Log          *slog.Logger
	Tracer       *tracing.Tracer // nil: off
}

// Notifier sends deliveries. Any number may run, in any number of processes.
type Notifier struct {
	pool     *postgres.Pool
	client   *http.Client
	insecure bool
	metrics  *Metrics
	log      *slog.Logger
	tracer   *tracing.Tracer
	measured time.Time

	lanes lanes

	mu         sync.Mutex
	unrecorded []error // why the outcomes of attempts could not be recorded
}

// New returns a notifier for one loop.
func New(pool *postgres.Pool, o Options) *Notifier {
	n := &Notifier{
		pool: pool, client: newClient(newDialer(o.AllowPrivate)), insecure: o.AllowPrivate,
		metrics: o.Metrics, log: o.Log, tracer: o.Tracer,
		lanes: newLanes(),
	}
	if n.metrics == nil {
		n.metrics = NewMetrics(nil)
	}
	if n.log == nil {
		n.log = slog.Default()
	}
	return n
}

// RunOnce sends the deliveries that are due, a few at once, and returns how many it
// started; those that fail are due again later. It waits at most roundWithin for their
// outcomes, so that endpoints that respond slowly do not delay the next round. An error
// means that the database is unavailable.
func (n *Notifier) RunOnce(ctx context.Context) (started int, err error) {
	if err := n.measure(ctx); err != nil {
		return 0, err
	}
	if err := n.skip(ctx); err != nil {
		return 0, err
	}
	var round sync.WaitGroup
	for _, next := range []func() db.DeliveryLeaseParams{n.lanes.prompt, n.lanes.slowOnes} {
		for p := next(); p.LimitRows > 0; p = next() {
			rows, err := n.pool.DeliveryLease(ctx, p)
			if err != nil {
				if ctx.Err() != nil {
					round.Wait() // At shutdown the attempts end with ctx, and record their outcomes.
				}
				return started, fmt.Errorf("lease deliveries: %w", err)
			}
			if len(rows) == 0 {
				break
			}
			started += len(rows)
			for _, row := range rows {
				ended := n.lanes.started(row.EndpointID)
				round.Go(func() {
					err := n.deliver(ctx, row)
					ended()
					n.note(err)
				})
			}
		}
	}
	all := make(chan struct{})
	go func() {
		round.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(roundWithin):
		if ctx.Err() != nil {
			<-all // as above
		}
	}
	return started, n.drainUnrecorded()
}

// note keeps why an outcome could not be recorded, for the end of the round.
func (n *Notifier) note(err error) {
	if err == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unrecorded = append(n.unrecorded, err)
}

func (n *Notifier) drainUnrecorded() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errors.Join(n.unrecorded...)
	n.unrecorded = nil
	return err
}

// deliver returns an error only if the outcome could not be recorded. Then the lease
// expires and the delivery is sent again.
func (n *Notifier) deliver(ctx context.Context, d db.DeliveryLeaseRow) error {
	ctx, span := n.startSpan(ctx, d)
	secrets, err := n.open(d)
	if err != nil {
		defer func() { span.End(err) }()
		span.Set("payonce.result", "postponed")
		return n.postpone(ctx, d, err)
	}
	status, cause := n.send(ctx, d, secrets)
	defer func() { span.End(cause) }()
	if status == 0 && ctx.Err() != nil { // The process ends, which is not the endpoint's failure.
		span.Set("payonce.result", "postponed")
		return n.giveBack(ctx, d, 0, cause)
	}
	span.SetInt("http.response.status_code", int64(status))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	var code *int32
	if status != 0 {
		c := int32(status) //nolint:gosec // an HTTP status fits
		code = &c
	}
	text := postgres.ErrorText(cause)
	var rows int64
	result := "delivered"
	switch {
	case cause == nil:
		rows, err = n.pool.DeliveryEnd(ctx, db.DeliveryEndParams{
			TenantID: d.TenantID, ID: d.ID, LeaseToken: d.LeaseToken,
			Status: db.DeliveryStatusDelivered, HttpStatus: code,
		})
		if err == nil { // Also if it did not fail when this attempt began: another that began later may have failed.
			_, err = n.pool.EndpointRecovers(ctx, db.EndpointRecoversParams{TenantID: d.TenantID, ID: d.EndpointID})
		}
	case status == http.StatusGone || int(d.Attempts) > len(retryAfter):
		result = "gave_up"
		rows, err = n.pool.DeliveryEnd(ctx, db.DeliveryEndParams{
			TenantID: d.TenantID, ID: d.ID, LeaseToken: d.LeaseToken,
			Status: db.DeliveryStatusFailed, HttpStatus: code, LastError: &text,
		})
		n.log.Error("webhook delivery failed; no more attempts",
			"tenant_id", d.TenantID, "event_id", d.EventID, "attempts", d.Attempts, "error", text)
	default:
		result = "failed"
		rows, err = n.pool.DeliveryRetry(ctx, db.DeliveryRetryParams{
			TenantID: d.TenantID, ID: d.ID, LeaseToken: d.LeaseToken,
			Delay: retryAfter[d.Attempts-1], HttpStatus: code, LastError: text,
		})
	}
	if err == nil && cause != nil {
		err = n.failed(ctx, d, status)
	}
	if err != nil {
		return fmt.Errorf("record the delivery of %s: %w", d.EventID, err)
	}
	if rows == 0 {
		result = "fenced"
	}
	span.Set("payonce.result", result)
	n.metrics.deliveries.WithLabelValues(result).Inc()
	return nil
}

// failed records that the endpoint fails. One that says that it is gone, or has failed for failsFor, is disabled.
func (n *Notifier) failed(ctx context.Context, d db.DeliveryLeaseRow, status int) error {
	if !d.Fails {
		if err := n.pool.EndpointFails(ctx, db.EndpointFailsParams{TenantID: d.TenantID, ID: d.EndpointID}); err != nil {
			return err
		}
	}
	failed := failsFor
	if status == http.StatusGone {
		failed = 0
	}
	if d.FailingSeconds < failed.Seconds() {
		return nil
	}
	var disabled bool
	err := n.pool.InTx(ctx, func(q *db.Queries) (err error) {
		disabled, err = disableFailing(ctx, q, d.TenantID, d.EndpointID, failed)
		return err
	})
	if err == nil && disabled {
		n.log.Warn("webhook endpoint disabled", "tenant_id", d.TenantID, "endpoint_id", d.EndpointID, "http_status", status,
			"failing_seconds", d.FailingSeconds)
	}
	return err
}

// open decrypts the secrets that sign a delivery, the newest first. One before the newest is left out if it cannot be
// decrypted: it was rotated because it is lost.
func (n *Notifier) open(d db.DeliveryLeaseRow) (secrets [][]byte, err error) {
	for i, stored := range d.Secrets {
		secret, err := n.pool.Box().Open(secretPlace(d.TenantID, d.EndpointID, d.Versions[i]), stored)
		switch {
		case err == nil:
			secrets = append(secrets, secret)
		case i == 0:
			return nil, err
		}
	}
	return secrets, nil
}

// skip ends deliveries that wait for endpoints that are disabled.
func (n *Notifier) skip(ctx context.Context) error {
	for {
		skipped, err := n.pool.DeliveriesSkip(ctx, skipMax)
		if err != nil {
			return fmt.Errorf("skip deliveries of disabled endpoints: %w", err)
		}
		n.metrics.deliveries.WithLabelValues("skipped").Add(float64(skipped))
		if skipped < skipMax {
			return nil
		}
	}
}

// postpone gives the attempt back of a delivery that cannot be signed, because the process cannot decrypt the tenant's
// secret. That is not the endpoint's failure, so however long DATA_KEY lacks the key, no delivery is given up. This
// process then leaves the endpoint alone for a while; another one may have the key.
func (n *Notifier) postpone(ctx context.Context, d db.DeliveryLeaseRow, cause error) error {
	if n.lanes.leave(d.EndpointID, unreadableFor) {
		n.log.Error("webhook deliveries are postponed: the endpoint's signing secret cannot be decrypted",
			"tenant_id", d.TenantID, "endpoint_id", d.EndpointID, "for", unreadableFor.String(), "error", cause.Error())
	}
	return n.giveBack(ctx, d, unreadableFor, cause)
}

// giveBack gives the attempt back of a delivery, which is due again after the delay.
func (n *Notifier) giveBack(ctx context.Context, d db.DeliveryLeaseRow, delay time.Duration, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	if _, err := n.pool.DeliveryPostpone(ctx, db.DeliveryPostponeParams{
		TenantID: d.TenantID, ID: d.ID, LeaseToken: d.LeaseToken,
		Delay: delay, LastError: postgres.ErrorText(cause),
	}); err != nil {
		return fmt.Errorf("postpone the delivery of %s: %w", d.EventID, err)
	}
	n.metrics.deliveries.WithLabelValues("postponed").Inc()
	return nil
}

// startSpan starts the trace of one attempt, with a link to the change that caused the
// event. The event contains its traceparent, because the body that is sent is the one
// that was published. It is a link and not a child, because attempts continue for three
// days.
func (n *Notifier) startSpan(ctx context.Context, d db.DeliveryLeaseRow) (context.Context, tracing.Span) {
	if n.tracer == nil {
		return ctx, tracing.Span{}
	}
	var event struct {
		Type        string `json:"type"`
		Subject     string `json:"subject"`
		Traceparent string `json:"traceparent"`
	}
	_ = json.Unmarshal(d.Body, &event) // A malformed event is sent all the same, without a link.
	ctx, span := n.tracer.Resume(ctx, event.Traceparent, "deliver ", event.Type)
	span.Set(tracing.EventID, d.EventID)
	span.Set(tracing.Tenant, d.TenantID)
	span.Set(tracing.Resource, event.Subject)
	span.SetInt("payonce.attempt", int64(d.Attempts))
	return ctx, span
}

func (n *Notifier) send(ctx context.Context, d db.DeliveryLeaseRow, secrets [][]byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	if !n.insecure && !strings.HasPrefix(d.Url, "https://") {
		return 0, errors.New("the URL is not https")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Url, strings.NewReader(string(d.Body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	req.Header.Set("User-Agent", "payonce")
	Sign(req.Header, d.EventID, time.Now(), d.Body, secrets...)
	resp, err := n.client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the URL, which may contain a secret of the tenant's
		}
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return resp.StatusCode, nil
}

// Sign sets the headers of Standard Webhooks, with a signature for each secret.
func Sign(h http.Header, id string, now time.Time, body []byte, secrets ...[]byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	h.Set("webhook-signature", strings.Join(signatures, " "))
}

// requeueMax is how many deliveries one call of Requeue takes up, so that its transaction
// stays short.
const requeueMax = 1000

// Requeue makes failed deliveries due again, with all their attempts, and returns how
// many. It joins the transaction of q.
func Requeue(ctx context.Context, q *db.Queries, tenantID string) (int64, error) {
	n, err := q.DeliveriesRequeue(ctx, db.DeliveriesRequeueParams{TenantID: tenantID, LimitRows: requeueMax})
	if err != nil {
		return 0, fmt.Errorf("requeue the failed deliveries of %s: %w", tenantID, err)
	}
	return n, nil
}

func (n *Notifier) measure(ctx context.Context) error {
	if time.Since(n.measured) < statsEvery {
		return nil
	}
	stats, err := n.pool.DeliveryStats(ctx)
	if err != nil {
		return fmt.Errorf("measure the deliveries: %w", err)
	}
	n.measured = time.Now()
	n.metrics.pending.Set(float64(stats.Pending))
	n.metrics.failed.Set(float64(stats.FailedLately))
	n.metrics.oldest.Set(stats.OldestSeconds)
	return nil
}
