package idempotency

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

var (
	// ErrTaken means that another request has claimed the key. Look it up again.
	ErrTaken = errors.New("another request has claimed the key")
	// ErrLeaseLost means that the claim was taken over: nothing was written, and nothing may be. The answer is the one
	// that the new holder stores.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrRowChanged means that a phase wrote nothing although the lease may be valid: the row that it was to change has
	// changed since it was read. Read it again.
	ErrRowChanged = errors.New("the row was changed by another operation")
)

// Request is one request with a key: its sender and its content.
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
	// Lease is how long a claim is valid if its holder crashes. One run of an operation must take less.
	Lease time.Duration
	// Metrics may be nil.
	Metrics *Metrics
	Log     *slog.Logger
	Tracer  *tracing.Tracer // nil: off
	// Boundary is called once a recovery point is durable. Tests kill, pause or disconnect a process between two phases
	// here, and nowhere else.
	Boundary func(operation, recoveryPoint string)
}

// Store is the table of keys.
type Store struct {
	pool   *postgres.Pool
	lookup *postgres.Batched[keyOf, db.KeyLookupRow]
	read   *postgres.Batched[keyOf, db.KeyReadRow]
	o      Options
}

// NewStore returns the store. It starts nothing.
func NewStore(pool *postgres.Pool, o Options) *Store {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Boundary == nil {
		o.Boundary = func(string, string) {}
	}
	return &Store{pool: pool, o: o, lookup: postgres.NewBatched(pool, lookups), read: postgres.NewBatched(pool, reads)}
}

// keyOf names a row of the table.
type keyOf struct{ tenantID, key string }

func (k *keyOf) tenant() string { return k.tenantID }

// The look-ups of concurrent requests share a statement.
var (
	lookups = postgres.Statement[keyOf, db.KeyLookupRow]{
		Run: func(ctx context.Context, q *db.Queries, keys []keyOf, done func(int32, db.KeyLookupRow)) error {
			tenants, names := columns(keys)
			rows, err := q.KeyLookup(ctx, db.KeyLookupParams{TenantIds: tenants, Keys: names})
			for _, row := range rows {
				done(row.Ordinal, row)
			}
			return err
		},
		Tenant: (*keyOf).tenant,
	}
	reads = postgres.Statement[keyOf, db.KeyReadRow]{
		Run: func(ctx context.Context, q *db.Queries, keys []keyOf, done func(int32, db.KeyReadRow)) error {
			tenants, names := columns(keys)
			rows, err := q.KeyRead(ctx, db.KeyReadParams{TenantIds: tenants, Keys: names})
			for _, row := range rows {
				done(row.Ordinal, row)
			}
			return err
		},
		Tenant: (*keyOf).tenant,
	}
)

func columns(keys []keyOf) (tenants, names []string) {
	tenants, names = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], names[i] = k.tenantID, k.key
	}
	return tenants, names
}

// State is the state of a key, relative to a request.
type State int

const (
	Fresh    State = iota // never used: begin
	Replay                // finished: send Answer
	InFlight              // a holder works on it now
	Waiting               // unfinished and without a holder: take it over and resume
	Mismatch              // used for another request: respond with that, and reveal nothing else
	Expired               // finished long ago; the answer is gone, the work is done
)

// Found is the result of Lookup.
type Found struct {
	State      State
	Answer     Answer        // of a Replay
	ResourceID string        // of an Expired
	RetryAfter time.Duration // of an InFlight: when to retry
	token      int64         // of a Waiting: the fencing token that was seen
}

// Lookup reads the state of the request's key. It writes nothing, so a replay costs one read. Where commits wait for a
// standby, it waits until the standby has the answer, because the wait of its commit may have been canceled. After an
// error nothing is known about the key, and the caller must not treat it as new.
func (s *Store) Lookup(ctx context.Context, r Request) (Found, error) {
	row, err := s.lookup.Do(ctx, keyOf{r.TenantID, r.Key})
	if errors.Is(err, postgres.ErrNoRows) {
		return Found{State: Fresh}, nil
	}
	if err != nil {
		return Found{}, fmt.Errorf("look up the key: %w", err)
	}
	f := Found{ResourceID: row.ResourceID, token: row.LeaseToken}
	switch {
	case row.Operation != r.Operation || !hmac.Equal(row.Fingerprint, r.Fingerprint):
		f = Found{State: Mismatch}
	case row.HeldSeconds > 0: // a finished key is not held
		f.State, f.RetryAfter = InFlight, s.retryAfter(row.HeldSeconds)
	case !row.Finished:
		f.State = Waiting
	case row.AnswerDropped:
		f.State = Expired
	default:
		if row.Standby { // The answer is here, and perhaps nowhere else.
			if err = s.pool.AwaitStandby(ctx, r.TenantID); err != nil {
				return Found{}, fmt.Errorf("look up the key: %w", err)
			}
		}
		f.State = Replay
		f.Answer, err = s.openAnswer(ctx, keyOf{r.TenantID, r.Key}, row.CreatedAt,
			row.AnswerVersion, row.AnswerStatus, row.AnswerHeaders, row.AnswerBody)
	}
	return f, err
}

// Count counts the state of the key that decided the response. It is separate from Lookup because one request may look
// up its key several times.
func (s *Store) Count(operation string, state State) {
	s.o.Metrics.requests.WithLabelValues(operation, state.String()).Inc()
}

// retryAfter is one or two seconds for a holder that has just started and will most likely finish within them. It is
// random, so that duplicates do not all retry at the same moment, and in whole seconds, because Retry-After has no
// fractions.
func (s *Store) retryAfter(heldSeconds float64) time.Duration {
	seconds := 1 + rand.IntN(2)
	if held := s.o.Lease.Seconds() - heldSeconds; held > 3 { // it has been working for a while
		seconds++
	}
	return time.Duration(seconds) * time.Second
}

// TakeOver claims an unfinished key whose lease has expired or was given back. ErrTaken: another request was faster.
func (s *Store) TakeOver(ctx context.Context, r Request, f Found) (*Claim, error) {
	token := uuid.New()
	row, err := s.pool.KeyTakeOver(ctx, db.KeyTakeOverParams{
		TenantID: r.TenantID, Key: r.Key, SeenToken: f.token, ClaimToken: token, Lease: s.o.Lease,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return nil, ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("take over the key: %w", postgres.ClassifyWriteError(err))
	}
	c, err := s.claimOf(ctx, row)
	if err != nil {
		c.unopened(ctx, err)
		return nil, err
	}
	c.RequestID = r.RequestID // This request is the first to get the answer, so the answer contains its id.
	s.o.Metrics.takeover(c)
	tracing.Current(ctx).Link(c.origin)
	return c, nil
}

// readKey reads a key after a COMMIT whose outcome is unknown. What it returns will not be lost: where commits wait for
// a standby, the standby has it.
func (s *Store) readKey(ctx context.Context, k keyOf) (row db.KeyReadRow, err error) {
	err = s.untilAnswered(ctx, func() (err error) {
		if row, err = s.read.Do(ctx, k); err == nil {
			err = s.pool.AwaitStandby(ctx, k.tenantID)
		}
		return err
	})
	return row, err
}

// untilAnswered retries a read while the server cannot be reached: a restart takes about a second, and without the read
// the client would wait until this process's own lease expires.
func (s *Store) untilAnswered(ctx context.Context, read func() error) error {
	var err error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if err = read(); err == nil || errors.Is(err, postgres.ErrNoRows) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
