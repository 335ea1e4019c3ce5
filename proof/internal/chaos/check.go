package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/proof/internal/chaos/history"
)

// Check is one look at one invariant, by one witness.
type Check struct {
	ID     string `json:"id"` // of an invariant, with a letter where a query has one
	Name   string `json:"name"`
	By     string `json:"by"`
	Looked int    `json:"looked_at"` // how many things were held against it; -1: a query, which looks at all rows
	// Violations are what offends. None, and something looked at, is what green is.
	Violations []string `json:"violations"`
}

// Witnesses.
const (
	byQuery     = "query"
	byEffects   = "Stripe's effect log"
	byBroker    = "broker's log"
	byAnswers   = "responses"
	byHistory   = "history"
	byScene     = "scene"
	byProcesses = "processes"
	byHolders   = "log of holders"
)

// violations are shown of one check; the number counts them all.
const shownMax = 20

// checks are a finished run whose results are checked.
type checks struct {
	world   *world
	traffic *traffic
	watch   *watch
	base    map[string]vitals
	log     []message // the broker's
	checks  []Check
}

func (j *checks) add(id, name, by string, looked int, violations []string) {
	j.checks = append(j.checks, Check{ID: id, Name: name, By: by, Looked: looked, Violations: violations})
}

// All asks every witness about every invariant. An error says that one could not
// be asked, which is no verdict.
func (j *checks) all(ctx context.Context, r *rand.Rand) error {
	for _, ask := range []func(context.Context) error{
		j.queries, j.stripesBooks, j.brokersLog, j.consumersInbox, j.webhooksStored, j.holders, j.clocks,
		j.acknowledged,
		func(ctx context.Context) error { j.replays(ctx, r); return nil }, j.revoked, j.histories, j.refusals,
		j.nothingLeaks,
	} {
		if err := ask(ctx); err != nil {
			return err
		}
	}
	j.answers()
	j.processes()
	slices.SortStableFunc(j.checks, func(a, b Check) int { return number(a.ID) - number(b.ID) })
	return nil
}

// number is the 8 of I8c.
func number(id string) (n int) {
	_, _ = fmt.Sscanf(id, "I%d", &n)
	return n
}

// progressMax is how long a busy machine may take while less and less is left.
const progressMax = 15 * time.Minute

// progress is how long what is left has become less. Work that hangs does not become less.
type progress struct {
	began  time.Time
	least  int
	lasted time.Duration
}

func newProgress() *progress { return &progress{began: time.Now(), least: math.MaxInt} }

func (p *progress) left(n int) {
	if n < p.least {
		p.least, p.lasted = n, min(time.Since(p.began), progressMax)
	}
}

// quiet waits until everything that was begun is finished, without a client, and
// everything that happened has been told to everyone. Customers whose bank asked
// them something come back and answer.
func (w *world) quiet(ctx context.Context) (keys, events time.Duration, unfinished []string, err error) {
	began, progress := time.Now(), newProgress()
	keys, unfinished, err = w.until(ctx, lease+15*time.Second, func() (what string, err error) {
		if err := errors.Join(w.comeBack(ctx), w.settleLost(ctx)); err != nil {
			return "", err
		}
		n, err := w.count(ctx,
			`SELECT (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL) + (SELECT count(*)
				FROM inbox_events WHERE status = 'pending')`)
		if n > 0 {
			what = fmt.Sprintf("%d keys and webhooks are unfinished", n)
		}
		progress.left(n)
		return what, err
	}, func() (time.Duration, error) { return w.patience(ctx, progress.lasted) })
	if err != nil {
		return keys, 0, unfinished, err
	}
	// A consumer applies one event after the other, and each commit waits for the standby if there is one: what is left
	// may be many, but it must become less.
	progress = newProgress()
	_, late, err := w.until(ctx, time.Minute, func() (what string, err error) {
		n, err := w.count(ctx,
			`SELECT (SELECT count(*) FROM outbox_events WHERE published_at IS NULL) + (SELECT count(*) FROM inbox_events
				WHERE status = 'pending')`)
		if err != nil {
			return "", err
		}
		behind, err := w.events.behind(ctx)
		if n > 0 || behind > 0 {
			what = fmt.Sprintf("%d events are not published or not applied, and %d not consumed", n, behind)
		}
		progress.left(n + int(behind))
		return what, err
	}, func() (time.Duration, error) { return progress.lasted, nil })
	return keys, time.Since(began), append(unfinished, late...), err
}

