package main

import (
	"fmt"
	"strings"
	"time"
)

func brokerKilled(p *sceneRun) {
	pid := p.broker.PID()
	p.must(p.broker.Kill())
	p.event("The broker (%d) is killed with SIGKILL.", pid)
	order := p.createOrder(p.a, 2750, "usd")
	p.payUntilFinal(p.b, p.key("pay"), order, visa)
	p.expectCharges(order, 1)
	p.out.result(true, fmt.Sprintf(
		"%d events wait in the outbox table, committed together with the changes they describe.", p.unpublishedEvents(order)))
	p.must(p.broker.start(p.ctx))
	p.event("The broker is started again (%d).", p.broker.PID())
	began := time.Now()
	for p.unpublishedEvents(order) > 0 {
		if time.Since(began) > waitTimeout {
			p.fail("events are still unpublished %s after the broker was started", waitTimeout)
		}
		time.Sleep(pollInterval)
	}
	p.out.result(true, fmt.Sprintf("All events are published, after %.1f s.", time.Since(began).Seconds()))
}

func consumerKilled(p *sceneRun) {
	victim, other := p.processAt(p.a), p.processAt(p.b)
	// A is killed at the next event that its ledger books, and B has a ledger too. So
	// earlier events must be booked, and A must run alone until it is killed.
	p.waitForLedger()
	p.must(p.stopAll())
	p.must(victim.start(p.ctx, "FAULT_AT=ledger/payment.succeeded=kill"))
	pid := victim.PID()
	order := p.createOrder(p.a, 1800, "eur")
	p.pay(p.a, p.key("pay"), order, visa) // A may be killed before it responds
	select {
	case <-victim.Exited():
	case <-time.After(waitTimeout):
		p.fail("the ledger booked nothing within %s", waitTimeout)
	}
	p.expectCharges(order, 1)
	p.event("Process A (%d) has booked the payment and is killed. Without an acknowledgement, the broker delivers"+
		" the event again after a second, to B.", pid)
	p.must(other.start(p.ctx))
	for began := time.Now(); p.ledgerDuplicates() == 0; time.Sleep(pollInterval) {
		if time.Since(began) > waitTimeout {
			p.fail("the broker did not redeliver the event within %s", waitTimeout)
		}
	}
	entries, err := p.rows(p.ctx, `SELECT format('%s %s', account, amount_minor) FROM ledger_entries
		WHERE tenant_id = $1 AND resource_id IN (SELECT id FROM payments WHERE order_id = $2) ORDER BY line`,
		p.tenant.ID, order)
	p.must(err)
	if len(entries) != 2 {
		p.fail("the ledger has %v", entries)
	}
	p.out.result(true, fmt.Sprintf("B drops the event as a duplicate. The ledger has one booking: %s.",
		strings.Join(entries, ", ")))
	p.payUntilFinal(p.b, p.key("pay"), order, visa)
	p.expectCharges(order, 1)
	p.must(victim.start(p.ctx))
	p.event("Process A is started again (%d).", victim.PID())
}

// waitForLedger waits until every payment is in the ledger.
func (p *sceneRun) waitForLedger() {
	for began := time.Now(); ; time.Sleep(pollInterval) {
		missing, err := p.rows(p.ctx, `SELECT id FROM payments p WHERE tenant_id = $1 AND status = 'succeeded'
			AND NOT EXISTS (SELECT FROM ledger_entries l WHERE l.tenant_id = p.tenant_id AND l.resource_id = p.id)`,
			p.tenant.ID)
		p.must(err)
		if len(missing) == 0 {
			return
		}
		if time.Since(began) > waitTimeout {
			p.fail("the ledger has not booked %s", strings.Join(missing, ", "))
		}
	}
}

// ledgerDuplicates counts the events that B's ledger has dropped as duplicates
// since B was started.
func (p *sceneRun) ledgerDuplicates() float64 {
	n, err := p.processAt(p.b).Sample(p.ctx, `payonce_inbox_events_total{consumer="ledger",result="duplicate"}`)
	p.must(err)
	return n
}

// unpublishedEvents counts the events of an order and its payments that wait in the outbox.
func (p *sceneRun) unpublishedEvents(order string) int {
	rows, err := p.rows(p.ctx, `SELECT type FROM outbox_events WHERE tenant_id = $1 AND published_at IS NULL
		AND aggregate_id IN (SELECT $2 UNION SELECT id FROM payments WHERE tenant_id = $1 AND order_id = $2)`,
		p.tenant.ID, order)
	p.must(err)
	return len(rows)
}
