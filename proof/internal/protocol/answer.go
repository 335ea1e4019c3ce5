package protocol

// This file is what clients are told.

// answer sends a response, and holds what it says against what is true.
func (x *expander) answer(n *state, i int, a answer) {
	w := n.work[i]
	n.work[i], n.wire[i] = worker{}, request{}
	if !w.has(forClient) || !w.has(heard) {
		return
	}
	c := &n.client[w.key]
	c.waiting = false
	exists := n.key[w.key].point != noPoint || x.touched(n, w.key)
	switch {
	case a == answerUnavailable && (w.has(begun) || w.has(firstSent)) && exists && n.flags&restored == 0:
		n.broken = I23
	case c.final != noAnswer && a != c.final && a != answerUnavailable && n.flags&restored == 0:
		n.broken = I20
	case a.final() && c.final == noAnswer:
		c.final = a
	}
}

// touched reports whether something at Stripe is of the key.
func (x *expander) touched(n *state, k uint8) bool {
	for _, i := range n.at.intent {
		if i.payer == k+1 {
			return true
		}
	}
	for _, r := range n.at.refund {
		if r.row == k+1 {
			return true
		}
	}
	return false
}

// answer is what a client gets.
type answer uint8

const (
	noAnswer answer = iota
	answerPaid
	answerFailed
	answerDone
	answerRefused
	answerWait        // 202, or 409: in progress
	answerUnavailable // 503
)

var answerNames = [...]string{
	noAnswer: "none", answerPaid: "201 paid", answerFailed: "402 failed", answerDone: "201",
	answerRefused: "409 refused",
	answerWait:    "in progress", answerUnavailable: "503",
}

func (a answer) final() bool { return a != noAnswer && a < answerWait }
