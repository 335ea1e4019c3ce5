package stripesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

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
