package http

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// Every POST with an Idempotency-Key takes this way:
//
//  1. readKeyed checks the request. Nothing is stored yet.
//  2. execute looks the key up. A finished key is replayed, a key of another request is
//     refused, and a key in progress is refused or waited for.
//  3. work claims the key: the operation's Begin for a new key, TakeOver for one whose
//     process has crashed. The database lets exactly one request succeed.
//  4. The operation's Run makes the calls to Stripe and stores the response, in one
//     transaction with its effect. Only then is the response sent.
//
// If the process crashes after step 3, the completer calls Run, from the last recovery
// point. That is why operations are passed to both, and why nothing that the work needs
// may be only in the HTTP request.

const (
	// In each round another request has made progress on the key, so this many rounds are
	// a bug or an attack.
	roundsMax = 20

	// With less than this fraction of its time left a request starts no work, because one
	// call to Stripe may take that long.
	workShare = 3

	// A request whose work was lost or taken over has this long to find the outcome, even if
	// its own time is over.
	outcomeTimeout = 3 * time.Second
)

const mismatch = "The key was used for another request. Use a new key for a new request."

// parse turns an HTTP request into the request of an operation. The JSON of what it
// returns is what the fingerprint covers, so equal requests must have equal JSON.
type parse func(r *http.Request, body []byte) (any, error)

