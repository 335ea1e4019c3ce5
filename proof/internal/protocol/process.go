package protocol

// successor is one step to another state.
type successor struct {
	state state
	step  Step
	who   actor
	note  string
}

// expander finds the steps from one state.
type expander struct {
	m   *Model
	s   *state
	out []successor

	changes changes // of statuses that were made
	orders  orders
}

// emit adds a step.
func (x *expander) emit(n *state, step Step, who actor, note string) {
	x.out = append(x.out, successor{*n, step, who, note})
}

// steps are all steps from a state.
func (x *expander) steps(s *state) []successor {
	x.s, x.out = s, x.out[:0]
	if s.broken != 0 {
		return nil
	}
	for i := range workers {
		x.worker(i)
	}
	for i := range s.wire {
		x.execute(i)
	}
	x.clients()
	x.completers()
	x.background()
	x.people()
	x.faults()
	x.time()
	return x.out
}

// worker is the next step of a process.
func (x *expander) worker(i int) {
	switch x.s.work[i].at {
	case idle:
	case atLookup:
		x.lookup(i)
	case atBegin:
		x.beginPayment(i)
	case atAttempt:
		x.attempt(i)
	case atAwait:
		x.await(i)
	case atRead:
		x.readIntent(i)
	case atList:
		x.listRefunds(i)
	case atRecover:
		x.recoverIntent(i)
	case atAccount:
		x.account(i)
	case atRecordIntent:
		x.recordIntent(i)
	case atNextIntent:
		x.nextIntent(i)
	case atAction:
		x.requireAction(i)
	case atFinish:
		x.finishPayment(i)
	case atSpent:
		x.intentSpent(i)
	case atReread:
		x.reread(i)
	case atFinishOrder:
		x.finishOrder(i)
	case atPaidFirst:
		x.orderPaidFirst(i)
	case atFinishCancel:
		x.finishCancel(i)
	case atFinishSweep:
		x.finishSweep(i)
	case atFinishRefund:
		x.finishRefund(i)
	case atHold:
		x.hold(i)
	case atFinishCapture:
		x.finishCapture(i)
	case atFinishPaidBy:
		x.finishPaidBy(i)
	}
}

// actor is who takes a step.
type actor uint8

const (
	processA actor = iota
	processB
	atStripe
	theClient
	theBrowser
	thePerson
	theBank
	theOther
	theInbox
	theReconciler
	theOperator
	theClock
)

var actorNames = [...]string{
	processA: "process A", processB: "process B", atStripe: "Stripe", theClient: "client", theBrowser: "browser",
	thePerson: "dashboard", theBank: "bank", theOther: "another program", theInbox: "webhook",
	theReconciler: "reconciler", theOperator: "operator", theClock: "clock",
}
