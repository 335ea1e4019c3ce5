package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/proof/internal/chaos/history"
)

// patience is how long a client waits for an answer.
const patience = 4 * time.Second

// answer is what a client keeps of an answer: what a replay must repeat, and
// what it says.
type answer struct {
	status     int
	replayed   bool
	retryAfter bool
	digest     string
	object     object
}

// object is what is read of whatever was answered.
type object struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Code          string `json:"code"`   // of a problem
	Detail        string `json:"detail"` // of a problem
	Retryable     bool   `json:"retryable"`
	Status        any    `json:"status"` // a text of an object, a number of a problem
	Amount        int64  `json:"amount"`
	Captured      int64  `json:"amount_captured"`
	Currency      string `json:"currency"`
	PaymentMethod string `json:"payment_method"`
	Stripe        struct {
		PaymentIntent string `json:"payment_intent"`
	} `json:"stripe"`
	NextAction struct {
		ClientSecret string `json:"client_secret"`
	} `json:"next_action"`
	Payment *object `json:"payment"` // of a 402
}

// isPayment returns the payment that the object is, or tells of.
func (o object) isPayment() (object, bool) {
	if o.Payment != nil {
		o = *o.Payment
	}
	return o, o.Object == "payment"
}

var errCut = errors.New("no complete answer")

// do makes one request and reads the whole answer. Headers are name and value in turn.
func (t *traffic) do(ctx context.Context, n *node, method, path, apiKey, body string, headers ...string) (a answer,
	err error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.addr+path, reader)
	if err != nil {
		return a, err
	}
	r.GetBody = nil // net/http would repeat the request by itself, unseen by the history
	r.Header.Set("Authorization", "Bearer "+apiKey)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	defer func() { t.served(method+" "+path, a, err) }()
	res, err := t.http.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return a, errCut
	}
	a.status, a.replayed, a.retryAfter = res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true",
		res.Header.Get("Retry-After") != ""
	sum := sha256.Sum256([]byte(fmt.Sprint(res.StatusCode, "\n", res.Header.Get("Content-Type"), "\n",
		res.Header.Get("Location"), "\n", string(raw))))
	a.digest = hex.EncodeToString(sum[:8])
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&a.object); err != nil {
		return a, errCut
	}
	return a, nil
}

// request is a POST with a key, as a client sends it any number of times.
type request struct {
	tenant          int
	path, key, body string
	prefer          string // wait=2, or empty
	door            *node  // nil: any
}

