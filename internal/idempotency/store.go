package idempotency

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

var (
	// ErrTaken says that somebody else has the key. Look it up again.
	ErrTaken = errors.New("the key is somebody else's")
	// ErrLeaseLost says that the claim was taken over: nothing was written and
	// nothing may be. What the new holder stored is the answer.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrMoved says that a phase wrote nothing although the lease may be fine:
	// what it was about to change is not as it was read. Read it again.
	ErrMoved = errors.New("the row was changed by another operation")
)

// Request is one arrival of a key: who sent it, what it asks for.
type Request struct {
	TenantID    string
	Key         string
	Operation   string
	Fingerprint []byte // 32 bytes; equal for equal requests and for no others
	Body        []byte // the decoded request, encoded again; what Run works from
	RequestID   string
}

// Options of NewStore.
type Options struct {
	// Lease is how long a claim lasts if its holder dies. Everything an
	// operation does in one run must fit into it.
	Lease time.Duration
	// Metrics may be nil.
	Metrics *Metrics
	Log     *slog.Logger
	Tracer  *tracing.Tracer // nil: off
	// Boundary is called after each recovery point is durable. It is the one
	// seam by which tests kill, pause or cut a process between two phases.
	Boundary func(operation, recoveryPoint string)
}

// Store is the table of keys.
type Store struct {
	pool *db.Pool
	o    Options
}

// NewStore returns the store. It starts nothing.
func NewStore(pool *db.Pool, o Options) *Store {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Boundary == nil {
		o.Boundary = func(string, string) {}
	}
	return &Store{pool: pool, o: o}
}

// State is what a look-up found out about a key.
type State int

const (
	Fresh    State = iota // never used: begin
	Replay                // finished: send Answer
	InFlight              // somebody works on it right now
	Waiting               // unfinished and nobody's: take it over and resume
	Mismatch              // used for another request: say so, and nothing else
	Expired               // finished long ago; the answer is gone, the work is done
)

// Found is the result of Lookup.
type Found struct {
	State      State
	Answer     Answer        // of a Replay
	ResourceID string        // of an Expired
	RetryAfter time.Duration // of an InFlight: when to ask again
	token      int64         // of a Waiting: the fencing token that was seen
}

// Lookup reads what is known about the request's key. It writes nothing, so a
// replay costs one read. An error means that the store could not be asked; then
// nothing is known, least of all that the key is new.
func (s *Store) Lookup(ctx context.Context, r Request) (Found, error) {
	row, err := s.pool.KeyLookup(ctx, db.KeyLookupParams{TenantID: r.TenantID, Key: r.Key})
	if errors.Is(err, db.ErrNoRows) {
		return Found{State: Fresh}, nil
	}
	if err != nil {
		return Found{}, fmt.Errorf("look up the key: %w", err)
	}
	f := Found{ResourceID: row.ResourceID, token: row.LeaseToken}
	switch {
	case row.Operation != r.Operation || !hmac.Equal(row.Fingerprint, r.Fingerprint):
		f = Found{State: Mismatch}
	case !row.Finished && row.HeldSeconds > 0:
		f.State, f.RetryAfter = InFlight, s.retryAfter(row.HeldSeconds)
	case !row.Finished:
		f.State = Waiting
	case row.AnswerDropped:
		f.State = Expired
	default:
		f.State = Replay
		f.Answer, err = decodeAnswer(int(row.AnswerVersion), int(row.AnswerStatus), row.AnswerHeaders, row.AnswerBody)
	}
	return f, err
}

// Count records how a request with the key was answered in the end. It is apart
// from Lookup because one request may look several times.
func (s *Store) Count(operation string, state State) {
	s.o.Metrics.requests.WithLabelValues(operation, state.String()).Inc()
}

// retryAfter is a second or two for a holder that has just begun and most likely
// will be done by then. It is drawn, so that a crowd of duplicates does not return
// as a crowd, and in whole seconds, for Retry-After knows no others: a jitter
// below a second would be rounded away.
func (s *Store) retryAfter(heldSeconds float64) time.Duration {
	seconds := 1 + rand.IntN(2)
	if held := s.o.Lease.Seconds() - heldSeconds; held > 3 { // it has been at it for a while
		seconds++
	}
	return time.Duration(seconds) * time.Second
}

