package postgres

import (
	"context"
	"fmt"
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

// invariant is one query of invariants.sql.
type invariant struct {
	id, name string
	query    func(*db.Queries, context.Context) ([]Violation, error)
}

// invariants is what must be true, always, or once everything has come to rest.
// Numbers are those of docs/guarantees.md; a number may have several sentences.
var invariants = []invariant{
	{"I1a", "an order is paid once", offenders((*db.Queries).InvariantOrderPaidOnce)},
	{"I1b", "a key has one effect", offenders((*db.Queries).InvariantOneEffectPerKey)},
	{"I2", "no acknowledged payment is lost or changed", offenders((*db.Queries).InvariantAnswerIsKept)},
	{"I3", "an answer is stored whole", offenders((*db.Queries).InvariantAnswerIsWhole)},
	{"I4", "a key serves one request", offenders((*db.Queries).InvariantKeyServesOneRequest)},
	{"I5a", "no key is stuck", offenders((*db.Queries).InvariantNoKeyIsStuck)},
	{"I5b", "nothing is parked", offenders((*db.Queries).InvariantNothingIsParked)},
	{"I5c", "somebody works on what has not ended", offenders((*db.Queries).InvariantLiveHasAKey)},
	{"I6a", "each version has one event", offenders((*db.Queries).InvariantVersionsHaveEvents)},
	{"I6b", "events are published", offenders((*db.Queries).InvariantEventsArePublished)},
	{"I7a", "an event and its effect are one", offenders((*db.Queries).InvariantEffectHasItsInboxRow)},
	{"I7b", "received events are applied", offenders((*db.Queries).InvariantReceivedIsApplied)},
	{"I7c", "published events are received", offenders((*db.Queries).InvariantPublishedIsReceived)},
	{"I8a", "the ledger sums to zero", offenders((*db.Queries).InvariantLedgerSumsToZero)},
	{"I8b", "the ledger says what moved", offenders((*db.Queries).InvariantLedgerAgrees)},
	{"I8c", "orders agree with their payments", offenders((*db.Queries).InvariantOrderAgreesWithPayment)},
	{"I8d", "refunds add up and never exceed the payment", offenders((*db.Queries).InvariantRefundsAddUp)},
	{"I9", "fencing tokens only grow", offenders((*db.Queries).InvariantTokensOnlyGrow)},
	{"I10", "tenants do not meet", offenders((*db.Queries).InvariantReferencesStayInTheTenant)},
	{"I11", "final is final, transitions are legal", offenders((*db.Queries).InvariantTransitionsAreLegal)},
	{"I12", "no effect without prior intent", offenders((*db.Queries).InvariantIntentBeforeEffect)},
	{"I13", "nothing is sent past the cut-off, nor under two keys", offenders((*db.Queries).InvariantNothingIsSentLate)},
	{"I14", "unknown is no failure", offenders((*db.Queries).InvariantUnknownIsNoFailure)},
	{"I15", "received webhooks are applied", offenders((*db.Queries).InvariantWebhookIsApplied)},
	{"I16", "sagas end whole", offenders((*db.Queries).InvariantSagaIsWhole)},
	{"I17", "the reaper keeps what is not finished", offenders((*db.Queries).InvariantReaperKeepsTheUnfinished)},
	{"I22", "nothing published has vanished", offenders((*db.Queries).InvariantNothingVanishes)},
}

// offenders gives the queries' row types, which sqlc makes one by one though
// they are all alike, one name.
func offenders[R ~struct{ Subject, Detail string }](query func(*db.Queries, context.Context) ([]R, error)) func(*db.Queries, context.Context) ([]Violation, error) {
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

// Invariants asks for every row that breaks one. Each query sees the tables as
// they are when it begins; on a system at work a row may be on its way, so ask
// again before you wake somebody.
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

// CheckResult is an invariant that was asked for in a limited time, and why it could
// not be answered, if so.
type CheckResult struct {
	Check
	Err error
}

// InvariantsWithin is Invariants for somebody who waits: each query gets the time
// each, and one that cannot be answered in it does not keep the others from it.
func (p *Pool) InvariantsWithin(ctx context.Context, each time.Duration) []CheckResult {
	asked := make([]CheckResult, len(invariants))
	for i, inv := range invariants {
		asked[i].Check = Check{ID: inv.id, Name: inv.name}
		asked[i].Err = p.inTxWithTimeout(ctx, each, func(q *db.Queries) error {
			check, err := inv.check(ctx, q)
			if err == nil {
				asked[i].Check = check
			}
			return err
		})
	}
	return asked
}

// CheckInvariants is Pool.Invariants in a transaction of the caller's.
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
		return Check{}, fmt.Errorf("ask for %s, %s: %w", inv.id, inv.name, err)
	}
	return Check{ID: inv.id, Name: inv.name, Rows: rows}, nil
}