// send makes one request to some node, or to the one of its door, and records the result.
func (c *client) send(ctx context.Context, q request) (a answer, outcome history.Outcome) {
	// A client's own patience, not the run's end, decides when it gives up.
	wait := patience
	if c.rand.IntN(40) == 0 && !c.calm() {
		wait = time.Duration(1+c.rand.IntN(30)) * time.Millisecond // It hangs up in the middle.
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	headers := []string{"Idempotency-Key", q.key}
	if q.prefer != "" {
		headers = append(headers, "Prefer", q.prefer)
	}
	door := q.door
	if door == nil {
		door = c.knock(c.rand)
	}
	done := c.log.Call(q.tenant, q.key, q.path+" "+q.body)
	a, err := c.do(ctx, door, http.MethodPost, q.path, c.world.tenants[q.tenant].Key, q.body, headers...)
	outcome = history.Unknown
	if err == nil {
		outcome = c.classify(q, a)
	} else {
		c.lost()
	}
	digest := ""
	if outcome == history.Final {
		digest = a.digest
		c.acknowledge(ack{q.tenant, q.key}, q.path, q.body, a)
	}
	call, ret := done(outcome, digest)
	if p, ok := a.object.isPayment(); err == nil && ok && outcome != history.Unknown && !a.replayed {
		c.sighted(p, call, ret)
		c.met(paymentOf{q.tenant, p.ID})
	}
	if not := refusedFor[a.object.Code]; err == nil && not != nil && !a.replayed {
		payment := strings.Split(q.path, "/")[3] // /v1/payments/{id}/capture
		c.log.Saw(history.Sighting{Payment: payment, Not: not, Call: call, Return: ret})
	}
	return a, outcome
}

// refusedFor are the statuses that a payment did not have when it was refused to capture or cancel it.
var refusedFor = map[string][]string{
	"payment-not-capturable": {"authorized"}, "payment-not-cancelable": {"authorized", "requires_action"},
}

// classify says what an answer means to its client, and whether it may be given
// at all.
func (c *client) classify(q request, a answer) history.Outcome {
	code := a.object.Code
	switch {
	case a.status == http.StatusConflict && code == "idempotency-key-in-flight":
		c.rule("I20", a.retryAfter && a.object.Retryable, "%s is in flight, and does not say when to come back", q.key)
		if a.object.Detail == httpapi.InDoubt {
			return history.Unknown // The key may be unused, and the next request may use it for something else.
		}
		return history.InProgress
	case a.status == http.StatusAccepted:
		return history.InProgress
	case a.status == http.StatusUnprocessableEntity:
		return history.Mismatch
	case a.status == http.StatusConflict && code == "payment-in-progress", a.status == http.StatusNotFound,
		a.status == http.StatusTooManyRequests:
		return history.Refused
	case a.status == http.StatusServiceUnavailable:
		c.rule("I20", a.retryAfter && a.object.Retryable, "%s is unavailable, and does not say when to come back",
			q.key)
		return history.Away
	case a.status >= 500:
		return history.Unknown
	case a.status < 300, a.status == http.StatusPaymentRequired, a.status == http.StatusConflict:
		return history.Final
	}
	c.rule("I20", false, "%s with key %s got %d %s", q.path, q.key, a.status, code)
	return history.Unknown
}

// sighted notes a payment's status as an answer shows it. A replay shows what
// was true once.
func (t *traffic) sighted(p object, call, ret int64) {
	if status, ok := p.Status.(string); ok {
		t.log.Saw(history.Sighting{Payment: p.ID, Status: status, Captured: p.Captured, Call: call, Return: ret})
	}
}

// look reads a payment through some node, as its owner or as another tenant, for
// whom there is no such thing.
func (c *client) look(ctx context.Context) {
	p, ok := c.some(c.rand)
	if !ok {
		return
	}
	as := p.tenant
	if c.rand.IntN(6) == 0 {
		as = c.otherThan(as)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	call := c.log.Since().Nanoseconds()
	a, err := c.do(ctx, c.knock(c.rand), http.MethodGet, "/v1/payments/"+p.id, c.world.tenants[as].Key, "")
	ret := c.log.Since().Nanoseconds()
	switch {
	case err != nil, a.status >= 500:
	case as != p.tenant:
		c.rule("I10", a.status == http.StatusNotFound, "tenant %d got %d for %s of another tenant", as, a.status, p.id)
	case a.status == http.StatusNotFound:
		c.log.Saw(history.Sighting{Payment: p.id, Status: history.Absent, Call: call, Return: ret})
	default:
		c.sighted(a.object, call, ret)
	}
}

// lost counts an answer that never came.
func (t *traffic) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calm {
		t.unsure++
	}
}

// served counts a request, and one that failed or was put off while none may fail.
func (t *traffic) served(what string, a answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested++
	said := fmt.Sprintf("%s: %d %s %v", what, a.status, a.object.Code, err)
	switch {
	case !t.strict:
	case err == nil && a.putsOff():
		t.putOff = append(t.putOff, said)
	case err != nil || a.status >= 500:
		t.failed = append(t.failed, said)
	}
}

// putsOff reports a 503 that says when to come back. It promises that nothing was begun, and the check of rule I23 holds
// the service to the promise.
func (a answer) putsOff() bool {
	return a.status == http.StatusServiceUnavailable && a.object.Code == "unavailable" && a.retryAfter && a.object.Retryable
}
