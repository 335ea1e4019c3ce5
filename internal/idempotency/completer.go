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
)

const (
	completerBatchMax   = 4  // A slow key delays the others of its batch, so batches are small and there are several loops.
	leaseExpirationsMax = 25 // A key whose holders died this often is the cause of their deaths.
)

// Operation is something a request can start. Begin is its first phase and claims the
// key; Run takes a claim from its last recovery point to its answer.
//
// Run returns the final answer once it is stored, or, after giving the claim back, an
// interim answer with the present state. An error means that neither is known; then
// the lease runs out by itself.
type Operation struct {
	Begin func(ctx context.Context, r Request) (*Claim, Answer, error)
	Run   func(ctx context.Context, c *Claim) (Answer, error)
}

// Completer finishes abandoned work: requests whose process died, and payments whose
// outcome is unknown. Any number may run, in any number of processes.
type Completer struct {
	store      *Store
	operations map[string]Operation
	within     time.Duration
}

// NewCompleter returns a completer for the operations, by name. One run of an
// operation gets the time within, which must be shorter than the lease.
func NewCompleter(store *Store, operations map[string]Operation, within time.Duration) *Completer {
	for name := range operations {
		store.o.Metrics.expect(name)
	}
	return &Completer{store: store, operations: operations, within: within}
}

// RunOnce takes over some of the claims whose time has come, runs them and
// returns how many there were.
func (c *Completer) RunOnce(ctx context.Context) (int, error) {
	due, err := c.store.pool.KeyTakeOverDue(ctx, db.KeyTakeOverDueParams{BatchMax: completerBatchMax, ClaimToken: uuid.New(), Lease: c.store.o.Lease})
	if err != nil {
		return 0, fmt.Errorf("take over what is due: %w", err)
	}
	var wait sync.WaitGroup
	for _, row := range due {
		claim := c.store.claimOf(db.KeyTakeOverRow(row))
		wait.Go(func() { c.complete(ctx, claim) })
	}
	wait.Wait()
	return len(due), nil
}

func (c *Completer) complete(ctx context.Context, claim *Claim) {
	// A stopping process lets the item finish, although killing it would do no harm.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.within)
	defer cancel()
	defer func() {
		if bug := recover(); bug != nil {
			claim.Log().Error("bug: the operation panicked; its lease will run out", "panic", bug, "stack", string(debug.Stack()))
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
	case !ok: // A newer version knows it. Leave it to that.
		_ = claim.Yield(ctx, time.Minute, "this process does not know the operation")
		return
	case claim.LeaseExpirations >= leaseExpirationsMax:
		_ = claim.Park(ctx, fmt.Sprintf("%d holders died on it", claim.LeaseExpirations))
		return
	}
	var answer Answer
	answer, err = operation.Run(ctx, claim)
	switch {
	case errors.Is(err, ErrLeaseLost): // Another process has taken over, which is fine.
	case err != nil:
		claim.Log().Warn("not completed yet", "error", err.Error())
	default:
		claim.Log().Info("completed", "status", answer.Status)
	}
}
