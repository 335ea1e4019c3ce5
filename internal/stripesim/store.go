package stripesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
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

// tx is one transaction: what a request, or Stripe by itself, changes at once.
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
// has to be on its way to the disk before anybody may be told.
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

// entry is the transaction as one line of the journal. The objects and the
// stored answer are JSON already: putting them in by hand keeps encoding/json
// from reading them once more, which would be most of the cost.
func (t *tx) entry() []byte {
	e := entry{At: t.now, IDs: t.s.st.ids, Effects: t.effects}
	for _, o := range t.deleted {
		e.Deleted = append(e.Deleted, o.id())
	}
	line := open(appendJSON(make([]byte, 0, 16<<10), e))
	for i, o := range t.dirty {
		line = append(line, [2]string{`,"put":[`, `,`}[min(i, 1)]...)
		line = open(appendJSON(line, stored{Kind: o.kind(), Row: o.meta()}))
		line = append(appendJSON(append(line, `,"object":`...), o), '}')
	}
	if len(t.dirty) > 0 {
		line = append(line, ']')
	}
	if t.key != nil {
		bare := *t.key
		bare.Body = nil
		line = open(appendJSON(append(line, `,"key":`...), bare))
		line = append(append(append(line, `,"body":`...), t.key.Body...), '}')
	}
	return append(line, '}', '\n')
}

// open takes the closing brace off a JSON object.
func open(object []byte) []byte { return object[:len(object)-1] }

// entry is one line of the journal: a whole transaction, or nothing.
type entry struct {
	At      time.Time      `json:"at"`
	Seed    uint64         `json:"seed,omitempty"`
	Offset  *time.Duration `json:"offset,omitempty"`
	IDs     uint64         `json:"ids,omitempty"`
	Put     []stored       `json:"put,omitempty"`
	Deleted []string       `json:"deleted,omitempty"`
	Effects []Effect       `json:"effects,omitempty"`
	Key     *keyEntry      `json:"key,omitempty"`
	Pruned  *keyID         `json:"pruned,omitempty"`
	Arrived *arrival       `json:"arrived,omitempty"`
}

type stored struct {
	Kind   kind            `json:"kind"`
	Row    *row            `json:"row"`
	Object json.RawMessage `json:"object,omitempty"`
}

func (s stored) decode() (object, error) {
	var o object
	switch s.Kind {
	case kindIntent:
		o = &intent{}
	case kindCharge:
		o = &charge{}
	case kindMethod:
		o = &method{}
	case kindRefund:
		o = &refund{}
	case kindDispute:
		o = &dispute{}
	case kindTxn:
		o = &txn{}
	case kindEvent:
		o = &event{}
	case kindEndpoint:
		o = &endpoint{}
	default:
		return nil, fmt.Errorf("unknown kind %q", s.Kind)
	}
	if err := json.Unmarshal(s.Object, o); err != nil {
		return nil, fmt.Errorf("decode %s: %w", s.Kind, err)
	}
	*o.meta() = *s.Row
	return o, nil
}

// replay applies one line of the journal.
func (s *Sim) replay(e entry) error {
	st := s.st
	if e.Seed != 0 {
		s.seed = e.Seed
	}
	if e.Offset != nil {
		s.offset = *e.Offset
	}
	st.ids = max(st.ids, e.IDs)
	for _, p := range e.Put {
		o, err := p.decode()
		if err != nil {
			return err
		}
		st.put(o)
	}
	for _, id := range e.Deleted {
		if o, ok := st.endpoints.byID[id]; ok {
			st.endpoints.delete(o)
		}
	}
	for _, effect := range e.Effects {
		st.addEffect(effect)
	}
	if e.Key != nil {
		st.keys[e.Key.ID] = e.Key
	}
	if e.Pruned != nil {
		delete(st.keys, *e.Pruned)
	}
	if e.Arrived != nil {
		s.outbox.arrived(*e.Arrived)
	}
	st.epoch++
	return nil
}

// render writes an object as Stripe would, if Stripe were compact.
func render(v any) []byte { return appendJSON(nil, v) }

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// appendJSON renders without the \u003c that encoding/json likes and Stripe does
// not. Our types always can be written.
func appendJSON(dst []byte, v any) []byte {
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("bug: render %T: %v", v, err))
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
