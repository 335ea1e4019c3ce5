package main

import (
	"fmt"
	"net/http"
	"strings"
)

// damage is one kind of wrong result.
type damage int

const (
	chargedTwice damage = iota
	neverCharged
	toldItFailed
	neverAnswered
	neverPaid
	answerChanged
	foreignAnswer
	emptyAnswer
	noConnection
	queueForConnection
	eventLost
	eventOfNothing
	outOfOrder
	versionTwice
	bookedTwice
	neverBooked
	damages // how many there are
)

func (d damage) String() string {
	return [damages]string{
		"charged twice", "got \"paid\", never charged", "charged, response says failed", "charged, and never answered",
		"could never pay", "got two different answers",
		"got the answer to another's request", "got an empty answer", "reads without a connection",
		"payments queued for a connection",
		"events lost", "events of what never happened", "delivered out of order", "versions used twice", "booked twice",
		"never booked",
	}[d]
}

// count is how many of how many.
type count struct{ n, of int }

// tally is the damage of one side.
type tally [damages]count

func (t tally) total() (n int) {
	for _, c := range t {
		n += c.n
	}
	return n
}

func (t tally) String() string {
	var parts []string
	for d, c := range t {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", c.n, c.of, damage(d)))
		}
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func (t *tally) add(d damage, hurt bool) {
	t[d].of++
	if hurt {
		t[d].n++
	}
}

// check counts the damage at the end of the scenario.
func (s *side) check() (t tally) {
	s.checkPayments(&t)
	s.checkEvents(&t)
	s.compareBooks(&t)
	t[noConnection], t[queueForConnection] = s.reads, s.queued
	return t
}

// checkPayments compares the responses with what the provider did.
func (s *side) checkPayments(t *tally) {
	charges := map[string]int{}
	for _, c := range s.provider.log {
		charges[c.Order]++
	}
	for _, r := range s.asked {
		var heard []answer // the final answers, without repetitions
		var last answer
		paid, foreign, empty := false, false, false
		for _, a := range s.told {
			if a.Tenant != r.Tenant || a.Key != r.Key || a.Order != r.Order {
				continue
			}
			last = a.answer
			if !a.final() {
				continue
			}
			if len(heard) == 0 || heard[len(heard)-1].Status != a.Status || string(heard[len(heard)-1].Body) != string(a.Body) {
				heard = append(heard, a.answer)
			}
			if a.Status < http.StatusMultipleChoices {
				empty = empty || a.order() == ""
				foreign = foreign || a.order() != "" && a.order() != r.Order
				paid = paid || a.order() == r.Order
			}
		}
		n := charges[r.Order]
		t.add(chargedTwice, n > 1)
		t.add(neverCharged, paid && n == 0)
		t.add(toldItFailed, n > 0 && last.final() && last.Status >= 400)
		t.add(neverAnswered, n > 0 && len(heard) == 0)
		t.add(neverPaid, n == 0 && !paid && !foreign && !empty)
		t.add(answerChanged, len(heard) > 1)
		t.add(foreignAnswer, foreign)
		t.add(emptyAnswer, empty)
	}
}

// checkEvents compares what a producer has committed with what the broker received.
func (s *side) checkEvents(t *tally) {
	if len(s.changed) == 0 {
		return
	}
	committed, newest := map[event]int{}, map[string]int64{}
	rows, err := s.admin.Query(s.ctx, s.shop.Changes)
	must(err)
	for rows.Next() {
		var e event
		must(rows.Scan(&e.Object, &e.Version))
		committed[e]++
	}
	must(rows.Err())
	for _, n := range committed {
		t.add(versionTwice, n > 1)
	}
	heard, late := map[event]bool{}, map[string]bool{}
	for _, e := range s.broker.log {
		if heard[e] {
			continue // again; consumers know what to do
		}
		heard[e] = true
		late[e.Object] = late[e.Object] || e.Version < newest[e.Object]
		newest[e.Object] = max(newest[e.Object], e.Version)
	}
	for e := range committed {
		t.add(eventLost, !heard[e])
	}
	for e := range heard {
		t.add(eventOfNothing, committed[e] == 0)
	}
	for _, disorder := range late {
		t.add(outOfOrder, disorder)
	}
}

// compareBooks compares what a consumer has booked with what it was sent.
func (s *side) compareBooks(t *tally) {
	if len(s.messages) == 0 {
		return
	}
	booked := map[string]int{}
	rows, err := s.admin.Query(s.ctx, s.shop.Booked)
	must(err)
	for rows.Next() {
		var id string
		var n int
		must(rows.Scan(&id, &n))
		booked[id] = n
	}
	must(rows.Err())
	for _, m := range s.messages {
		t.add(bookedTwice, booked[m.ID] > 1)
		t.add(neverBooked, booked[m.ID] == 0)
	}
}
