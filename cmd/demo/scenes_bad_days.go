package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// shortRetention is what answers are kept for in the scene that waits for one to
// expire. The API insists that it exceeds the lease.
const shortRetention = lease + 100*time.Millisecond

func muchTooLate(p *show) {
	old := p.keepsake
	if old == nil { // the first scene was not played
		order := p.order(p.a, 1250, "usd")
		p.paid(p.a, p.key("pay"), order, visa)
		old = &keepsake{payment(p.key("pay"), order, visa), order}
	} else {
		p.orders = append(p.orders, &expected{id: old.order, currency: "usd"})
	}
	node := p.process(p.a)
	p.must(node.Stop())
	p.must(node.start(p.ctx, "IDEMPOTENCY_RETENTION="+shortRetention.String()))
	p.answersExpire = true
	p.event("Answers are kept for three days. Process A now keeps them for %s.", shortRetention)
	for began := time.Now(); ; time.Sleep(askAgain) {
		a := p.shop.send(p.ctx, p.a, old.request)
		if a.replayed() && time.Since(began) < patience {
			continue
		}
		p.received(p.a, old.request, "the 1st", a)
		p.expect(a, http.StatusGone, "idempotency-key-expired")
		var problem struct{ Resource struct{ Href string } }
		p.must(json.Unmarshal(a.body, &problem))
		p.until(p.b, problem.Resource.Href, "succeeded")
		break
	}
	p.charged(old.order, 1) // A keeps answers this briefly until it is restarted, which the next scene does.
}

func theDatabaseGoesBack(p *show) {
	p.settled()
	one, other := p.order(p.a, 4100, "usd"), p.order(p.b, 5200, "usd")
	p.backUp()
	p.event("A backup of the database is taken.")
	first := p.paid(p.a, p.key("one"), one, visa)
	p.paid(p.b, p.key("other"), other, visa)
	p.settled() // An event that is still on its way would come from a future that the database has lost.
	p.restore()
	p.event("The database is lost and the backup restored. It knows of neither payment; Stripe does. `api audit` says:")
	p.audited()

	p.event("One shop asks again, with the key that the database has forgotten.")
	again := p.paid(p.b, p.key("one"), one, visa)
	if was, is := first.object().Stripe.Charge, again.object().Stripe.Charge; was != is {
		p.fail("the charge was %s and is %s", was, is)
	}
	p.charged(one, 1)

	p.event("The other never does. The reconciler compares Stripe's objects with ours, and adopts the charge.")
	p.reconcilerMayLook(true)
	p.must(p.process(p.a).start(p.ctx))
	p.until(p.a, "/v1/orders/"+other, "paid")
	p.charged(other, 1)
	p.settled()
	p.audited()
}

// settled waits until nobody downstream is behind: what is not in the backup is
// not in anybody's books.
func (p *show) settled() {
	if left := append(p.awaitQuiet(p.ctx), p.awaitAudience(p.ctx)...); len(left) > 0 {
		p.fail("unfinished: %s", strings.Join(left, "; "))
	}
	if f := p.auditUntilClean(p.ctx); len(f.offenders) > 0 {
		p.fail("api audit: %s", strings.Join(f.offenders, "; "))
	}
}

// audited shows what the audit finds.
func (p *show) audited() {
	checks, offenders, err := p.audit(p.ctx)
	p.must(err)
	for _, o := range offenders {
		p.out.result(false, short(o))
	}
	if len(offenders) == 0 {
		p.out.result(true, fmt.Sprintf("The audit finds nothing wrong, in %d checks", checks))
	}
}

// backUp copies the database, while nobody is connected to it.
func (p *show) backUp() {
	p.must(p.stopAll())
	p.pool.Raw().Reset()
	p.must(p.database.copy(p.ctx))
	p.must(p.startAll(p.ctx))
}

// restore loses the database, and brings the copy.
func (p *show) restore() {
	p.must(p.stopAll())
	p.pool.Raw().Reset()
	p.must(p.database.restore(p.ctx))
	p.shop.disown(p.key("one"), p.key("other")) // what was promised since the backup
	p.reconcilerMayLook(false)                  // it would look as soon as it starts, and we want to see what it sees
	p.must(p.process(p.b).start(p.ctx))
}

func (p *show) reconcilerMayLook(now bool) {
	_, err := p.pool.Raw().Exec(p.ctx, `UPDATE reconciliation_windows SET next_at = CASE WHEN $1 THEN '-infinity' ELSE clock_timestamp() + interval '1 hour' END`, now)
	p.must(err)
}
