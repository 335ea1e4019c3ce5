package main

import (
	"fmt"
	"strings"
	"time"
)

func theBrokerIsKilled(p *show) {
	pid := p.broker.PID()
	p.must(p.broker.Kill())
	p.event("The broker (%d) is killed with SIGKILL.", pid)
	order := p.order(p.a, 2750, "usd")
	p.paid(p.b, p.key("pay"), order, visa)
	p.charged(order, 1)
	p.out.result(true, fmt.Sprintf("%d events wait in the database, written there together with the changes they announce.", p.unpublished(order)))
	p.must(p.broker.start(p.ctx))
	p.event("The broker starts again (%d).", p.broker.PID())
	began := time.Now()
	for p.unpublished(order) > 0 {
		if time.Since(began) > patience {
			p.fail("events still wait %s after the broker came back", patience)
		}
		time.Sleep(askAgain)
	}
	p.out.result(true, fmt.Sprintf("All are published, after %.1f s.", time.Since(began).Seconds()))
}

func aConsumerIsKilled(p *show) {
	victim, other := p.process(p.a), p.process(p.b)
	p.allBooked()       // A must not die of what was paid before,
	p.must(p.stopAll()) // and B has a ledger, too: for a moment A must be alone
	p.must(victim.start(p.ctx, "FAULT_AT=ledger/payment.succeeded=kill"))
	pid := victim.PID()
	order := p.order(p.a, 1800, "eur")
	p.pay(p.a, p.key("pay"), order, visa) // A may die before it can answer
	select {
	case <-victim.Exited():
	case <-time.After(patience):
		p.fail("the ledger booked nothing within %s", patience)
	}
	p.charged(order, 1)
	p.event("Process A (%d) has booked it, and is dead. The broker waits a second for its acknowledgement, then tells B.", pid)
	p.must(other.start(p.ctx))
	for began := time.Now(); p.droppedByTheLedger() == 0; time.Sleep(askAgain) {
		if time.Since(began) > patience {
			p.fail("the broker did not deliver again within %s", patience)
		}
	}
	entries, err := p.rows(p.ctx, `SELECT format('%s %s', account, amount_minor) FROM ledger_entries
		WHERE tenant_id = $1 AND resource_id IN (SELECT id FROM payments WHERE order_id = $2) ORDER BY line`, p.tenant.ID, order)
	p.must(err)
	if len(entries) != 2 {
		p.fail("the ledger has %v", entries)
	}
	p.out.result(true, fmt.Sprintf("B is told what A has booked, recognises it, and drops it. The ledger says: %s.", strings.Join(entries, ", ")))
	p.paid(p.b, p.key("pay"), order, visa)
	p.charged(order, 1)
	p.must(victim.start(p.ctx))
	p.event("Process A starts again (%d).", victim.PID())
}

// allBooked waits until the ledger has heard of all that was paid.
func (p *show) allBooked() {
	for began := time.Now(); ; time.Sleep(askAgain) {
		missing, err := p.rows(p.ctx, `SELECT id FROM payments p WHERE tenant_id = $1 AND status = 'succeeded'
			AND NOT EXISTS (SELECT FROM ledger_entries l WHERE l.tenant_id = p.tenant_id AND l.resource_id = p.id)`, p.tenant.ID)
		p.must(err)
		if len(missing) == 0 {
			return
		}
		if time.Since(began) > patience {
			p.fail("the ledger has not booked %s", strings.Join(missing, ", "))
		}
	}
}

// droppedByTheLedger counts what the ledger was told twice since process B started.
func (p *show) droppedByTheLedger() float64 {
	n, err := p.process(p.b).Sample(p.ctx, `payonce_inbox_events_total{consumer="ledger",result="duplicate"}`)
	p.must(err)
	return n
}

// unpublished counts the events of an order and its payments that the broker
// does not have.
func (p *show) unpublished(order string) int {
	rows, err := p.rows(p.ctx, `SELECT type FROM outbox_events WHERE tenant_id = $1 AND published_at IS NULL
		AND aggregate_id IN (SELECT $2 UNION SELECT id FROM payments WHERE tenant_id = $1 AND order_id = $2)`, p.tenant.ID, order)
	p.must(err)
	return len(rows)
}
