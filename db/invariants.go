package db

import (
	"context"
	"fmt"
	"time"
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
	query    func(*Queries, context.Context) ([]Violation, error)
}

// invariants is what must be true, always, or once everything has come to rest.
// Numbers are those of docs/guarantees.md; a number may have several sentences.
var invariants = []invariant{
	{"I1a", "an order is paid once", offenders((*Queries).InvariantOrderPaidOnce)},
	{"I1b", "a key has one effect", offenders((*Queries).InvariantOneEffectPerKey)},
	{"I2", "no acknowledged payment is lost or changed", offenders((*Queries).InvariantSuccessIsKept)},
	{"I3", "a response is stored complete", offenders((*Queries).InvariantResponseIsComplete)},
	{"I4", "a key serves one request", offenders((*Queries).InvariantKeyServesOneRequest)},
	{"I5a", "no key is stuck", offenders((*Queries).InvariantNoKeyIsStuck)},
	{"I5b", "nothing is parked", offenders((*Queries).InvariantNothingIsParked)},
	{"I5c", "unfinished work has an unfinished key", offenders((*Queries).InvariantUnfinishedHasKey)},
	{"I6a", "each version has one event", offenders((*Queries).InvariantVersionsHaveEvents)},
	{"I6b", "events are published", offenders((*Queries).InvariantEventsArePublished)},
	{"I7a", "an event and its effect commit together", offenders((*Queries).InvariantEffectHasInboxRow)},
	{"I7b", "received events are applied", offenders((*Queries).InvariantReceivedIsApplied)},
	{"I7c", "published events are received", offenders((*Queries).InvariantPublishedReachesLedger)},
	{"I8a", "the ledger sums to zero", offenders((*Queries).InvariantLedgerSumsToZero)},
	{"I8b", "the ledger matches the money that moved", offenders((*Queries).InvariantLedgerAgrees)},
	{"I8c", "orders agree with their payments", offenders((*Queries).InvariantOrderAgreesWithPayment)},
	{"I8d", "refunds add up and never exceed the payment", offenders((*Queries).InvariantRefundsAddUp)},
	{"I9", "fencing tokens only grow", offenders((*Queries).InvariantTokensOnlyGrow)},
	{"I10", "no row refers to another tenant", offenders((*Queries).InvariantReferencesStayInTheTenant)},
	{"I11", "final states never change, transitions are legal", offenders((*Queries).InvariantTransitionsAreLegal)},
	{"I12", "every effect has a call recorded before it", offenders((*Queries).InvariantCallBeforeEffect)},
	{"I13", "no call is resent after the cutoff or has two keys", offenders((*Queries).InvariantNothingIsResentLate)},
	{"I14", "no failure is reported while the outcome is unknown", offenders((*Queries).InvariantNoFailureWhileUnknown)},
	{"I15", "received webhooks are applied", offenders((*Queries).InvariantWebhookIsApplied)},
	{"I16", "a checkout ends complete or compensated", offenders((*Queries).InvariantEndedCheckoutIsConsistent)},
	{"I17", "the reaper keeps unfinished keys", offenders((*Queries).InvariantKeyIsRetained)},
	{"I22", "every published event is received", offenders((*Queries).InvariantPublishedReachesNotifier)},
}

// offenders gives the queries' row types, which sqlc makes one by one though
// they are all alike, one name.
func offenders[R ~struct{ Subject, Detail string }](query func(*Queries, context.Context) ([]R, error)) func(*Queries, context.Context) ([]Violation, error) {
	return func(q *Queries, ctx context.Context) ([]Violation, error) {
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
		err := p.patiently(ctx, auditTimeout, func(q *Queries) (err error) {
			checks[i], err = inv.check(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return checks, nil
}

// Asked is an invariant that was asked for in a limited time, and why it could
// not be answered, if so.
type Asked struct {
	Check
	Err error
}

// InvariantsWithin is Invariants for somebody who waits: each query gets the time
// each, and one that cannot be answered in it does not keep the others from it.
func (p *Pool) InvariantsWithin(ctx context.Context, each time.Duration) []Asked {
	asked := make([]Asked, len(invariants))
	for i, inv := range invariants {
		asked[i].Check = Check{ID: inv.id, Name: inv.name}
		asked[i].Err = p.patiently(ctx, each, func(q *Queries) error {
			check, err := inv.check(ctx, q)
			if err == nil {
				asked[i].Check = check
			}
			return err
		})
	}
	return asked
}

// CheckInvariants is Invariants in a transaction of the caller's.
func (q *Queries) CheckInvariants(ctx context.Context) ([]Check, error) {
	checks := make([]Check, len(invariants))
	for i, inv := range invariants {
		var err error
		if checks[i], err = inv.check(ctx, q); err != nil {
			return nil, err
		}
	}
	return checks, nil
}

func (inv invariant) check(ctx context.Context, q *Queries) (Check, error) {
	rows, err := inv.query(q, ctx)
	if err != nil {
		return Check{}, fmt.Errorf("ask for %s, %s: %w", inv.id, inv.name, err)
	}
	return Check{ID: inv.id, Name: inv.name, Rows: rows}, nil
}
