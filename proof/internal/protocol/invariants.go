package protocol

import (
	"fmt"
	"strings"
)

// Invariant is one of docs/guarantees.md. 0: none.
type Invariant uint8

// The invariants that the model can break.
const (
	I1 Invariant = iota + 1
	I5
	I8
	I9
	I11
	I12
	I13
	I14
	I20
	I23
	I24
	I25
	I26
	I28
)

// invariants are their numbers, and what each says in the model.
var invariants = [...]struct{ name, says string }{
	I1:  {"I1", "an order is paid once, and a key has one effect at Stripe"},
	I5:  {"I5", "once faults stop, every key is finished or parked"},
	I8:  {"I8", "the refunds of a payment never exceed it"},
	I9:  {"I9", "a holder that lost its lease writes nothing"},
	I11: {"I11", "statuses change as the triggers allow, and no final status changes"},
	I12: {"I12", "a call that Stripe executes was recorded before"},
	I13: {"I13", "nothing is sent again once Stripe may have forgotten the key"},
	I14: {"I14", "no payment or refund is called failed whose own call moved the money"},
	I20: {"I20", "a final answer never changes, and none is sent before it is stored"},
	I23: {"I23", "after a 503 to the first request with a key, or to one that found it in use, nothing is under it"},
	I24: {"I24", "once faults stop, what Stripe has taken and given back is in our rows"},
	I25: {"I25", "a payment whose client secret was out has ended only if its intent cannot be confirmed any more"},
	I26: {"I26", "an authorization has one end: a capture answers 200 if it took its amount and otherwise took nothing, " +
		"and order, payment and what works on it agree"},
	I28: {"I28", "once faults stop, what must be refunded is refunded, or parked"},
}

func (i Invariant) String() string { return invariants[i].name }

// Says is the invariant as a sentence.
func (i Invariant) Says() string { return invariants[i].says }

// Numbered is the invariant with a number; 0 if there is none given.
func Numbered(name string) (Invariant, error) {
	for i := range invariants {
		if invariants[i].name == name {
			return Invariant(i), nil
		}
	}
	var names []string
	for _, i := range invariants[1:] {
		names = append(names, i.name)
	}
	return 0, fmt.Errorf("the model has no invariant %q, but %s", name, strings.Join(names, ", "))
}

// violated is the invariant that a state breaks, of those that are looked for; 0: none. Those of a step are in
// state.broken.
func (m *Model) violated(s *state) Invariant {
	for _, check := range []struct {
		i      Invariant
		broken func(*state) bool
	}{
		{I25, confirmableSecret}, {I14, unknownAsFailure}, {I8, refundedTooMuch}, {I1, paidTwice}, {I26, m.endsTwice},
	} {
		if m.looksFor(check.i) && check.broken(s) {
			return check.i
		}
	}
	if m.looksFor(s.broken) {
		return s.broken
	}
	return 0
}

func (m *Model) looksFor(i Invariant) bool { return m.Only == 0 || m.Only == i }

func paidTwice(s *state) bool {
	kept, ended := uint8(0), 0
	numbers := [intents + 1]int{}
	for j, i := range s.at.intent {
		if i.status == paid {
			kept += i.took()
		} else if i.status == held {
			kept += fullPrice
		}
		if i.status != noIntent && s.flags&restored == 0 {
			numbers[i.number]++
		}
		for _, r := range s.at.refund {
			if r.intent == uint8(j+1) && (r.status == refundSucceeded || r.status == refundPending) {
				kept -= r.units
			}
		}
	}
	for _, p := range s.pay {
		if p.status == succeeded {
			ended++
		}
	}
	made := [refunds + 1]int{}
	for _, r := range s.at.refund {
		made[r.row]++
	}
	made[0] = 0
	twice := func(counts []int) bool {
		for _, n := range counts {
			if n > 1 {
				return true
			}
		}
		return false
	}
	return kept > fullPrice || ended > 1 || twice(numbers[:]) || twice(made[:])
}

func unknownAsFailure(s *state) bool {
	for k := range clients {
		if p := s.pay[k]; p.status == failed || p.status == canceled {
			for _, i := range s.at.intent {
				if i.payer == uint8(k+1) && i.status == paid && s.flags&restored == 0 {
					return true
				}
			}
		}
	}
	for r, row := range s.refund {
		if row.status != refundFailed {
			continue
		}
		for _, made := range s.at.refund {
			if made.row == uint8(r+1) && made.status == refundSucceeded && s.flags&restored == 0 {
				return true
			}
		}
	}
	return false
}

func confirmableSecret(s *state) bool {
	for _, p := range s.pay {
		if p.flags&hadAction != 0 && (p.status == failed || p.status == canceled) && p.intent != 0 &&
			s.at.intent[p.intent-1].status != closed && s.at.intent[p.intent-1].status != paid {
			return true
		}
	}
	return false
}

func refundedTooMuch(s *state) bool {
	for _, p := range s.pay {
		if p.refunding > p.took() || p.refunded > p.refunding {
			return true
		}
	}
	return false
}
