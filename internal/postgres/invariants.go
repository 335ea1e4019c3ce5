package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
)

// auditTimeout is for one invariant over tables of any size.
const auditTimeout = 10 * time.Minute

// Violation is a row that breaks an invariant.
type Violation struct {
	Subject string `json:"subject"` // whose: the tenant and the object
	Detail  string `json:"detail"`
}

// Check is an invariant and the rows that break it, none if it holds.
type Check struct {
	ID   string
	Name string
	Rows []Violation
}

// invariant is one query of invariants.sql, which returns the rows that break it.
type invariant struct {
	id, name string
	query    func(*db.Queries, context.Context) ([]Violation, error)
}

// invariants is what must be true, at any time or once the system is idle, in the order of their numbers, which are
// those of docs/guarantees.md; a number may have several sentences. One line for each part of the service: to leave a
// part out, delete its line and its file.
var invariants = inOrder(
	paymentInvariants,
	ledgerInvariants,   // part: ledger
	disputeInvariants,  // part: disputes
	checkoutInvariants, // part: checkouts
	webhookInvariants,  // part: webhooks
)

// paymentInvariants are those of orders, payments, refunds, keys and events, which every service has.
var paymentInvariants = []invariant{
	{"I1a", "an order is paid once", offenders((*db.Queries).InvariantOrderPaidOnce)},
	{"I1b", "a key has one effect", offenders((*db.Queries).InvariantOneEffectPerKey)},
	{"I2", "no acknowledged payment is lost or changed", offenders((*db.Queries).InvariantSuccessIsKept)},
	{"I3", "a response is stored complete", offenders((*db.Queries).InvariantResponseIsComplete)},
	{"I4", "a key serves one request", offenders((*db.Queries).InvariantKeyServesOneRequest)},
	{"I5a", "no key is stuck", offenders((*db.Queries).InvariantNoKeyIsStuck)},
	{"I5b", "nothing is parked", offenders((*db.Queries).InvariantNothingIsParked)},
	{"I5c", "every unfinished payment has an unfinished key", offenders((*db.Queries).InvariantUnfinishedHasKey)},
	{"I6a", "each version has one event", offenders((*db.Queries).InvariantVersionsHaveEvents)},
	{"I6b", "events are published", offenders((*db.Queries).InvariantEventsArePublished)},
	{"I7b", "received events are applied", offenders((*db.Queries).InvariantReceivedIsApplied)},
	{"I8c", "orders agree with their payments", offenders((*db.Queries).InvariantOrderAgreesWithPayment)},
	{"I8d", "refunds add up and never exceed the payment", offenders((*db.Queries).InvariantRefundsAddUp)},
	{"I9", "fencing tokens only grow", offenders((*db.Queries).InvariantTokensOnlyGrow)},
	{"I10", "references stay within a tenant", offenders((*db.Queries).InvariantReferencesStayInTheTenant)},
	{"I11", "final states do not change, transitions are legal", offenders((*db.Queries).InvariantTransitionsAreLegal)},
	{
		"I12", "no effect at Stripe without a call recorded before it",
		offenders((*db.Queries).InvariantCallBeforeEffect),
	},
	{
		"I13", "no call is sent after its resend cutoff, or under two keys",
		offenders((*db.Queries).InvariantNothingIsResentLate),
	},
	{"I14", "an unknown outcome is never answered as a failure",
		offenders((*db.Queries).InvariantNoFailureWhileUnknown)},
	{"I15", "received webhooks are applied", offenders((*db.Queries).InvariantWebhookIsApplied)},
	{"I17", "the reaper deletes no unfinished key", offenders((*db.Queries).InvariantKeyIsRetained)},
	{"I28", "no automatic refund that failed is forgotten", offenders((*db.Queries).InvariantOwedIsNotForgotten)},
}

// inOrder sorts I8b after I8a and I10 after I9, so that a report is in the order of docs/guarantees.md whatever the
// parts.
func inOrder(parts ...[]invariant) []invariant {
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b invariant) int {
		return cmp.Or(cmp.Compare(a.number(), b.number()), cmp.Compare(a.id, b.id))
	})
	return all
}

// number is the 8 of I8c.
func (inv invariant) number() (n int) {
	_, _ = fmt.Sscanf(inv.id, "I%d", &n)
	return n
}

// offenders converts a query's own row type to Violation: sqlc generates one for each query, although they are alike.
func offenders[R ~struct{ Subject, Detail string }](
	query func(*db.Queries, context.Context) ([]R, error),
) func(*db.Queries, context.Context) ([]Violation, error) {
	return func(q *db.Queries, ctx context.Context) ([]Violation, error) {
		rows, err := query(q, ctx)
		found := make([]Violation, len(rows))
		for i, row := range rows {
			plain := struct{ Subject, Detail string }(row)
			found[i] = Violation(plain)
		}
		return found, err
	}
}

// Invariants runs every check, each in a separate transaction. On a system at work a row may be in progress between
// two tables that a check compares, so run it again before you wake an operator.
func (p *Pool) Invariants(ctx context.Context) ([]Check, error) {
	checks := make([]Check, len(invariants))
	for i, inv := range invariants {
		err := p.inTxWithTimeout(ctx, auditTimeout, func(q *db.Queries) (err error) {
			checks[i], err = inv.check(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return checks, nil
}

// CheckResult is a check that had limited time, and why it has no result, if so.
type CheckResult struct {
	Check
	Err error
}

// InvariantsWithin is Invariants for a user who waits: each query gets the time each, and one that fails or takes
// longer does not prevent the others.
func (p *Pool) InvariantsWithin(ctx context.Context, each time.Duration) []CheckResult {
	results := make([]CheckResult, len(invariants))
	for i, inv := range invariants {
		results[i].Check = Check{ID: inv.id, Name: inv.name}
		results[i].Err = p.inTxWithTimeout(ctx, each, func(q *db.Queries) error {
			check, err := inv.check(ctx, q)
			if err == nil {
				results[i].Check = check
			}
			return err
		})
	}
	return results
}

// CheckInvariants is Pool.Invariants in the caller's transaction.
func CheckInvariants(ctx context.Context, q *db.Queries) ([]Check, error) {
	checks := make([]Check, len(invariants))
	for i, inv := range invariants {
		var err error
		if checks[i], err = inv.check(ctx, q); err != nil {
			return nil, err
		}
	}
	return checks, nil
}

func (inv invariant) check(ctx context.Context, q *db.Queries) (Check, error) {
	rows, err := inv.query(q, ctx)
	if err != nil {
		return Check{}, fmt.Errorf("check %s, %s: %w", inv.id, inv.name, err)
	}
	return Check{ID: inv.id, Name: inv.name, Rows: rows}, nil
}
