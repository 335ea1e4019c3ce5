package http

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

const (
	roundsMax = 20 // In each round another request made progress on the key; this many is a bug or an attack.
	workShare = 3  // With less than this fraction of its time left a request begins nothing: one attempt at Stripe may take that long.
)

const mismatch = "The key was used for another request. A new intent needs a new key."

// parse turns an HTTP request into the request of an operation, or says what is wrong.
type parse func(r *http.Request, body []byte) (any, error)

// keyed is the handler of a POST that changes something: the operation runs
// once in effect for each key, and every request with the key gets its answer.
func (s *Server) keyed(operation string, parse parse) http.HandlerFunc {
	if _, ok := s.o.Operations[operation]; !ok {
		panic("bug: a route for the unknown operation " + operation)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		request, err := s.readKeyed(w, r, operation, parse)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if span := tracing.Current(r.Context()); span.Recording() {
			span.Set(tracing.Operation, operation)
			span.Set(tracing.Tenant, request.TenantID)
		}
		wait := preferredWait(r.Header)
		ctx, cancel := s.bounded(r.Context(), wait)
		defer cancel()
		answer, state, err := s.execute(ctx, request, wait)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if state == idempotency.Replay {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		if answer.Status == http.StatusAccepted {
			w.Header().Set("Retry-After", "1")
		}
		write(w, answer)
	}
}

// readKeyed checks size, media type, key and body, in this order. Nothing has been
// looked up yet, so nothing is revealed and nothing stored.
func (s *Server) readKeyed(w http.ResponseWriter, r *http.Request, operation string, parse parse) (idempotency.Request, error) {
	body, err := readBody(w, r, bodyMax)
	if err != nil {
		return idempotency.Request{}, err
	}
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
	t, canonical := tenantOf(r), mustJSON(request)
	return idempotency.Request{
		TenantID: t.id, Key: key, Operation: operation, Body: canonical, RequestID: visitOf(r).requestID,
		Fingerprint: fingerprint(t.fingerprintSecret, r, canonical),
	}, nil
}

// execute looks the key up and does what its state asks for. If another request was
// faster, it starts over and finds that request's answer.
func (s *Server) execute(ctx context.Context, r idempotency.Request, wait time.Duration) (idempotency.Answer, idempotency.State, error) {
	began := time.Now()
	for range roundsMax {
		found, err := s.o.Keys.Lookup(ctx, r)
		if err != nil {
			return idempotency.Answer{}, found.State, err
		}
		var answer idempotency.Answer
		switch found.State {
		case idempotency.Replay:
			answer = found.Answer
		case idempotency.Mismatch:
			err = &problem{code: codeIdempotencyKeyMismatch, detail: mismatch}
		case idempotency.Expired:
			err = expired(found.ResourceID)
		case idempotency.InFlight:
			if s.waitFor(ctx, r, began.Add(wait)) {
				continue
			}
			err = &problem{code: codeIdempotencyKeyInFlight, detail: "The first request with this key is still running.", retryAfter: found.RetryAfter}
		case idempotency.Waiting, idempotency.Fresh:
			until, enough := s.timeLeft(began, wait)
			if !enough { // The next retry goes on with it, or the completer does.
				err = &problem{code: codeIdempotencyKeyInFlight, detail: "The first request with this key has not been answered.", retryAfter: time.Second}
				if found.State == idempotency.Fresh {
					err = &problem{code: codeUnavailable, detail: "There was no time left to begin. Nothing was begun.", retryAfter: time.Second}
				}
				break
			}
			answer, err = s.work(ctx, r, found, until)
			if errors.Is(err, idempotency.ErrTaken) || errors.Is(err, idempotency.ErrLeaseLost) {
				continue // Our result, if any, is void. The answer is the winner's.
			}
			return answer, found.State, err
		}
		s.o.Keys.Count(r.Operation, found.State)
		return answer, found.State, err
	}
	return idempotency.Answer{}, idempotency.Fresh, fmt.Errorf("the key changed hands %d times during one request", roundsMax)
}

// timeLeft is when a request that begins to work now must be done: within the time
// promised for a request, or that its client is willing to wait, and before a lease
// taken now ends. If a claim could only be taken and dropped again, there is not enough
// time left to take it.
func (s *Server) timeLeft(began time.Time, wait time.Duration) (until time.Time, enough bool) {
	now := time.Now()
	until = began.Add(max(s.o.Within, wait))
	if most := now.Add(s.o.Within); until.After(most) {
		until = most
	}
	return until, until.Sub(now) > s.o.Within/workShare
}

// work claims a key without a holder and runs its operation. It does not end with the
// client's connection: what was begun is finished, and its answer is stored for the
// next request.
func (s *Server) work(ctx context.Context, r idempotency.Request, found idempotency.Found, until time.Time) (answer idempotency.Answer, err error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	operation := s.o.Operations[r.Operation]
	var claim *idempotency.Claim
	if found.State == idempotency.Waiting {
		claim, err = s.o.Keys.TakeOver(ctx, r, found)
	} else if err = s.limits.take(r.TenantID); err == nil {
		claim, answer, err = operation.Begin(ctx, r)
	}
	if err != nil {
		return answer, err
	}
	s.o.Keys.Count(r.Operation, found.State)
	if claim == nil {
		return answer, nil
	}
	answer, err = operation.Run(ctx, claim)
	if err != nil && (postgres.Unavailable(err) || errors.Is(err, postgres.ErrInDoubt)) {
		// The claim is durable, so "nothing was begun" would be wrong, and might make the client retry under another key.
		claim.Log().Error("interrupted; the completer will finish it", "error", err.Error())
		err = &problem{code: codeIdempotencyKeyInFlight, detail: "The work begun under this key will be finished. Ask again with the same key.", retryAfter: time.Second}
	}
	return answer, err
}

// waitFor waits a moment for the holder of a key to finish, without a database
// connection, and reports whether it is worth looking again.
func (s *Server) waitFor(ctx context.Context, r idempotency.Request, until time.Time) bool {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		left := time.Until(until)
		if left <= 0 {
			return false
		}
		select {
		case <-time.After(min(left, pause+time.Duration(rand.Int64N(int64(pause/4)+1)))):
		case <-ctx.Done():
			return false
		}
		found, err := s.o.Keys.Lookup(ctx, r)
		if err != nil || found.State != idempotency.InFlight {
			return true // The caller looks again.
		}
	}
}

func expired(resourceID string) error {
	p := &problem{code: codeIdempotencyKeyExpired, detail: "The work was done under this key, and will not be done again. Its answer has expired."}
	if href := payments.Href(resourceID); href != "" {
		p.resource = &resourceLink{ID: resourceID, Href: href}
	}
	return p
}

// fingerprint is equal for equal requests only. It is an HMAC, so that it reveals
// nothing else, over everything that gives the request its meaning. Each part is
// preceded by its length, so that no two lists of parts are the same bytes.
func fingerprint(secret []byte, r *http.Request, canonicalBody []byte) []byte {
	route := chi.RouteContext(r.Context())
	parts := make([]byte, 0, 256+len(canonicalBody))
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
	add(string(canonicalBody))
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(parts)
	return mac.Sum(nil)
}

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