// patience is how much longer unfinished keys may take: as long as they have become fewer, and a minute if one waits for a
// customer, or for the end of a dispute that Stripe refuses a refund for. The completer looks at those less often: within a
// minute, is the promise.
func (w *world) patience(ctx context.Context, fewer time.Duration) (time.Duration, error) {
	waiting, err := w.count(ctx, `SELECT (SELECT count(*) FROM payments WHERE status = 'requires_action') + (SELECT count(*)
		FROM idempotency_keys WHERE finished_at IS NULL AND starts_with(last_error, $1))`, checkout.CustomerIsOwed)
	if waiting > 0 {
		return time.Minute, err
	}
	return min(fewer, time.Minute), err
}

// until asks what is left until nothing is, within a time; more, if not nil, is
// how much longer there is reason to wait.
func (w *world) until(ctx context.Context, within time.Duration, left func() (string, error),
	more func() (time.Duration, error)) (took time.Duration, late []string, err error) {
	began := time.Now()
	for {
		what, err := left()
		if err == nil && what == "" {
			return time.Since(began), nil, nil
		}
		if took = time.Since(began); took > within {
			if err != nil {
				return took, nil, err
			}
			extra := time.Duration(0)
			if more != nil {
				if extra, err = more(); err != nil {
					return took, nil, err
				}
			}
			if took > within+extra {
				return took, []string{fmt.Sprintf("%s after %s", what, took.Round(time.Second))}, nil
			}
		}
		if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return took, nil, ctx.Err()
		}
	}
}

// settleLost is an operator who ends what is owed of payments whose disputes are lost: Stripe refuses to refund them,
// because the bank has given the customer the money.
func (w *world) settleLost(ctx context.Context) error {
	rows, err := w.pairs(ctx, `SELECT o.payment_id, o.tenant_id FROM refunds_owed o
		JOIN disputes d ON d.tenant_id = o.tenant_id AND d.payment_id = o.payment_id
		WHERE o.ended_at IS NULL AND d.status = 'lost'`)
	if err != nil {
		return err
	}
	for payment, tenant := range rows { // One with a refund under way is settled when that has failed.
		_, err := w.pool.RefundOwedSettle(postgres.ForAllTenants(ctx, "settle what a lost dispute has given back"),
			db.RefundOwedSettleParams{TenantID: tenant, PaymentID: payment})
		if err != nil {
			return fmt.Errorf("settle what is owed of %s: %w", payment, err)
		}
	}
	return nil
}

// comeBack is the customers who answer their banks at last.
func (w *world) comeBack(ctx context.Context) error {
	intents, err := w.strings(ctx,
		`SELECT intent_id FROM payments WHERE status = 'requires_action' AND intent_id IS NOT NULL`)
	for _, intent := range intents {
		_ = w.sim.CompleteAuthentication(intent, true) // or has he, and the news of it is on its way
	}
	return err
}