// TakeOver claims an unfinished key whose lease has run out or was given back.
// ErrTaken: somebody was faster.
func (s *Store) TakeOver(ctx context.Context, r Request, f Found) (*Claim, error) {
	token := uuid.New()
	row, err := s.pool.KeyTakeOver(ctx, db.KeyTakeOverParams{
		TenantID: r.TenantID, Key: r.Key, SeenToken: f.token, ClaimToken: token, Lease: s.o.Lease,
	})
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("take over the key: %w", db.Written(err))
	}
	c := s.claimOf(row)
	c.RequestID = r.RequestID // The outcome is told to this request first, and what it is told bears its id.
	s.o.Metrics.takeover(c)
	tracing.Current(ctx).Link(c.origin)
	return c, nil
}

// New announces a claim that does not exist yet: the identity under which the
// first phase inserts it. Begin and BeginStatement do.
type New struct {
	Request    Request
	ResourceID string
	Point      string // the recovery point that the first phase ends at
	ClaimToken uuid.UUID
	Lease      time.Duration
}

// Begin claims a fresh key and runs fn, both in one transaction that ends at the
// recovery point: either the key is claimed and fn's writes are there, or
// neither. ErrTaken: somebody else was faster, and nothing was written.
func (s *Store) Begin(ctx context.Context, r Request, resourceID, point string, fn func(q *db.Queries) error) (*Claim, error) {
	return s.BeginBehind(ctx, r, resourceID, point, func(*db.Queries) error { return nil }, fn)
}

// BeginBehind is Begin for an operation that has to take a lock before its key: an
// order's, which its payment takes first, too. Two operations that come under one
// key at once, and take the two the other way round, would wait for each other.
func (s *Store) BeginBehind(ctx context.Context, r Request, resourceID, point string, lock, fn func(q *db.Queries) error) (*Claim, error) {
	n := s.announce(r, resourceID, point)
	return s.begin(ctx, n, func() error {
		return s.pool.InTx(ctx, func(q *db.Queries) error {
			if err := lock(q); err != nil {
				return err
			}
			if err := n.insert(ctx, q); err != nil {
				return err
			}
			return fn(q)
		})
	})
}

// BeginStatement is Begin for a first phase that is one SQL statement, claim
// included: one round trip. fn reports whether the statement claimed the key.
func (s *Store) BeginStatement(ctx context.Context, r Request, resourceID, point string, fn func(q *db.Queries, n New) (claimed bool, err error)) (*Claim, error) {
	n := s.announce(r, resourceID, point)
	return s.begin(ctx, n, func() error {
		claimed, err := fn(s.pool.Grouped(), n)
		if err == nil && !claimed {
			return ErrTaken
		}
		return db.Written(err)
	})
}

// BeginFinished claims a fresh key, runs fn and stores fn's answer, all in one
// transaction: an operation without any call is done in its first phase.
func (s *Store) BeginFinished(ctx context.Context, r Request, resourceID string, fn func(q *db.Queries) (Answer, error)) (Answer, error) {
	n := s.announce(r, resourceID, Finished)
	var answer Answer
	c, err := s.begin(ctx, n, func() error {
		return s.pool.InTx(ctx, func(q *db.Queries) (err error) {
			if err = n.insertAt(ctx, q, started); err != nil {
				return err
			}
			if answer, err = fn(q); err != nil {
				return err
			}
			return finish(ctx, q, r.TenantID, r.Key, 1, answer)
		})
	})
	if err != nil {
		return Answer{}, err
	}
	if c.answer.Status != 0 { // what is stored, where that had to be read back
		return c.answer, nil
	}
	return answer, nil
}

func (s *Store) announce(r Request, resourceID, point string) New {
	return New{Request: r, ResourceID: resourceID, Point: point, ClaimToken: uuid.New(), Lease: s.o.Lease}
}

func (n New) insert(ctx context.Context, q *db.Queries) error { return n.insertAt(ctx, q, n.Point) }

func (n New) insertAt(ctx context.Context, q *db.Queries, point string) error {
	_, err := q.KeyClaim(ctx, db.KeyClaimParams{
		TenantID: n.Request.TenantID, Key: n.Request.Key, Operation: n.Request.Operation,
		Fingerprint: n.Request.Fingerprint, FingerprintVersion: FingerprintVersion, Request: n.Request.Body, RequestID: n.Request.RequestID,
		ResourceID: n.ResourceID, RecoveryPoint: point, ClaimToken: n.ClaimToken, Lease: n.Lease, Traceparent: tracing.Traceparent(ctx),
	})
	if errors.Is(err, db.ErrNoRows) {
		return ErrTaken
	}
	return err
}

