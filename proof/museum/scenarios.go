package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is what customers do and what breaks. It is the same for every shop.
type scenario func(s *side)

// then runs one scenario after another.
func then(scenarios ...scenario) scenario {
	return func(s *side) {
		for _, run := range scenarios {
			run(s)
		}
	}
}

// ---- customers ---------------------------------------------------------------

// doubleClick: everyone's request arrives twice at once, and later again.
func doubleClick(s *side) {
	s.enter()
	s.everyone(func(r request) {
		s.provider.next(r.Order, waitForAnother, waitForAnother)
		together([]request{r, r}, func(r request) {
			s.send(r)
			s.provider.leave(r.Order) // if this one was answered without the provider
		})
	})
	s.everyone(s.insist)
}

// oneByOne: every customer pays, one after the other.
func oneByOne(s *side) {
	s.enter()
	s.everyone(s.insist)
	s.timePasses(2 * time.Minute)
	s.everyone(s.insist)
}

// sendAgain: everyone pays, and sends the same request five times more, because
// the answer got lost between us and them.
func sendAgain(s *side) {
	s.enter()
	s.everyone(func(r request) {
		for range 6 {
			s.insist(r)
		}
	})
}

// twoTenants: customers of two shops happen to use the same keys.
func twoTenants(s *side) {
	s.enter()
	s.everyone(s.insist)
	for _, r := range s.customers {
		s.insist(s.customer("bob", r.Key))
	}
}

// keyUsedAgain: a client with a bug sends another order under the key of the last.
func keyUsedAgain(s *side) {
	s.enter()
	s.everyone(s.insist)
	for _, r := range s.customers {
		other := s.customer(r.Tenant, r.Key)
		s.provider.next(other.Order)
		if a := s.send(other); a.Status >= 400 { // told so: the client is mended, and uses a key of its own
			other.Key += "-2"
			s.asked[len(s.asked)-1] = other
			s.insist(other)
		}
	}
}

// outage: the provider is down for a moment, then it is back, and everyone asks again.
func outage(s *side) {
	s.enter()
	s.provider.outage(true)
	s.everyone(func(r request) { s.send(r) })
	s.provider.outage(false)
	s.timePasses(2 * time.Minute)
	s.everyone(s.insist)
}

// crashAfterCharge: the provider charges, and the calling process is killed.
// Two minutes later everyone asks again.
func crashAfterCharge(s *side) { dieAtTheProvider(s, killAfter) }

// crashBeforeCharge: the process is killed before it reaches the provider.
func crashBeforeCharge(s *side) { dieAtTheProvider(s, killBefore) }

func dieAtTheProvider(s *side, f fault) {
	s.enter()
	s.everyone(func(r request) {
		s.provider.next(r.Order, f)
		s.send(r)
	})
	s.timePasses(2 * time.Minute)
	s.everyone(s.insist)
}

// answerLost: the provider charges, and its answer gets lost. Everyone asks again.
func answerLost(s *side) { answerLostFor(s, 2*time.Minute) }

// answerLostForADay: the same, and everyone asks again the day after.
func answerLostForADay(s *side) { answerLostFor(s, 25*time.Hour) }

func answerLostFor(s *side, d time.Duration) {
	s.enter()
	s.everyone(func(r request) {
		s.provider.next(r.Order, loseTheAnswer)
		s.send(r)
	})
	s.timePasses(d)
	s.everyone(s.insist)
}

// pausedHolder: a process is paused while it waits for the provider, for longer than its
// lease. Another does its work. Then the first continues.
func pausedHolder(s *side) {
	s.enter()
	s.everyone(func(r request) { s.provider.next(r.Order, answerLate) })
	paused := s.inTheBackground(func() { s.everyone(func(r request) { s.send(r) }) })
	s.provider.holds(s.crowd)
	s.timePasses(2 * time.Minute)
	s.everyone(s.insist)
	s.provider.release()
	paused()
	s.everyone(s.insist)
}

// fastClock: while one process waits for the provider, a duplicate reaches
// another, whose clock is an hour ahead.
func fastClock(s *side) {
	s.enter()
	s.everyone(func(r request) { s.provider.next(r.Order, answerLate) })
	first := s.inTheBackground(func() { s.everyone(func(r request) { s.send(r) }) })
	s.provider.holds(s.crowd)
	s.everyone(func(r request) {
		r.Clock = r.Clock.Add(time.Hour)
		s.send(r)
	})
	s.provider.release()
	first()
	s.everyone(s.insist)
}

// fullHouse: the provider is slow for every request at once. Meanwhile others only
// want to read.
func fullHouse(s *side) {
	s.enter()
	s.everyone(func(r request) { s.provider.next(r.Order, answerLate) })
	paying := s.inTheBackground(func() { s.everyone(func(r request) { s.send(r) }) })
	s.provider.holds(min(s.crowd, int(s.DB.Config().MaxConns)))
	reading := s.inTheBackground(func() { together(make([]struct{}, s.crowd), func(struct{}) { s.read() }) })
	s.queued = count{s.crowd - s.provider.holdsWithin(s.crowd, moment), s.crowd}
	reading()
	s.provider.release()
	paying()
	s.everyone(s.insist)
}

// moment is how long a reader waits, and a payment has time to reach the provider.
const moment = 1500 * time.Millisecond

