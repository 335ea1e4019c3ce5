package stripesim

import (
	"time"
)

// tx is one transaction: what a request, or Stripe on its own, changes at once.
// It runs with Sim.mu held. Nothing is undone: a handler refuses before it
// changes anything, or changes it for good.
type tx struct {
	s       *Sim
	now     time.Time
	account string
	origin  origin

	dirty   []object
	deleted []object
	effects []Effect
	events  []*event
	key     *keyEntry
}

func (s *Sim) begin(account string, by origin) *tx {
	return &tx{s: s, now: s.now(), account: account, origin: by}
}

// create puts a new object in its table.
func (t *tx) create(o object) {
	m := o.meta()
	t.s.st.seq++
	m.Account, m.Seq, m.Written, m.Origin, m.made = t.account, t.s.st.seq, t.now, t.origin, t
	t.s.st.put(o)
	t.dirty = append(t.dirty, o)
}

// historyDepth is how many old versions of an object are kept for answers that
// lag; an intent rarely has more.
const historyDepth = 6

// edit makes the next version of an object, to be changed by the caller.
func edit[T any, P interface {
	*T
	object
}](t *tx, current P) P {
	if current.meta().made == t {
		return current
	}
	next := P(new(T))
	*next = *current
	m := next.meta()
	m.Written, m.prev, m.made = t.now, current, t
	forgetBeyond(m, historyDepth)
	t.s.st.put(next)
	t.dirty = append(t.dirty, next)
	return next
}

func forgetBeyond(m *row, depth int) {
	for ; m.prev != nil; m = m.prev.meta() {
		if depth--; depth == 0 {
			m.prev = nil
			return
		}
	}
}

func (t *tx) delete(o *endpoint) {
	t.s.st.endpoints.delete(o)
	t.deleted = append(t.deleted, o)
}

// commit writes the transaction to the journal and returns the position that
// has to be on its way to the disk before any client may get a response.
func (t *tx) commit() int64 {
	st := t.s.st
	if len(t.dirty)+len(t.deleted)+len(t.effects) == 0 && t.key == nil {
		return st.epoch
	}
	st.epoch++
	for i := range t.effects {
		t.effects[i].Seq = int64(len(st.effects)) + 1
		st.addEffect(t.effects[i])
	}
	if t.s.journal != nil {
		t.s.journal.append(st.epoch, t.entry())
	}
	for _, o := range t.dirty {
		o.meta().made = nil
	}
	t.s.scheduleAll(t.dirty)
	t.s.post(t.events, st.epoch)
	return st.epoch
}
