package protocol

import "sync"

// ends remembers from which states the fair end is known to be good. What is fair: processes finish what they hold,
// Stripe responds, the completer and the reconciler run, banks decide, time passes; and nothing else happens. In
// particular no webhook comes.
type ends struct {
	mu   sync.Mutex
	good map[uint64]bool
}

func newEnds() *ends { return &ends{good: map[uint64]bool{}} }

func (e *ends) size() int { return len(e.good) }

func (e *ends) known(hash uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.good[hash]
}

// fairRounds is how many rounds of the loops may pass until nothing changes any more; fairTicks how much time.
const (
	fairRounds = 200
	fairTicks  = 6
)

// check follows the fair end of a state in which no process works. From any other state, a history without faults
// leads to such a state, so all are covered.
func (e *ends) check(x *explorer, s *state, hash uint64) Invariant {
	if !s.quietProcesses() || s.wire[workers].state != nothing {
		return 0
	}
	for k := range s.client {
		if s.client[k].waiting {
			return 0
		}
	}
	if e.known(hash) {
		return 0
	}
	passed := []uint64{}
	end := fairEnd{m: x.m, known: func(n *state) bool {
		h := x.hash(n)
		passed = append(passed, h)
		return e.known(h)
	}}
	broken := end.follow(*s)
	if broken == 0 {
		e.mu.Lock()
		e.good[hash] = true
		for _, h := range passed {
			e.good[h] = true
		}
		e.mu.Unlock()
	}
	return broken
}

func (s *state) quietProcesses() bool {
	x := expander{s: s}
	return x.quietProcesses()
}

// fairEnd is a history without faults, to the end.
type fairEnd struct {
	m     *Model
	known func(*state) bool // it may stop there
	taken []successor
	trace bool
}

// follow takes fair steps until nothing changes any more, and returns what is broken then.
func (f *fairEnd) follow(s state) Invariant {
	s.faults, s.acts, s.backups, s.backup = 0, 0, 0, 0
	for k := range s.client {
		s.client[k] = client{sent: f.m.scope.Tries}
	}
	ticks := 0
	for range fairRounds {
		if f.known(&s) {
			return 0
		}
		before := s
		if broken := f.round(&s); broken != 0 {
			return broken
		}
		if s != before {
			continue
		}
		if ticks == fairTicks {
			if f.expire(&s) {
				continue
			}
			// The reconciler makes a parked key due each time it sees what the key has not done. A completer parks it again.
			if broken := f.complete(&s); broken != 0 {
				return broken
			}
			return f.m.unsettled(&s)
		}
		ticks++
		s.hours++
		f.take(&s, successor{state: s, step: StepTime, who: theClock})
	}
	return I5
}

func (f *fairEnd) take(s *state, next successor) {
	*s = next.state
	if f.trace {
		f.taken = append(f.taken, next)
	}
}

// complete lets a completer take each key that is due.
func (f *fairEnd) complete(s *state) Invariant {
	x := expander{m: f.m, s: s}
	for k := range s.key {
		x.out = x.out[:0]
		x.completers()
		for _, next := range x.out {
			if next.note == keyNames[k] {
				f.take(s, next)
				if broken := f.run(&x, s); broken != 0 {
					return broken
				}
				break
			}
		}
	}
	return 0
}

// round lets each loop of the service run once.
func (f *fairEnd) round(s *state) Invariant {
	if broken := f.complete(s); broken != 0 {
		return broken
	}
	x := expander{m: f.m, s: s}
	x.background()
	if len(x.out) > 0 {
		f.take(s, x.out[0])
	}
	f.bank(s)
	return f.m.violated(s)
}

// expire has Stripe release what is still reserved after days.
func (f *fairEnd) expire(s *state) (any bool) {
	x := expander{m: f.m, s: s}
	for j := range s.at.intent {
		if s.at.intent[j].status == held {
			n := *s
			x.move(&n, uint8(j+1), closed, 0)
			f.take(s, successor{state: n, step: StepExpires, who: atStripe, note: intentNames[j]})
			any = true
		}
	}
	return any
}

// bank decides what it has not decided yet.
func (f *fairEnd) bank(s *state) {
	x := expander{m: f.m, s: s}
	for j := range s.at.refund {
		if s.at.refund[j].status == refundPending {
			n := *s
			n.at.refund[j].status = refundSucceeded
			f.take(s, successor{state: n, step: StepRefundArrives, who: theBank})
		}
	}
	for j := range s.at.intent {
		if i := s.at.intent[j]; i.status == inProcess {
			n := *s
			x.move(&n, uint8(j+1), i.success(), i.payer)
			f.take(s, successor{state: n, step: StepBankPays, who: theBank, note: intentNames[j]})
		}
	}
}

// run lets a process go on until it has nothing more to do.
func (f *fairEnd) run(x *expander, s *state) Invariant {
	for range fairRounds {
		if s.quietProcesses() {
			return 0
		}
		x.s, x.out = s, x.out[:0]
		for i := range s.wire {
			x.execute(i)
		}
		for i := range workers {
			x.worker(i)
		}
		if len(x.out) == 0 {
			return I5
		}
		f.take(s, x.out[0])
		if broken := f.m.violated(s); broken != 0 {
			return broken
		}
	}
	return I5
}
