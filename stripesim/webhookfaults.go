package stripesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of webhook fault.
const (
	WebhookDuplicate      = "duplicate"       // the same event, Count times in all (2); with URL the copies go there
	WebhookDouble         = "double"          // a second event with another id about the same fact
	WebhookReorder        = "reorder"         // Count events (2) are kept back and sent in reverse
	WebhookBurst          = "burst"           // Count events (2) are kept back and sent at once
	WebhookDelay          = "delay"           // sent after Delay on the virtual clock
	WebhookDrop           = "drop"            // never sent; the event exists, undelivered
	WebhookNever          = "never"           // never generated; the event does not exist
	WebhookWrongSignature = "wrong_signature" // the first attempt is signed with another secret
	WebhookStale          = "stale_timestamp" // the first attempt is signed as if Delay (10 min) ago
	WebhookVersion        = "api_version"     // the first attempt is rendered as another version (Code)
)

var webhookKinds = []string{
	WebhookDuplicate, WebhookDouble, WebhookReorder, WebhookBurst, WebhookDelay, WebhookDrop, WebhookNever,
	WebhookWrongSignature, WebhookStale, WebhookVersion,
}

// WebhookFault is one thing to break about the events that match.
type WebhookFault struct {
	Kind    string        `json:"kind"`
	Type    string        `json:"type,omitempty"` // of event; charge.* and * work; "" is all
	OrderID string        `json:"order_id,omitempty"`
	Times   int           `json:"times,omitempty"` // 0 is once, -1 is for ever
	Skip    int           `json:"skip,omitempty"`
	Count   int           `json:"count,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
	Code    string        `json:"code,omitempty"`
	URL     string        `json:"url,omitempty"`
}

// UnmarshalJSON also takes delays like "90m".
func (f *WebhookFault) UnmarshalJSON(data []byte) error {
	type plain WebhookFault
	in := struct {
		*plain
		Delay any `json:"delay"`
	}{plain: (*plain)(f)}
	if err := strictly(data, &in); err != nil {
		return err
	}
	d, err := readDelay(in.Delay)
	f.Delay = d
	return err
}

type armedWebhook struct {
	WebhookFault
	id     string
	seen   int
	fired  int
	parked []*job
}

// InjectWebhook arms a webhook fault and returns its id. It panics on a kind
// that does not exist.
func (s *Sim) InjectWebhook(f WebhookFault) string {
	id, err := s.outbox.addFault(f)
	if err != nil {
		panic("stripesim: " + err.Error())
	}
	return id
}

func (d *deliveries) addFault(f WebhookFault) (string, error) {
	if !slices.Contains(webhookKinds, f.Kind) {
		return "", fmt.Errorf("unknown webhook fault kind %q; there are %s", f.Kind, strings.Join(webhookKinds, ", "))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	a := &armedWebhook{WebhookFault: f, id: "webhook_fault_" + strconv.Itoa(d.lastID)}
	d.faults = append(d.faults, a)
	return a.id, nil
}

// ClearWebhookFaults disarms everything. What is kept back goes out.
func (s *Sim) ClearWebhookFaults() {
	s.outbox.disarm(func(*armedWebhook) bool { return true })
}

// DisarmWebhook takes one webhook fault away. What it kept back goes out.
func (s *Sim) DisarmWebhook(id string) error {
	if !s.outbox.disarm(func(a *armedWebhook) bool { return a.id == id }) {
		return fmt.Errorf("no such webhook fault: %s", id)
	}
	return nil
}

func (d *deliveries) disarm(which func(*armedWebhook) bool) (found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.kick()
	d.faults = slices.DeleteFunc(d.faults, func(a *armedWebhook) bool {
		if !which(a) {
			return false
		}
		found = true
		for _, j := range a.parked {
			d.addLocked(j)
		}
		return true
	})
	return found
}

// WebhookFaultsFired is how often each webhook fault fired, by id.
func (s *Sim) WebhookFaultsFired() map[string]int {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	out := map[string]int{}
	for _, a := range s.outbox.faults {
		out[a.id] = a.fired
	}
	return out
}

// fire finds the fault for an event, among some kinds, and counts it. Called
// with the lock held.
func (d *deliveries) fire(typ, order string, kinds ...string) *armedWebhook {
	for _, a := range d.faults {
		if !slices.Contains(kinds, a.Kind) || (a.Times >= 0 && a.fired >= max(a.Times, 1)*a.batch()) {
			continue
		}
		if (a.Type != "" && !matchesType(a.Type, typ)) || (a.OrderID != "" && a.OrderID != order) {
			continue
		}
		if a.seen++; a.seen <= a.Skip {
			continue
		}
		a.fired++
		return a
	}
	return nil
}

// batch is how many events one firing of the fault takes.
func (a *armedWebhook) batch() int {
	if a.Kind == WebhookReorder || a.Kind == WebhookBurst {
		return max(a.Count, 2)
	}
	return 1
}

// generation decides about an event before it exists: how many of it
// there will be.
func (d *deliveries) generation(typ, order string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch a := d.fire(typ, order, WebhookNever, WebhookDouble); {
	case a == nil:
		return 1
	case a.Kind == WebhookNever:
		return 0
	}
	return 2
}

// bendAndAdd queues a job as the faults would have it.
func (d *deliveries) bendAndAdd(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.kick()
	a := d.fire(
		j.typ, j.order, WebhookDuplicate, WebhookReorder, WebhookBurst, WebhookDelay, WebhookDrop,
		WebhookWrongSignature, WebhookStale, WebhookVersion,
	)
	if a == nil {
		d.addLocked(j)
		return
	}
	switch a.Kind {
	case WebhookDuplicate:
		d.addLocked(j)
		for range max(a.Count, 2) - 1 {
			again := *j
			again.resend, again.url = true, a.URL
			d.addLocked(&again)
		}
		return
	case WebhookDrop:
		d.open[j.arrival] = true
		d.pending[j.Event]++
		return
	case WebhookReorder, WebhookBurst:
		d.open[j.arrival] = true
		d.pending[j.Event]++
		a.parked = append(a.parked, j)
		if len(a.parked) == a.batch() {
			d.unpark(a)
		}
		return
	case WebhookDelay:
		j.due = j.due.Add(a.Delay)
	case WebhookWrongSignature:
		j.bend.wrongSignature = true
	case WebhookStale:
		j.bend.age = a.Delay
		if a.Delay == 0 {
			j.bend.age = 10 * time.Minute
		}
	case WebhookVersion:
		j.bend.apiVersion = a.Code
		if a.Code == "" {
			j.bend.apiVersion = "2026-08-26.dahlia"
		}
	}
	d.addLocked(j)
}

// unpark sends a full batch: all at once, or in reverse, each one only when the
// one before has been answered, so that they also arrive reversed.
func (d *deliveries) unpark(a *armedWebhook) {
	for i, j := range a.parked {
		if a.Kind == WebhookReorder && i > 0 {
			j.then = a.parked[i-1]
		}
		if a.Kind == WebhookBurst || i == len(a.parked)-1 {
			d.addLocked(j)
		}
	}
	a.parked = nil
}

// strictly decodes a script: a misspelt field must not pass for a default.
func strictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func readDelay(v any) (time.Duration, error) {
	switch d := v.(type) {
	case nil:
		return 0, nil
	case float64:
		return time.Duration(d), nil
	case string:
		parsed, err := time.ParseDuration(d)
		if err != nil {
			return 0, fmt.Errorf("duration: %w", err)
		}
		return parsed, nil
	}
	return 0, fmt.Errorf("duration: want a text like \"90s\", got %T", v)
}
