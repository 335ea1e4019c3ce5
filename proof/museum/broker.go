package main

import (
	"slices"
	"sync"
)

// event is a change as a producer announces it.
type event struct {
	Object  string
	Version int64
}

// message is an event as a consumer gets it: money of a payment came or went.
type message struct {
	ID      string // of the event
	Type    string
	Payment string
	Version int64 // of the payment
	Amount  int
}

// broker keeps what it is given, in the order it came, and delivers until it is
// told that it may stop.
type broker struct {
	meeting // for deliveries that overlap

	mu      sync.Mutex
	log     []event
	fault   fault // what happens to every next call, until it is changed
	hold    event // an event whose publisher is held back before the broker has it
	holding bool
	late    chan struct{} // closed when it may go on
}

func newBroker() *broker { return &broker{late: make(chan struct{})} }

// Publish returns when the broker has the event. Its caller may not live to see it.
func (b *broker) Publish(e event) {
	b.mu.Lock()
	f, held := b.fault, b.hold == e && !b.holding
	if held {
		b.holding = true
	}
	b.mu.Unlock()
	if held {
		<-b.late
	}
	if f == killBefore {
		die()
	}
	b.mu.Lock()
	b.log = append(b.log, e)
	b.mu.Unlock()
	if f == killAfter {
		die()
	}
}

func (b *broker) breaks(f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

// holdBack blocks the next publisher of this event until release.
func (b *broker) holdBack(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold, b.holding, b.late = e, false, make(chan struct{})
}

// holds waits until a publisher is blocked.
func (b *broker) holds() {
	eventually("a publisher is held back", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.holding
	})
}

func (b *broker) release() { close(b.late) }

// deliver brings a message to the shop, again and again until it is acknowledged,
// each time to a new process. A process that is killed is started again.
func (s *side) deliver(m message) {
	s.keep(m)
	for try, acked := 1, false; !acked && try <= triesMax; try++ {
		err := process(func() { s.shop.Receive(s.ctx, m, func() { s.acknowledge(&acked) }) })
		if err != nil {
			s.broker.breaks(nothing) // one accident is enough
			s.restart()
		}
	}
}

// acknowledge is where a message's life at the broker ends, unless the process
// ends first.
func (s *side) acknowledge(acked *bool) {
	s.broker.mu.Lock()
	f := s.broker.fault
	s.broker.mu.Unlock()
	if f == killBefore {
		die()
	}
	*acked = true
	if f == killAfter {
		die()
	}
}

func (s *side) keep(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.messages, m) {
		s.messages = append(s.messages, m)
	}
}

// working is called by what a consumer does with a message, before it does it.
// It is where a scenario kills it, or makes two deliveries overlap.
func (s *side) working(id string) {
	s.broker.mu.Lock()
	f := s.broker.fault
	s.broker.mu.Unlock()
	switch f { //nolint:exhaustive // the others are not about the work
	case killAtWork:
		die()
	case waitForAnother:
		s.broker.meet(id)
	}
}

// killAtWork kills a consumer in the middle of its work.
const killAtWork fault = 100

func succeeded(payment string) message {
	return message{ID: payment + "-1", Type: "payment.succeeded", Payment: payment, Version: 1, Amount: 1000}
}

func refunded(payment string) message {
	return message{ID: payment + "-2", Type: "refund.succeeded", Payment: payment, Version: 2, Amount: 1000}
}