// read is a customer who only wants to see the price list.
func (s *side) read() {
	ctx, cancel := context.WithTimeout(s.ctx, moment)
	defer cancel()
	err := s.DB.Ping(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads.of++
	if err != nil {
		s.reads.n++
	}
}

// pastMidnight: everyone pays just before midnight, and asks again just after.
func pastMidnight(s *side) {
	s.enter()
	s.everyone(s.insist)
	s.timePasses(24 * time.Hour)
	s.everyone(s.insist)
}

// twoDaysLater: a telephone that was off sends its request again.
func twoDaysLater(s *side) {
	s.enter()
	s.everyone(s.insist)
	s.timePasses(50 * time.Hour)
	s.everyone(s.insist)
}

// ---- clients -----------------------------------------------------------------

// clientKilled: the provider charges, and the client's process is killed while it waits. It is started again, and two
// minutes later it does what it has not done.
func clientKilled(s *side) {
	s.enter()
	s.everyone(func(r request) {
		s.provider.next(r.Order, killAfter)
		s.buy(r)
	})
	s.shop.Restart()
	s.timePasses(2 * time.Minute)
	s.everyone(func(r request) { insistBy(s.buy, r) })
}

// clientLosesAnswer: the provider charges, and its answer gets lost. The client does what it does about that.
func clientLosesAnswer(s *side) {
	s.enter()
	s.everyone(func(r request) {
		s.provider.next(r.Order, loseTheAnswer)
		insistBy(s.buy, r)
	})
}

// jobDeliveredAgain: the provider is slow. The queue, which has waited for long enough, delivers each job a second time
// while the first run waits.
func jobDeliveredAgain(s *side) {
	s.enter()
	s.everyone(func(r request) { s.provider.next(r.Order, answerLate) })
	first := s.inTheBackground(func() { s.everyone(func(r request) { s.buy(r) }) })
	s.provider.holds(s.crowd)
	second := s.inTheBackground(func() { s.everyone(func(r request) { s.buy(r) }) })
	s.provider.release()
	first()
	second()
}

// inTheBackground begins something, and returns how to wait for its end.
func (s *side) inTheBackground(f func()) (wait func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	return func() {
		if bug := <-done; bug != nil {
			panic(bug)
		}
	}
}

// ---- producers ---------------------------------------------------------------

// change has an object changed, in a process of its own.
func (s *side) change(id string, meanwhile func()) {
	s.mu.Lock()
	s.changed = append(s.changed, id)
	s.mu.Unlock()
	_ = process(func() { s.shop.Change(s.ctx, id, meanwhile) }) // its outcome is read from the database
}

// relay is one round of the shop's relay, if it has one, in a process of its own.
func (s *side) relay() {
	if s.shop.Relay != nil {
		_ = process(func() { s.shop.Relay(s.ctx) })
	}
}

// relayAll is the rest of the day: every event that can still be published is.
func (s *side) relayAll() {
	for range 3 {
		s.timePasses(2 * time.Minute)
		s.relay()
	}
}

func quietly() {}

// brokerAwayAtTheEnd: the process that publishes is killed before it, once.
func brokerAwayAtTheEnd(s *side) {
	s.broker.breaks(killBefore)
	for _, id := range s.names("order") {
		s.change(id, quietly)
	}
	s.relay()
	s.broker.breaks(nothing)
	s.relayAll()
}

// crashesBeforeCommit: the process is killed just before its COMMIT.
func crashesBeforeCommit(s *side) {
	for _, id := range s.names("order") {
		s.change(id, die)
		s.change(id+"-well", quietly)
	}
	s.relayAll()
}

// twoRelays: one relay is paused after it has read the first event of each object;
// meanwhile another runs.
func twoRelays(s *side) {
	for _, id := range s.names("order") {
		s.change(id, quietly)
		s.broker.holdBack(event{id, 1})
		first := s.inTheBackground(s.relay)
		s.broker.holds()
		s.change(id, quietly)
		s.relay()
		s.broker.release()
		first()
		s.relayAll()
	}
}

// slowCommit: a change is written first and committed last; meanwhile another is
// committed, and the relay runs.
func slowCommit(s *side) {
	for _, id := range s.names("order") {
		s.change(id, func() {
			s.change(id+"-meanwhile", quietly)
			s.relay()
		})
		s.relayAll()
	}
}

// twoWriters: two requests change the same object at once.
func twoWriters(s *side) {
	together(s.names("order"), func(id string) {
		s.change(id, quietly)
		together(make([]struct{}, 2), func(struct{}) { s.change(id, func() { s.broker.meet(id) }) })
	})
	s.relayAll()
}

// names are the names of as many things as there are customers.
func (s *side) names(kind string) (list []string) {
	for i := range s.crowd {
		list = append(list, fmt.Sprintf("%s-%d", kind, i+1))
	}
	return list
}

// ---- consumers ---------------------------------------------------------------

// crashesAfterAck: the process acknowledges the message, and is killed right afterwards.
func crashesAfterAck(s *side) { consumeAnd(s, killAfter) }

// crashesBeforeAck: the work is done, and the process is killed before it acknowledges.
func crashesBeforeAck(s *side) { consumeAnd(s, killBefore) }

// crashesAtWork: the process is killed when it is about to do the work.
func crashesAtWork(s *side) { consumeAnd(s, killAtWork) }

func consumeAnd(s *side, f fault) {
	for _, id := range s.names("payment") {
		s.broker.breaks(f)
		s.deliver(succeeded(id))
	}
}

// deliveredTwice: the broker loses patience and delivers to a second consumer
// while the first is at work.
func deliveredTwice(s *side) {
	s.broker.breaks(waitForAnother)
	together(s.names("payment"), func(id string) {
		together(make([]struct{}, 2), func(struct{}) { s.deliver(succeeded(id)) })
	})
}

// paidAndRefunded: two things happen to each payment.
func paidAndRefunded(s *side) {
	for _, id := range s.names("payment") {
		s.deliver(succeeded(id))
		s.deliver(refunded(id))
	}
}
