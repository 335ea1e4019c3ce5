package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// shortRetention is how long responses are stored in the scene that waits until
// one expires. The API requires it to be longer than the lease.
const shortRetention = lease + 100*time.Millisecond

// earlierPayment is a payment of the first scene. keyExpired retries it, so that
// it does not have to wait until a new one expires.
type earlierPayment struct {
	request
	order string
}

func keyExpired(p *sceneRun) {
	old := p.earlierPayment
	if old == nil { // the first scene was not selected
		order := p.createOrder(p.a, 1250, "usd")
		p.payUntilFinal(p.a, p.key("pay"), order, visa)
		old = &earlierPayment{payment(p.key("pay"), order, visa), order}
	} else {
		p.orders = append(p.orders, &expected{id: old.order, currency: "usd"})
	}
	node := p.processAt(p.a)
	p.must(node.Stop())
	_, err := p.pool.Raw().Exec(p.ctx, "UPDATE retention_floor SET answers = '0'") // as the owner, who may
	p.must(err)
	p.must(node.start(p.ctx, "IDEMPOTENCY_RETENTION="+shortRetention.String()))
	p.responsesExpire = true
	p.event("By default, responses are stored for three days. Process A is restarted to store them for %s.",
		shortRetention)
	for began := time.Now(); ; time.Sleep(pollInterval) {
		a := p.shop.send(p.ctx, p.a, old.request)
		if a.replayed() && time.Since(began) < waitTimeout {
			continue
		}
		p.printResponse(p.a, old.request, "the 1st", a)
		p.expect(a, http.StatusGone, "idempotency-key-expired")
		var problem struct{ Resource struct{ Href string } }
		p.must(json.Unmarshal(a.body, &problem))
		p.waitForStatus(p.b, problem.Resource.Href, "succeeded")
		break
	}
	p.must(node.Stop())
	p.must(node.start(p.ctx)) // with the retention that it had
	p.expectCharges(old.order, 1)
}

func databaseRestored(p *sceneRun) {
	p.waitUntilSettled()
	one, other := p.createOrder(p.a, 4100, "usd"), p.createOrder(p.b, 5200, "usd")
	p.backUpDatabase()
	p.event("A backup of the database is made. Then the broker goes away.")
	// What it delivered now would be of payments that the restored database does not have, under ids that it gives again.
	p.must(p.broker.Kill())
	first := p.payUntilFinal(p.a, p.key("one"), one, visa)
	p.payUntilFinal(p.b, p.key("other"), other, visa)
	p.waitUntilOnlyEventsAreLeft()
	p.restoreDatabase()
	p.must(p.broker.start(p.ctx))
	p.event("The database is lost, and the backup is restored. It has neither payment; Stripe has both.")
	p.event("`api audit` finds:")
	p.printAudit()

	p.event("The first shop retries, with a key that the restored database does not have.")
	again := p.payUntilFinal(p.b, p.key("one"), one, visa)
	if was, is := first.object().Stripe.Charge, again.object().Stripe.Charge; was != is {
		p.fail("the charge was %s and is %s", was, is)
	}
	p.expectCharges(one, 1)

	p.event("The second shop does not retry. The reconciler finds its charge at Stripe, and adopts it.")
	p.allowReconciler(true)
	p.must(p.processAt(p.a).start(p.ctx))
	p.waitForStatus(p.a, "/v1/orders/"+other, "paid")
	p.expectCharges(other, 1)
	p.waitUntilSettled()
	p.printAudit()
}

// waitUntilSettled waits until all work is done and every consumer has every event.
// Otherwise the backup would lack what consumers already have.
func (p *sceneRun) waitUntilSettled() {
	if left := append(p.waitUntilQuiet(p.ctx), p.waitForEvents(p.ctx)...); len(left) > 0 {
		p.fail("unfinished: %s", strings.Join(left, "; "))
	}
	if c := p.auditUntilClean(p.ctx); len(c.violations) > 0 {
		p.fail("api audit: %s", strings.Join(c.violations, "; "))
	}
}

// waitUntilOnlyEventsAreLeft waits until all work is done but what needs the broker.
func (p *sceneRun) waitUntilOnlyEventsAreLeft() {
	for began := time.Now(); ; time.Sleep(pollInterval) {
		left, err := p.rows(p.ctx, unfinishedWorkSQL, p.tenant.ID, true)
		p.must(err)
		left = slices.DeleteFunc(left, func(what string) bool { return strings.HasSuffix(what, " is not published") })
		if len(left) == 0 {
			return
		}
		if time.Since(began) > waitTimeout {
			p.fail("unfinished: %s", strings.Join(left, "; "))
		}
	}
}

func (p *sceneRun) printAudit() {
	checks, violations, err := p.audit(p.ctx)
	p.must(err)
	for _, v := range violations {
		p.out.result(false, shortenIDs(v))
	}
	if len(violations) == 0 {
		p.out.result(true, fmt.Sprintf("The audit finds no violations in %d checks.", checks))
	}
}

// backUpDatabase copies the database. PostgreSQL does that only while no client is connected.
func (p *sceneRun) backUpDatabase() {
	p.must(p.stopAll())
	p.pool.Raw().Reset()
	p.must(p.database.copy(p.ctx))
	p.must(p.startAll(p.ctx))
}

// restoreDatabase puts the backup in the place of the database.
func (p *sceneRun) restoreDatabase() {
	p.must(p.stopAll())
	p.pool.Raw().Reset()
	p.must(p.database.restore(p.ctx))
	// The responses since the backup are lost, and may change: that is what a backup costs.
	p.shop.dropRecorded(p.key("one"), p.key("other"))
	p.allowReconciler(false) // It runs at start, and would repair what printAudit is to show.
	p.must(p.processAt(p.b).start(p.ctx))
}

func (p *sceneRun) allowReconciler(now bool) {
	_, err := p.pool.Raw().Exec(p.ctx, `UPDATE reconciliation_windows
		SET next_at = CASE WHEN $1 THEN '-infinity' ELSE clock_timestamp() + interval '1 hour' END`, now)
	p.must(err)
}
