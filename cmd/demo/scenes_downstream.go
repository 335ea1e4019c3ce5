package main

import (
	"fmt"
	"time"
)

func theBrokerIsKilled(p *show) {
	pid := p.broker.PID()
	p.must(p.broker.Kill())
	p.event("The broker (%d) is killed with SIGKILL.", pid)
	order := p.order(p.a, 2750, "usd")
	p.paid(p.b, p.key("pay"), order, visa)
	p.charged(order, 1)
	p.out.result(true, fmt.Sprintf("%d events wait in the database, where they were written with what they tell about.", p.unpublished(order)))
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

// unpublished counts the events of an order and its payments that the broker
// does not have.
func (p *show) unpublished(order string) int {
	rows, err := p.rows(p.ctx, `SELECT type FROM outbox_events WHERE tenant_id = $1 AND published_at IS NULL
		AND aggregate_id IN (SELECT $2 UNION SELECT id FROM payments WHERE tenant_id = $1 AND order_id = $2)`, p.tenant.ID, order)
	p.must(err)
	return len(rows)
}