// keyed is the handler of a POST that changes something. The operation takes effect once
// for each key, and every request with the key gets its response.
func (s *Server) keyed(operation string, parse parse) http.HandlerFunc {
	if _, ok := s.o.Operations[operation]; !ok {
		panic("bug: a route names the operation " + operation + ", which is not in Options.Operations")
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := s.readTenantBody(w, r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		began, wait := time.Now(), preferredWait(r.Header)
		ctx, cancel := s.bounded(r.Context(), wait)
		defer cancel()
		var request idempotency.Request
		err = s.admitParsed(ctx, r, classKeyed, body, func() (err error) {
			request, err = readKeyed(r, body, operation, parse)
			return err
		})
		if err == nil {
			err = s.unread.room(request.TenantID, unreadPosts)
		}
		if err != nil {
			s.refuse(w, r.WithContext(ctx), err)
			return
		}
		if span := tracing.Current(r.Context()); span.Recording() {
			span.Set(tracing.Operation, operation)
			span.Set(tracing.Tenant, request.TenantID)
		}
		answer, state, err := s.execute(ctx, request, began, wait, visitOf(r))
		if err != nil {
			s.refuse(w, r.WithContext(ctx), err)
			return
		}
		// Clients need the header to tell whether they have caused the effect.
		if state == idempotency.Replay {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		if answer.Status == http.StatusAccepted { // It is never stored, so a retry soon is useful.
			w.Header().Set("Retry-After", "1")
		}
		write(w, answer)
	}
}

// readKeyed checks media type, key and body, in this order. The key is not looked
// up yet, so a request that is refused here reveals nothing and stores nothing.
func readKeyed(r *http.Request, body []byte, operation string, parse parse) (idempotency.Request, error) {
	if err := checkMediaType(r, body); err != nil {
		return idempotency.Request{}, err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return idempotency.Request{}, err
	}
	request, err := parse(r, body)
	if err != nil {
		return idempotency.Request{}, err
	}
	if err := withoutCards(body); err != nil {
		return idempotency.Request{}, err
	}
	t, canonical := tenantOf(r), mustJSON(request)
	return idempotency.Request{
		TenantID: t.id, Key: key, Operation: operation, Body: canonical,
		RequestID: visitOf(r).requestID, Fingerprint: t.macs.fingerprint(r, canonical),
	}, nil
}

// execute looks the key up, and then replays, refuses, waits or works. If another
// request was faster, it starts over and finds that request's response.
func (s *Server) execute(
	ctx context.Context, r idempotency.Request, began time.Time, wait time.Duration, visit *visit,
) (idempotency.Answer, idempotency.State, error) {
	begun := false                // by this request or by another with the key
	var waited *idempotency.Found // what another request found that waited for the same
	for range roundsMax {
		// This reads without a lock. It only selects the branch; the claim is the INSERT or
		// UPDATE in work, which at most one of two equal requests succeeds in.
		var (
			found idempotency.Found
			err   error
		)
		if waited != nil {
			found = *waited
		} else if found, err = s.lookup(ctx, r, begun); err != nil {
			return idempotency.Answer{}, found.State, truthful(err, begun)
		}
		begun = begun || found.State != idempotency.Fresh
		var answer idempotency.Answer
		switch found.State {
		case idempotency.Replay:
			answer = found.Answer
		case idempotency.Mismatch: // The problem must not reveal anything about the first request.
			err = &problem{code: codeIdempotencyKeyMismatch, detail: mismatch}
		case idempotency.Expired:
			err = s.expired(found.ResourceID)
		case idempotency.InFlight:
			again := false
			visit.slot.release()
			if waited, again = s.waitFor(ctx, r, began.Add(wait), visit.gone); again {
				continue
			}
			err = inProgress("The first request with this key is still in progress.", found.RetryAfter)
		case idempotency.Waiting, idempotency.Fresh:
			until, enough := s.timeLeft(began, wait)
			if !enough { // The next retry resumes it, or the completer does.
				err = inProgress("The first request with this key has not finished.", time.Second)
				if !begun {
					err = unavailable(reasonTenantQueue, time.Second,
						"There was not enough time left to start. Retry with the same key.")
				}
				break
			}
			visit.slot.release()
			answer, err = s.work(ctx, r, found, until)
			if errors.Is(err, idempotency.ErrTaken) || errors.Is(err, idempotency.ErrLeaseLost) {
				begun = true
				continue // Another process holds the key now; only its response may be sent.
			}
			if errors.Is(err, errInterrupted) {
				return s.outcome(ctx, r)
			}
			return answer, found.State, truthful(err, begun)
		}
		s.o.Keys.Count(r.Operation, found.State)
		return answer, found.State, err
	}
	return idempotency.Answer{}, idempotency.Fresh,
		fmt.Errorf("other requests took over the key %d times during one request", roundsMax)
}

// lookup reads the state of the key. Once it is known to be in use the outcome must be found, also by a process
// that was paused until its time for the response was over.
func (s *Server) lookup(ctx context.Context, r idempotency.Request, begun bool) (idempotency.Found, error) {
	if begun {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
		defer cancel()
	}
	return s.o.Keys.Lookup(ctx, r)
}

// InDoubt is the detail of the 409 of a request that may not have claimed its key: the response to the COMMIT was lost.
// Each other 409 with the same code proves a claim.
const InDoubt = "It is not known yet whether the request was started. Retry with the same key."

// truthful keeps a 503 for requests that have started nothing. A client that believes a 503 may use another key, and
// would refund twice. Where the key is in use, or may be because the response to its COMMIT was lost, the client is
// told to retry with it.
func truthful(err error, begun bool) error {
	switch {
	case err == nil || !cutOff(err):
		return err
	case begun:
		return interrupted()
	case errors.Is(err, postgres.ErrInDoubt):
		return inProgress(InDoubt, time.Second)
	}
	return err
}

// cutOff reports whether the database or Stripe could not be reached, so that the outcome is not known.
func cutOff(err error) bool {
	return errors.Is(err, postgres.ErrInDoubt) || problemOf(err).code == codeUnavailable
}

// timeLeft returns the time at which a request that starts to work now must end: within
// the time promised for a request, or that its client is willing to wait, and before a
// lease taken now expires. It is not enough if the claim could only be taken and
// released again.
func (s *Server) timeLeft(began time.Time, wait time.Duration) (until time.Time, enough bool) {
	now := time.Now()
	until = began.Add(max(s.o.Within, wait))
	if most := now.Add(s.o.Within); until.After(most) {
		until = most
	}
	return until, s.latestBegin(until).After(now)
}

// latestBegin is when work must have begun that must end until then.
func (s *Server) latestBegin(until time.Time) time.Time { return until.Add(-s.o.Within / workShare) }

// work claims a key that no process holds, and runs its operation. It continues if the
// client disconnects: an operation that stops in the middle only makes the outcome
// unknown, and the retry needs the stored response.
func (s *Server) work(
	ctx context.Context, r idempotency.Request, found idempotency.Found, until time.Time,
) (answer idempotency.Answer, err error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	operation := s.o.Operations[r.Operation]
	begin := s.turnsToBegin(ctx, r.TenantID, s.latestBegin(until))
	var claim *idempotency.Claim
	if found.State == idempotency.Waiting {
		// Work that was started before counts as a read: a client that waits for its customer may poll with it.
		if err = s.reads.take(r.TenantID); err == nil {
			claim, err = s.o.Keys.TakeOver(begin, r, found)
		}
	} else if err = s.limits.take(r.TenantID); err == nil {
		claim, answer, err = operation.Begin(begin, r)
	}
	if err != nil {
		return answer, err
	}
	s.o.Keys.Count(r.Operation, found.State)
	if claim == nil { // The operation has finished in its first transaction, as creating an order does.
		return answer, nil
	}
	answer, err = operation.Run(s.turnsOfBegun(ctx, r.TenantID), claim)
	if err != nil && cutOff(err) {
		claim.Log().Error("interrupted; the completer will finish it", "error", err.Error())
		err = errInterrupted
	}
	return answer, err
}

// errInterrupted is for work whose claim is durable, and which could not be ended.
var errInterrupted = errors.New("interrupted")

// outcome is what has become of work that was interrupted. Another process may have finished it, if this one was
// paused.
func (s *Server) outcome(
	ctx context.Context, r idempotency.Request,
) (idempotency.Answer, idempotency.State, error) {
	found, err := s.lookup(ctx, r, true)
	if err != nil || found.State != idempotency.Replay {
		return idempotency.Answer{}, found.State, interrupted()
	}
	s.o.Keys.Count(r.Operation, found.State)
	return found.Answer, found.State, nil
}

// inProgress is retryable, and that matters: a client that gave up here would not know
// whether it was charged.
func inProgress(detail string, retryAfter time.Duration) error {
	return &problem{code: codeIdempotencyKeyInFlight, detail: detail, retryAfter: retryAfter}
}

// interrupted is for work whose claim is durable.
func interrupted() error {
	return inProgress("The service completes the work that it started. Retry with the same key.", time.Second)
}

// expired names the object, because the response that named it is deleted.
func (s *Server) expired(resourceID string) error {
	p := &problem{
		code:   codeIdempotencyKeyExpired,
		detail: "The request was answered before, and is not executed again. Its response is no longer stored.",
	}
	if href := s.o.Paths.Href(resourceID); href != "" {
		p.resource = &resourceLink{ID: resourceID, Href: href}
	}
	return p
}

// fingerprint tells whether two requests with one key are the same request. It covers
// everything that the operation depends on. It is an HMAC with the tenant's secret, so
// that a stolen table does not reveal which tenants sent equal requests. The length
// before each part keeps different lists of parts from being the same bytes.
func (m *macs) fingerprint(r *http.Request, canonicalBody []byte) []byte {
	route := chi.RouteContext(r.Context())
	parts := make([]byte, 0, 512)
	add := func(part string) {
		parts = append(binary.BigEndian.AppendUint64(parts, uint64(len(part))), part...)
	}
	add(strconv.Itoa(idempotency.FingerprintVersion))
	add(r.Method)
	add(route.RoutePattern())
	for i, name := range route.URLParams.Keys {
		add(name)
		add(route.URLParams.Values[i])
	}
	add(canonicalQuery(r))
	parts = binary.BigEndian.AppendUint64(parts, uint64(len(canonicalBody)))
	mac := m.pool.Get().(hash.Hash)
	defer m.pool.Put(mac)
	mac.Reset()
	_, _ = mac.Write(parts)
	_, _ = mac.Write(canonicalBody)
	return mac.Sum(nil)
}

// macs lends HMACs with a tenant's secret. A new one hashes the secret and allocates both of its hashes; one that was
// reset does neither.
type macs struct{ pool sync.Pool }

func newMACs(secret []byte) *macs {
	return &macs{pool: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// canonicalQuery sorts the parameters: clients and proxies may reorder them between
// retries. The values of one name keep no order either, as no route depends on it.
func canonicalQuery(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	query := r.URL.Query()
	for _, values := range query {
		sort.Strings(values)
	}
	return strings.Clone(query.Encode())
}
