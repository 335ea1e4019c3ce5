package stripesim

import (
	"encoding/json"
	"slices"
	"strings"
)

// emit notes that something happened to an object. The event keeps the object
// as it is now, whatever becomes of it later in the same transaction, and never
// changes again.
func (t *tx) emit(name string, o object, previous map[string]any) {
	e := event{
		Object: kindEvent, APIVersion: apiVersion, Created: t.now.Unix(),
		Data: eventData{Object: snapshot(o), Previous: previous}, Type: name,
	}
	if t.origin.Request != "" {
		e.Request.ID = &t.origin.Request
	}
	if t.origin.Key != "" {
		e.Request.IdempotencyKey = &t.origin.Key
	}
	for range t.s.outbox.generation(name, orderIn(&e)) { // usually one
		out := e
		out.ID = t.s.newID("evt_3", 23)
		t.create(&out)
		t.events = append(t.events, &out)
	}
}

// snapshot copies an object, so that a later edit in the same transaction does
// not show.
func snapshot(o object) any {
	switch o := o.(type) {
	case *intent:
		out := *o
		return &out
	case *charge:
		out := *o
		return &out
	case *refund:
		out := *o
		return &out
	case *dispute:
		out := *o
		return &out
	}
	panic("bug: no event is about a " + string(o.kind()))
}

// UnmarshalJSON reads an event back from the journal, with its snapshot as the
// bytes they are.
func (d *eventData) UnmarshalJSON(data []byte) error {
	var in struct {
		Object   json.RawMessage `json:"object"`
		Previous map[string]any  `json:"previous_attributes"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	d.Object, d.Previous = in.Object, in.Previous
	return nil
}

func (t *tx) getEvent(c *call) (any, *apiError) {
	if e, ok := t.s.st.events.get(t.account, c.id); ok && !t.forgotten(e) {
		return t.s.outbox.counted(e), nil
	}
	return nil, missing(404, "event", c.id, "id")
}

// forgotten events are older than Stripe keeps them.
func (t *tx) forgotten(e *event) bool { return e.Created < t.now.Add(-eventLifetime).Unix() }

func (t *tx) listEvents(c *call) (any, *apiError) {
	p := &c.params
	if p.has("type") && p.has("types") {
		return nil, invalid("", "", "You may only specify one of these parameters: type, types.")
	}
	wanted := p.strings("types")
	if p.has("type") {
		wanted = []string{p.str("type")}
	}
	l, err := page(t, c, t.s.st.events, t.s.st.events.order[t.account], func(e *event) bool {
		switch {
		case t.forgotten(e) || !c.inRange(e.Created):
			return false
		case len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w string) bool { return matchesType(w, e.Type) }):
			return false
		case p.has("delivery_success"):
			return t.s.outbox.delivered(e) == p.boolean("delivery_success")
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	for i, e := range l.Data {
		l.Data[i] = t.s.outbox.counted(e.(*event))
	}
	return l, nil
}

// matchesType understands * and charge.* beside full names.
func matchesType(pattern, name string) bool {
	if family, isFamily := strings.CutSuffix(pattern, "*"); isFamily {
		return strings.HasPrefix(name, family)
	}
	return pattern == name
}
