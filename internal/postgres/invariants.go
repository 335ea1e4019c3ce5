package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

const (
	// auditTimeout is for one invariant over tables of any size.
	auditTimeout = 10 * time.Minute
	// answersPage is how many sealed responses are opened at a time.
	answersPage = 100
)

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
	Err  error // why the query has no result: then nothing is known about the invariant
}

// invariant is one query of invariants.sql, which returns the rows that break it.
type invariant struct {
	id, name string
	query    func(context.Context, *db.Queries, *sealed.Box) ([]Violation, error)
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
	{"I1c", "a charge pays one payment", offenders((*db.Queries).InvariantChargePaysOnce)},
	{"I2", "no acknowledged payment is lost or changed", offendersOfAnswers((*db.Queries).InvariantSuccessIsKept, false)},
	{"I2b", "stored responses agree with what happened", offendersOfAnswers((*db.Queries).InvariantResponseAgrees, false)},
	{"I3", "a response is stored complete", offendersOfAnswers((*db.Queries).InvariantResponseIsComplete, true)},
	{"I4", "a key serves one request", offenders((*db.Queries).InvariantKeyServesOneRequest)},
	{"I5a", "no key is stuck", offenders((*db.Queries).InvariantNoKeyIsStuck)},
	{"I5b", "nothing is parked", offenders((*db.Queries).InvariantNothingIsParked)},
	{"I5c", "every unfinished payment has an unfinished key", offenders((*db.Queries).InvariantUnfinishedHasKey)},
	{"I6a", "each version has one event", offenders((*db.Queries).InvariantVersionsHaveEvents)},
	{"I6b", "events are published", offenders((*db.Queries).InvariantEventsArePublished)},
	{"I6c", "the last event of an object agrees with its status", offenders((*db.Queries).InvariantLastEventAgrees)},
	{"I7b", "received events are applied", offenders((*db.Queries).InvariantReceivedIsApplied)},
	{"I8c", "orders agree with their payments", offenders((*db.Queries).InvariantOrderAgreesWithPayment)},
	{"I8d", "refunds add up and never exceed the payment", offenders((*db.Queries).InvariantRefundsAddUp)},
	{"I8i", "an order's items sum to its amount", offenders((*db.Queries).InvariantItemsSumToAmount)},
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
	{"I25", "a client secret ends with its payment", offenders((*db.Queries).InvariantSecretEndsWithItsPayment)},
	{"I26", "an authorization has one end", offenders((*db.Queries).InvariantAuthorizationHasOneEnd)},
	{"I28", "what must be refunded is refunded, owed or settled", offenders((*db.Queries).InvariantOwedIsNotForgotten)},
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
) func(context.Context, *db.Queries, *sealed.Box) ([]Violation, error) {
	return func(ctx context.Context, q *db.Queries, _ *sealed.Box) ([]Violation, error) {
		rows, err := query(q, ctx)
		return violations(rows), err
	}
}

func violations[R ~struct{ Subject, Detail string }](rows []R) []Violation {
	found := make([]Violation, len(rows))
	for i, row := range rows {
		plain := struct{ Subject, Detail string }(row)
		found[i] = Violation(plain)
	}
	return found
}

// openedAnswers are the parameters of a query about responses: those that were opened, or none for those that are plain.
type openedAnswers = struct {
	TenantIds []string
	Keys      []string
	Bodies    [][]byte
}

// offendersOfAnswers is offenders for a query about responses. SQL judges each of them: the plain ones where they
// stand, and the sealed ones after they were opened here. One that was changed since it was sealed breaks the invariant
// for which changed is set, and is left to it by the others. Without the key of one there is no result.
func offendersOfAnswers[R ~struct{ Subject, Detail string }, P ~openedAnswers](
	query func(*db.Queries, context.Context, P) ([]R, error), changed bool,
) func(context.Context, *db.Queries, *sealed.Box) ([]Violation, error) {
	return func(ctx context.Context, q *db.Queries, box *sealed.Box) ([]Violation, error) {
		rows, err := query(q, ctx, P{})
		found := violations(rows)
		for page := (db.SealedAnswersParams{LimitRows: answersPage}); err == nil; {
			var answers []db.SealedAnswersRow
			if answers, err = q.SealedAnswers(ctx, page); err != nil || len(answers) == 0 {
				break
			}
			last := answers[len(answers)-1]
			page.AfterTenant, page.AfterKey = last.TenantID, last.Key
			var opened openedAnswers
			for _, a := range answers {
				body, err := box.Open(sealed.Answer(a.TenantID, a.Key), a.AnswerBody)
				switch {
				case errors.Is(err, sealed.ErrChanged) && changed:
					found = append(found, Violation{a.TenantID + " " + a.ResourceID, sealed.ErrChanged.Error()})
				case errors.Is(err, sealed.ErrChanged):
				case err != nil:
					return nil, err
				default:
					opened.TenantIds = append(opened.TenantIds, a.TenantID)
					opened.Keys = append(opened.Keys, a.Key)
					opened.Bodies = append(opened.Bodies, body)
				}
			}
			if len(opened.Keys) > 0 {
				rows, err = query(q, ctx, P(opened))
				found = append(found, violations(rows)...)
			}
		}
		return found, err
	}
}

// Invariants runs every check, each in a separate transaction. On a system at work a row may be in progress between
// two tables that a check compares, so run it again before you wake an operator. A query that fails does not prevent
// the others: its check has the error, and so has the result, for callers that need all of them.
func (p *Pool) Invariants(ctx context.Context) ([]Check, error) {
	checks := p.InvariantsWithin(ctx, auditTimeout)
	var failed error
	for _, c := range checks {
		failed = errors.Join(failed, c.Err)
	}
	return checks, failed
}

// InvariantsWithin is Invariants for a user who waits: each query gets the time each.
func (p *Pool) InvariantsWithin(ctx context.Context, each time.Duration) []Check {
	checks := make([]Check, len(invariants))
	for i, inv := range invariants {
		err := p.InTxWithTimeout(ctx, each, func(q *db.Queries) error {
			checks[i] = inv.check(ctx, q, p.box)
			return checks[i].Err
		})
		if err != nil && checks[i].Err == nil { // the transaction failed, not the query
			checks[i] = inv.failed(err)
		}
	}
	return checks
}

// CheckInvariant is one check of Pool.Invariants, such as I8c, in the caller's transaction. It fails for an id that no
// invariant has.
func CheckInvariant(ctx context.Context, q *db.Queries, box *sealed.Box, id string) (Check, error) {
	for _, inv := range invariants {
		if inv.id == id {
			c := inv.check(ctx, q, box)
			return c, c.Err
		}
	}
	return Check{}, fmt.Errorf("check %s: no invariant has this id", id)
}

func (inv invariant) check(ctx context.Context, q *db.Queries, box *sealed.Box) Check {
	rows, err := inv.query(ctx, q, box)
	if err != nil {
		return inv.failed(err)
	}
	return Check{ID: inv.id, Name: inv.name, Rows: rows}
}

func (inv invariant) failed(err error) Check {
	return Check{ID: inv.id, Name: inv.name, Err: fmt.Errorf("check %s, %s: %w", inv.id, inv.name, err)}
}
