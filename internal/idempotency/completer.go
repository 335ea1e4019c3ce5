package idempotency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
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

	mu      sync.Mutex
	working map[string]int // claims that run here, by tenant
}

// NewCompleter returns a completer for the operations, by name. One run of an operation gets the time within, which
// must be shorter than the lease, or two holders would work on one key.
func NewCompleter(store *Store, operations map[string]Operation, within time.Duration) *Completer {
	for name := range operations {
		store.o.Metrics.expect(name)
	}
	return &Completer{store: store, operations: operations, within: within, working: map[string]int{}}
}

// RunOnce takes over some of the claims that are due, runs them and returns how many there were.
func (c *Completer) RunOnce(ctx context.Context) (int, error) {
	due, err := c.takeOver(ctx)
	var wait sync.WaitGroup
	for _, row := range due {
		claim, unopened := c.store.claimOf(ctx, db.KeyTakeOverRow(row))
		wait.Go(func() {
			defer c.worksFor(row.TenantID, -1)
			c.complete(ctx, claim, unopened)
		})
	}
	wait.Wait()
	return len(due), err
}

// takeOver takes claims that are due: first those of tenants for which nothing runs here, then whichever is due longest.
// So a tenant with a thousand of them, which Stripe takes minutes for, delays another's by those that run already.
func (c *Completer) takeOver(ctx context.Context) ([]db.KeyTakeOverDueRow, error) {
	arg := db.KeyTakeOverDueParams{
		BatchMax: completerBatchMax, ClaimToken: uuid.New(), Lease: c.store.o.Lease, Besides: c.workingFor(),
	}
	due, err := c.takeOverDue(ctx, arg)
	if err == nil && len(due) < completerBatchMax && len(arg.Besides) > 0 {
		var more []db.KeyTakeOverDueRow
		arg.BatchMax, arg.ClaimToken, arg.Besides = completerBatchMax-int32(len(due)), uuid.New(), nil //nolint:gosec // a few
		more, err = c.takeOverDue(ctx, arg)
		due = append(due, more...)
	}
	if err != nil {
		err = fmt.Errorf("take over due keys: %w", err)
	}
	return due, err
}

func (c *Completer) takeOverDue(ctx context.Context, arg db.KeyTakeOverDueParams) ([]db.KeyTakeOverDueRow, error) {
	if arg.Besides == nil {
		arg.Besides = []string{} // Nothing is unequal to all of NULL.
	}
	due, err := c.store.pool.KeyTakeOverDue(ctx, arg)
	for _, row := range due {
		c.worksFor(row.TenantID, 1)
	}
	return due, err
}

// workingFor are the tenants of the claims that run here.
func (c *Completer) workingFor() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.working))
}

// worksFor counts a claim of the tenant that begins, or ends.
func (c *Completer) worksFor(tenantID string, claims int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working[tenantID] += claims; c.working[tenantID] == 0 {
		delete(c.working, tenantID)
	}
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
