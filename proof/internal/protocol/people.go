package protocol

// This file is who moves money or time without the service: the customer's browser, a person in Stripe's dashboard,
// another program with the account's key, a bank, and the clock.

func (x *expander) people() {
	for j := range x.s.at.intent {
		it, id := x.s.at.intent[j], uint8(j+1)
		switch {
		case it.status == noIntent:
			continue
		case it.status == needsAction && it.secret:
			x.moved(id, it.success(), byBrowser, StepAuthenticates, theBrowser, false)
			x.moved(id, needsMethod, 0, StepFailsAuthentication, theBrowser, false)
		case it.status == needsMethod && it.secret:
			x.moved(id, it.success(), byBrowser, StepBrowserPays, theBrowser, false)
		case it.status == inProcess:
			x.moved(id, it.success(), it.payer, StepBankPays, theBank, false)
			x.moved(id, needsMethod, 0, StepBankRefuses, theBank, false)
		}
		if it.confirmable() && !it.secret && x.m.scope.Others && (x.recorded(id) || x.s.order.status == orderCanceled) {
			x.moved(id, it.success(), byOthers, StepOtherPays, theOther, true)
		}
		if it.status == held {
			x.moved(id, closed, 0, StepExpires, atStripe, true)
		}
		if it.status == held && x.m.scope.Dashboard {
			x.dashboardCaptures(id)
		}
		if (it.confirmable() || it.status == held) && x.m.scope.Dashboard {
			x.moved(id, closed, 0, StepDashboardCancels, thePerson, true)
		}
		if it.status == paid && x.m.scope.Dashboard {
			x.dashboardRefunds(id)
		}
	}
	x.bankReturns()
}

// recorded reports whether a payment's row has the intent. One that the service never heard of, because the response
// to its creation was lost, is not paid by another program unless the order is canceled: that would be a second
// charge, which no service could prevent.
func (x *expander) recorded(id uint8) bool {
	for _, p := range x.s.pay {
		if p.status != noPayment && p.intent == id {
			return true
		}
	}
	return false
}

// moved emits a change of an intent. One that is counted uses up the budget of acts.
func (x *expander) moved(id uint8, to intentStatus, payer uint8, step Step, who actor, counted bool) {
	n := *x.s
	if counted {
		if n.acts == 0 {
			return
		}
		n.acts--
	}
	it := &n.at.intent[id-1]
	it.failed = it.failed || to == needsMethod
	x.move(&n, id, to, payer)
	x.emit(&n, step, who, intentNames[id-1])
}

// dashboardRefunds refunds all that is left of an intent, or one unit of two.
func (x *expander) dashboardRefunds(id uint8) {
	left := x.leftAtStripe(x.s, id)
	for units := uint8(1); units <= left && x.s.acts > 0; units++ {
		n := *x.s
		n.acts--
		if x.addRefund(&n, stripeRefund{status: refundSucceeded, units: units, intent: id}) != 0 {
			x.emit(&n, StepDashboardRefunds, thePerson, intentNames[id-1])
		}
	}
}

// dashboardCaptures captures what is reserved, or one unit of it.
func (x *expander) dashboardCaptures(id uint8) {
	for units := uint8(1); units <= fullPrice && x.s.acts > 0; units++ {
		n := *x.s
		n.acts--
		n.at.intent[id-1].capture(units, 0)
		x.emit(&n, StepDashboardCaptures, thePerson, intentNames[id-1])
	}
}

// bankReturns has refunds end at the bank: one that is pending, or one that has succeeded and comes back.
func (x *expander) bankReturns() {
	for j, r := range x.s.at.refund {
		if r.status == refundPending {
			n := *x.s
			n.at.refund[j].status = refundSucceeded
			x.emit(&n, StepRefundArrives, theBank, "")
		}
		if (r.status == refundPending || r.status == refundSucceeded) && x.s.acts > 0 {
			n := *x.s
			n.acts--
			n.at.refund[j].status = refundFailed
			x.emit(&n, StepRefundReturns, theBank, "")
		}
	}
}

// time passes while no process works: the service is down, or idle.
func (x *expander) time() {
	if x.s.hours >= x.m.scope.Ticks || !x.quietProcesses() {
		return
	}
	n := *x.s
	n.hours++
	n.wire[workers] = request{}
	x.emit(&n, StepTime, theClock, "")
}

func (x *expander) quietProcesses() bool {
	for i := range x.s.work {
		if x.s.work[i].at != idle || x.s.wire[i].state != nothing {
			return false
		}
	}
	return true
}

// faults are the process, the connection and the disk.
func (x *expander) faults() {
	x.backups()
	if x.s.faults == 0 {
		return
	}
	for i := range workers {
		w := x.s.work[i]
		if w.at == idle {
			continue
		}
		x.crash(i)
		if row := x.s.key[w.key]; row.holder == uint8(i+1) && !row.over {
			n := *x.s
			n.faults--
			n.key[w.key].over = true
			n.work[i].set(late, true)
			x.emit(&n, StepPaused, actor(i), keyNames[w.key])
		}
		if w.has(forClient) && w.has(heard) {
			n := *x.s
			n.faults--
			n.client[w.key].waiting = false
			n.work[i].set(heard, false)
			x.emit(&n, StepDisconnect, theClient, keyNames[w.key])
		}
	}
}

// crash ends a process. What it has sent may still arrive.
func (x *expander) crash(i int) {
	n := *x.s
	n.faults--
	w, wire := n.work[i], n.wire[i]
	n.work[i], n.wire[i] = worker{}, request{}
	if n.key[w.key].holder == uint8(i+1) {
		n.key[w.key].holder = 0
	}
	if w.has(forClient) && w.has(heard) {
		n.client[w.key].waiting = false
	}
	x.emit(&n, StepCrash, actor(i), "")
	if wire.state == underWay && n.wire[workers].state == nothing {
		n.wire[workers] = wire
		x.emit(&n, StepCrashSent, actor(i), callNames[wire.call])
	}
}

// backups are a copy of the database, and the return to it.
func (x *expander) backups() {
	if x.s.backups > 0 {
		n := *x.s
		n.backups--
		n.backup = x.m.copies.keep(n.rows)
		x.emit(&n, StepBackup, theOperator, "")
	}
	if x.s.backup == 0 || !x.quietProcesses() {
		return
	}
	n := *x.s
	n.rows = x.m.copies.get(n.backup)
	n.backup, n.flags = 0, n.flags|restored
	for k := range n.key {
		n.key[k].holder, n.key[k].over = 0, false
	}
	if n.rows != x.s.rows {
		x.emit(&n, StepRestore, theOperator, "")
	}
}