// queries has the service's own audit ask every invariant that is a query, and
// compare with Stripe's objects as Stripe shows them.
func (j *checks) queries(ctx context.Context) error {
	var report struct {
		Checks []struct {
			ID, Name   string
			Violations int
			Rows       []struct{ Subject, Detail string }
		}
		Drift []struct {
			Currency string
			Minor    int64
		} `json:"money_drift"`
	}
	if err := j.world.command(ctx, &report, "audit", "-json", "-since", "24h"); err != nil {
		return err
	}
	if len(report.Checks) == 0 {
		return errors.New("the audit asked nothing")
	}
	for _, c := range report.Checks {
		var list []string
		for _, row := range c.Rows {
			list = append(list, strings.TrimSpace(row.Subject+" "+row.Detail))
		}
		j.add(c.ID, c.Name, byQuery, -1, list)
	}
	for _, d := range report.Drift {
		var list []string
		if d.Minor != 0 {
			list = []string{fmt.Sprintf("Stripe and our rows are %d apart", d.Minor)}
		}
		j.add("I8", "no money drifts in "+d.Currency, byQuery, 1, list)
	}
	return nil
}

// holders asks the witnesses in the database who wrote, and whose the claim was.
func (j *checks) holders(ctx context.Context) error {
	looked, list, err := j.world.staleWrites(ctx)
	j.add("I9", "only the holder of a claim moves it", byHolders, looked, list)
	return err
}

// clocks checks that leases begin and end by the database's clock: none is taken before its end, and none ends at a time
// that a clock which is an hour off would have set. That processes with such clocks took part at all is a minimum of the
// run. A lease begins when its statement does, so one that waited for a lock has less left when it is witnessed.
func (j *checks) clocks(ctx context.Context) error {
	looked, err := j.world.count(ctx, `SELECT count(*) FROM witness_claims WHERE token > 1`)
	if err != nil {
		return err
	}
	list, err := j.world.strings(ctx,
		`SELECT a.tenant_id || ' ' || a.key || ': ' || b.holder || ' took it ' || (a.ends - b.at) || ' before the lease of '
			|| a.holder || ' ended'
		FROM witness_claims a JOIN witness_claims b ON (a.tenant_id, a.key, a.token + 1) = (b.tenant_id, b.key, b.token)
		WHERE b.at < a.ends AND NOT EXISTS (SELECT FROM witness_writes w
		WHERE (w.tenant_id, w.key, w.token) = (a.tenant_id, a.key, a.token) AND w.gave_back)
		UNION ALL
		SELECT tenant_id || ' ' || key || ': the lease of ' || holder || ' ends in ' || (ends - at)
		FROM witness_claims WHERE ends > '-infinity' AND ends - at NOT BETWEEN '-2 minutes' AND '2 minutes'`)
	j.add("I18", "no lease is taken before its time, whatever the time is", byHolders, looked, list)
	return err
}

// histories asks porcupine.
func (j *checks) histories(ctx context.Context) error {
	keys := j.traffic.log.CheckKeys(ctx, time.Minute)
	j.add("I20", fmt.Sprintf("each of %d keys has a possible history", keys.Of), byHistory, keys.Checked,
		keys.Violations)
	payments := j.traffic.log.CheckPayments(ctx, 30*time.Second)
	j.add("I11", fmt.Sprintf("each of %d payments was only seen to go forward", payments.Of), byHistory,
		payments.Checked, payments.Violations)
	others := 0
	for _, op := range j.traffic.log.Operations() {
		if op.Outcome == history.Mismatch {
			others++
		}
	}
	j.add("I4", "another request under a used key gets 422 and nothing else", byHistory, others,
		onlyOf(keys.Violations, "mismatch"))
	return nil
}

func onlyOf(list []string, word string) (some []string) {
	for _, s := range list {
		if strings.Contains(s, word) {
			some = append(some, s)
		}
	}
	return some
}

// processes checks that no process exited unless it was killed or stopped.
func (j *checks) processes() {
	var odd []string
	lives := 0
	for _, n := range j.world.nodes {
		l, o := n.history()
		lives += len(l)
		odd = append(odd, o...)
	}
	odd = append(odd, j.world.complaints()...)
	j.add("I19", "no process panics or ends by itself", byProcesses, lives, odd)
}
