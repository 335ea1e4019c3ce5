package stripesim

import (
	"fmt"
	"maps"
	"slices"
)

// store is everything the simulator knows. All of it is guarded by Sim.mu, and
// all of it can be rebuilt from the journal.
type store struct {
	intents   table[*intent]
	charges   table[*charge]
	methods   table[*method]
	refunds   table[*refund]
	disputes  table[*dispute]
	txns      table[*txn]
	events    table[*event]
	endpoints table[*endpoint]

	keys     map[keyID]*keyEntry
	effects  []Effect
	charged  map[string]int // successful charges by order id; "" counts all
	byIntent map[string]*attached
	byCharge map[string]*attached

	seq   int64 // objects created so far
	ids   uint64
	epoch int64 // transactions committed so far
}

// attached is what hangs on an intent or a charge, so that the lists a
// reconciler asks for need not look at every object there is.
type attached struct {
	charges, refunds, disputes []string
}

// table holds the current version of every object of one kind.
type table[T object] struct {
	byID  map[string]T
	order map[string][]string // by account, oldest first
}

func newStore() *store {
	return &store{
		intents: newTable[*intent](), charges: newTable[*charge](), methods: newTable[*method](),
		refunds: newTable[*refund](), disputes: newTable[*dispute](), txns: newTable[*txn](),
		events: newTable[*event](), endpoints: newTable[*endpoint](),
		keys: map[keyID]*keyEntry{}, charged: map[string]int{},
		byIntent: map[string]*attached{}, byCharge: map[string]*attached{},
	}
}

func newTable[T object]() table[T] {
	return table[T]{byID: map[string]T{}, order: map[string][]string{}}
}

// get finds an object of this account. Another account's object does not exist.
func (t table[T]) get(account, id string) (T, bool) {
	o, ok := t.byID[id]
	if !ok || o.meta().Account != account {
		var none T
		return none, false
	}
	return o, true
}

func (t table[T]) put(o T) {
	account := o.meta().Account
	if _, known := t.byID[o.id()]; !known {
		t.order[account] = append(t.order[account], o.id())
	}
	t.byID[o.id()] = o
}

func (t table[T]) delete(o T) {
	account := o.meta().Account
	delete(t.byID, o.id())
	t.order[account] = slices.DeleteFunc(t.order[account], func(id string) bool { return id == o.id() })
}

// put makes o the current version of its object and keeps the indexes true.
func (st *store) put(o object) {
	switch o := o.(type) {
	case *intent:
		st.intents.put(o)
	case *charge:
		if _, known := st.charges.byID[o.ID]; !known {
			index(st.byIntent, id(o.PaymentIntent), func(a *attached) { a.charges = append(a.charges, o.ID) })
		}
		st.charges.put(o)
	case *method:
		st.methods.put(o)
	case *refund:
		if _, known := st.refunds.byID[o.ID]; !known {
			index(st.byIntent, id(o.PaymentIntent), func(a *attached) { a.refunds = append(a.refunds, o.ID) })
			index(st.byCharge, id(o.Charge), func(a *attached) { a.refunds = append(a.refunds, o.ID) })
		}
		st.refunds.put(o)
	case *dispute:
		if _, known := st.disputes.byID[o.ID]; !known {
			index(st.byIntent, id(o.PaymentIntent), func(a *attached) { a.disputes = append(a.disputes, o.ID) })
			index(st.byCharge, id(o.Charge), func(a *attached) { a.disputes = append(a.disputes, o.ID) })
		}
		st.disputes.put(o)
	case *txn:
		st.txns.put(o)
	case *event:
		st.events.put(o)
	case *endpoint:
		st.endpoints.put(o)
	default:
		panic(fmt.Sprintf("bug: cannot store a %T", o))
	}
	st.seq = max(st.seq, o.meta().Seq)
}

func index(m map[string]*attached, id string, add func(*attached)) {
	if id == "" {
		return
	}
	a := m[id]
	if a == nil {
		a = &attached{}
		m[id] = a
	}
	add(a)
}

func (st *store) addEffect(e Effect) {
	st.effects = append(st.effects, e)
	if e.Kind == EffectCharge {
		st.charged[""]++
		if order := e.Metadata["order_id"]; order != "" {
			st.charged[order]++
		}
	}
}

// id reads a reference, expanded or not.
func id(r ref) string {
	switch r := r.(type) {
	case string:
		return r
	case object:
		return r.id()
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