// begin runs a first phase until it is known what came of it. In doubt, the row
// is read back: one that carries our claim token is ours, so the first caller
// need not wait out its own lease. One that is not there may still be on its
// way, because a server that lost its client finishes what it was doing; so the
// phase runs again under the same token, and meets itself if it must.
func (s *Store) begin(ctx context.Context, n New, phase func() error) (c *Claim, err error) {
	ctx, span := tracing.Start(ctx, trace.SpanKindInternal, "phase ", n.Point)
	defer func() {
		if c != nil {
			c.describe(span)
		}
		span.End(err)
	}()
	for doubted := false; ; doubted = true {
		err := phase()
		if errors.Is(err, db.ErrInDoubt) || doubted && errors.Is(err, ErrTaken) {
			c, readErr := s.recognise(ctx, n, err)
			if c != nil || readErr != nil {
				return c, readErr
			}
			if errors.Is(err, ErrTaken) { // It has been answered: what it met was not the key, and will not go away.
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		s.o.Metrics.claimed(n.Request.Operation)
		c := &Claim{
			store: s, TenantID: n.Request.TenantID, Key: n.Request.Key, Operation: n.Request.Operation, Request: n.Request.Body, RequestID: n.Request.RequestID,
			ResourceID: n.ResourceID, Token: 1, Attempts: 1, point: n.Point, since: time.Now(),
		}
		c.reached(n.Point)
		return c, nil
	}
}

// recognise reads back a claim that may have been made. Nil without an error:
// there is none.
func (s *Store) recognise(ctx context.Context, n New, doubt error) (*Claim, error) {
	s.o.Metrics.inDoubt.Inc()
	var row db.KeyReadRow
	err := s.untilAnswered(ctx, func() (err error) {
		row, err = s.pool.KeyRead(ctx, db.KeyReadParams{TenantID: n.Request.TenantID, Key: n.Request.Key})
		return err
	})
	switch {
	case errors.Is(err, db.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, doubt
	case row.ClaimToken != n.ClaimToken:
		return nil, ErrTaken
	}
	s.o.Metrics.claimed(n.Request.Operation)
	c := s.claimRead(row)
	c.reached(row.RecoveryPoint)
	return c, nil
}

// untilAnswered repeats a read while the server cannot be reached: a restart
// takes about a second, and this process holds work that only it knows of.
func (s *Store) untilAnswered(ctx context.Context, read func() error) error {
	var err error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if err = read(); err == nil || errors.Is(err, db.ErrNoRows) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Hurry has the completer look at an unfinished key at once, because its resource
// was changed in the transaction of q. A holder is left alone: it finds the change
// when it writes.
func Hurry(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := Hurried(ctx, q, tenantID, key)
	return err
}

// HurryHolder is Hurry for a change that the holder cannot find, because it was
// made elsewhere: a holder that looked just before looks once more. q's transaction
// must hold no lock that a phase of the key's operation could wait for.
func HurryHolder(ctx context.Context, q *db.Queries, tenantID, key string) error {
	_, err := hurry(ctx, q, db.KeyHurryParams{TenantID: tenantID, Key: key, EvenHeld: true})
	return err
}

// Hurried is Hurry for a caller who wants to know whether there was an unfinished
// key that nobody holds. One that was parked is looked at again, too.
func Hurried(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	return hurry(ctx, q, db.KeyHurryParams{TenantID: tenantID, Key: key})
}

func hurry(ctx context.Context, q *db.Queries, p db.KeyHurryParams) (bool, error) {
	n, err := q.KeyHurry(ctx, p)
	if err != nil {
		return false, fmt.Errorf("hurry a key along: %w", err)
	}
	return n > 0, nil
}

// TryNow is Hurried for a person, who may know what has been mended: a key on which
// its holders died is tried again, too. Nothing else is reason enough for that.
func TryNow(ctx context.Context, q *db.Queries, tenantID, key string) (bool, error) {
	n, err := q.KeyTryNow(ctx, db.KeyTryNowParams{TenantID: tenantID, Key: key})
	if err != nil {
		return false, fmt.Errorf("have a key tried now: %w", err)
	}
	return n > 0, nil
}

// Enqueue adds work that no caller asked for, under a key of our own, as a claim
// that waits for the completer. The key has a space in it, which keeps it apart
// from every caller's. Adding what is there already does nothing.
func Enqueue(ctx context.Context, q *db.Queries, r Request, resourceID, point string) error {
	sum := sha256.Sum256([]byte(r.Operation + " " + resourceID))
	err := q.KeyEnqueue(ctx, db.KeyEnqueueParams{
		TenantID: r.TenantID, Key: r.Key, Operation: r.Operation, Fingerprint: sum[:], FingerprintVersion: FingerprintVersion,
		Request: r.Body, RequestID: r.RequestID, ResourceID: resourceID, RecoveryPoint: point, ClaimToken: uuid.New(), Traceparent: tracing.Traceparent(ctx),
	})
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", r.Operation, err)
	}
	return nil
}
