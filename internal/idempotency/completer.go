package idempotency

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	// A slow key delays the others of its batch, so batches are small and there are several loops.
	completerBatchMax   = 4
	leaseExpirationsMax = 25 // A key whose holders crashed so often most likely causes the crashes.
)

// Operation is something that a request can start. Begin is its first phase and claims the key; Run takes a claim from
// its last recovery point to its final answer.
//
// Run returns the final answer once it is stored, or, after giving the claim back, an interim answer with the present
// state. An error means that neither is known; then the lease expires.
type Operation struct {
	Begin func(ctx context.Context, r Request) (*Claim, Answer, error)
	Run   func(ctx context.Context, c *Claim) (Answer, error)
}

// Completer finishes abandoned work: requests whose process crashed, and payments whose outcome is unknown. Any number
// may run, in any number of processes.
type Completer struct {
	store      *Store
	operations map[string]Operation
	within     time.Duration
}

// NewCompleter returns a completer for the operations, by name. One run of an operation gets the time within, which
// must be shorter than the lease, or two holders would work on one key.
func NewCompleter(store *Store, operations map[string]Operation, within time.Duration) *Completer {
	for name := range operations {
		store.o.Metrics.expect(name)
	}
	return &Completer{store: store, operations: operations, within: within}
}

// RunOnce takes over some of the claims that are due, runs them and returns how many there were.
func (c *Completer) RunOnce(ctx context.Context) (int, error) {
	due, err := c.store.pool.KeyTakeOverDue(
		ctx, db.KeyTakeOverDueParams{BatchMax: completerBatchMax, ClaimToken: uuid.New(), Lease: c.store.o.Lease},
	)
	if err != nil {
		return 0, fmt.Errorf("take over due keys: %w", err)
	}
	var wait sync.WaitGroup
	for _, row := range due {
		claim, unopened := c.store.claimOf(db.KeyTakeOverRow(row))
		wait.Go(func() { c.complete(ctx, claim, unopened) })
	}
	wait.Wait()
	return len(due), nil
}

func (c *Completer) complete(ctx context.Context, claim *Claim, unopened error) {
	// A process that stops lets the item finish, although a kill would do no harm.
	ctx = postgres.ForTenant(context.WithoutCancel(ctx), claim.TenantID)
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	defer func() {
		if bug := recover(); bug != nil {
			claim.Log().
				Error("bug: the operation panicked; its lease will expire", "panic", bug, "stack",
					string(debug.Stack()))
		}
	}()
	c.store.o.Metrics.takeover(claim)
	ctx, span := c.store.o.Tracer.Resume(ctx, claim.origin, "complete ", claim.Operation)
	var err error
	defer func() {
		claim.describe(span)
		span.End(err)
	}()
	operation, ok := c.operations[claim.Operation]
	switch {
	case unopened != nil:
		err = unopened
		claim.unopened(ctx, err)
		return
	case !ok: // A newer version has it, so a process of that version must run it.
		_ = claim.Yield(ctx, time.Minute, "this process does not have the operation")
		return
	case claim.LeaseExpirations >= leaseExpirationsMax:
		_ = claim.Park(ctx, fmt.Sprintf("%d holders crashed while they worked on it", claim.LeaseExpirations))
		return
	}
	var answer Answer
	answer, err = operation.Run(ctx, claim)
	switch {
	case errors.Is(err, ErrLeaseLost): // Another process has taken over, and finishes it.
	case err != nil:
		claim.Log().Warn("not completed yet", "error", err.Error())
	default:
		claim.Log().Info("completed", "status", answer.Status)
	}
}
