package stripesim

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Events go out by themselves: at least once, in no order, each attempt signed
// anew, again and again with growing pauses until an endpoint responds with 2xx or three
// days are over. The first attempt starts when the event is committed, so it can
// arrive before the answer to the request that caused it.
const (
	giveUpAfter      = 3 * 24 * time.Hour
	firstRetry       = time.Second
	longestRetry     = time.Hour
	deliveryTimeout  = 10 * time.Second
	deliveriesAtOnce = 16
	deliveryLogSize  = 10_000
	// configuredEndpoint is the id of the endpoint from Options. It is in no
	// journal: after a restart they must be added again.
	configuredEndpoint = "we_configured"
)

// Delivery is one attempt to deliver one event.
type Delivery struct {
	At       time.Time `json:"at"`
	EventID  string    `json:"event_id"`
	Type     string    `json:"type"`
	Endpoint string    `json:"endpoint"`
	URL      string    `json:"url"`
	Attempt  int       `json:"attempt"`
	Status   int       `json:"status"` // 0: no answer
	Error    string    `json:"error,omitempty"`
}

// arrival is the fact that an endpoint has taken an event.
type arrival struct {
	Event    string `json:"event"`
	Endpoint string `json:"endpoint"`
}

// job is an event on its way to an endpoint.
type job struct {
	arrival
	typ      string
	order    string
	position int64 // of the event in the journal
	born     time.Time
	due      time.Time // on the virtual clock
	attempt  int
	resend   bool // asked for by hand: no faults, no retries
	url      string
	bend     bend
	then     *job // goes out when this one has been answered
}

// bend is what a fault does to one attempt.
type bend struct {
	wrongSignature bool
	age            time.Duration
	apiVersion     string
}

// deliveries is the queue. Its lock is taken with Sim.mu held, never the other
// way round.
type deliveries struct {
	mu      sync.Mutex
	queue   jobs
	open    map[arrival]bool // not yet taken
	pending map[string]int   // by event
	early   map[arrival]bool // read from the journal before the events are queued
	busy    int
	log     []Delivery
	faults  []*armedWebhook
	lastID  int
	wake    chan struct{}
	settled chan struct{} // closed when nothing is due or on its way
	client  *http.Client
	fixed   *endpoint
	slots   chan struct{}
	retry   time.Duration
}

type jobs []*job

func (q jobs) Len() int           { return len(q) }
func (q jobs) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q jobs) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *jobs) Push(x any)        { *q = append(*q, x.(*job)) }
func (q *jobs) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// startDeliveries queues what a former life left undelivered.
func (s *Sim) startDeliveries() {
	d := &s.outbox
	d.open, d.pending = map[arrival]bool{}, map[string]int{}
	d.wake, d.slots, d.retry = make(chan struct{}, 1), make(chan struct{}, deliveriesAtOnce), firstRetry
	d.client = &http.Client{
		Timeout:       deliveryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.opts.WebhookURL != "" {
		d.fixed = newEndpoint(s.opts.WebhookURL)
		d.fixed.ID, d.fixed.Secret = configuredEndpoint, s.opts.WebhookSecret
	}
	s.mu.Lock()
	now := s.now()
	for _, e := range s.st.events.byID {
		if now.Sub(e.Written) < giveUpAfter {
			for _, target := range s.endpointsFor(e.Account, e.Type) {
				if to := (arrival{e.ID, target.ID}); !d.early[to] && !target.Written.After(e.Written) {
					d.add(&job{arrival: to, typ: e.Type, order: orderIn(e), born: e.Written, due: now})
				}
			}
		}
	}
	d.early = nil
	s.mu.Unlock()
	s.ended.Go(s.deliverAll)
}

// endpointsFor are the endpoints an event goes to. Called with mu held.
func (s *Sim) endpointsFor(account, name string) []*endpoint {
	var out []*endpoint
	for _, id := range s.st.endpoints.order[account] {
		if e := s.st.endpoints.byID[id]; e.wants(name) {
			out = append(out, e)
		}
	}
	if f := s.outbox.fixed; f != nil {
		out = append(out, f)
	}
	return out
}

// post puts the events of a transaction on their way. Called with mu held.
func (s *Sim) post(events []*event, position int64) {
	for _, e := range events {
		for _, target := range s.endpointsFor(e.Account, e.Type) {
			j := &job{
				arrival: arrival{e.ID, target.ID}, typ: e.Type, order: orderIn(e), position: position, born: s.now(),
				due: s.now(),
			}
			s.outbox.bendAndAdd(j)
		}
	}
}

// orderIn finds the order an event is about.
func orderIn(e *event) string {
	switch o := e.Data.Object.(type) {
	case *intent:
		return o.Metadata["order_id"]
	case *charge:
		return o.Metadata["order_id"]
	case *refund:
		return o.Metadata["order_id"]
	case json.RawMessage:
		var in struct {
			Metadata map[string]string `json:"metadata"`
		}
		_ = json.Unmarshal(o, &in) // written by us
		return in.Metadata["order_id"]
	}
	return ""
}

func (d *deliveries) add(j *job) {
	d.mu.Lock()
	d.addLocked(j)
	d.mu.Unlock()
	d.kick()
}

func (d *deliveries) addLocked(j *job) {
	if !j.resend && !d.open[j.arrival] {
		d.open[j.arrival] = true
		d.pending[j.Event]++
	}
	heap.Push(&d.queue, j)
}

func (d *deliveries) kick() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// drop ends a job, and returns whether it was still open.
func (d *deliveries) drop(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open[j.arrival] {
		return false
	}
	delete(d.open, j.arrival)
	if d.pending[j.Event]--; d.pending[j.Event] == 0 {
		delete(d.pending, j.Event)
	}
	return true
}

// arrived reads from the journal that an event was taken.
func (d *deliveries) arrived(a arrival) {
	if d.early == nil {
		d.early = map[arrival]bool{}
	}
	d.early[a] = true
}

func (d *deliveries) record(result Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) >= deliveryLogSize {
		d.log = slices.Delete(d.log, 0, deliveryLogSize/10)
	}
	d.log = append(d.log, result)
}

func (d *deliveries) pendingFor(eventID string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending[eventID]
}

// counted shows an event with the deliveries that are still open.
func (d *deliveries) counted(e *event) *event {
	shown := *e
	shown.PendingWebhooks = d.pendingFor(e.ID)
	return &shown
}

func (d *deliveries) delivered(e *event) bool { return d.pendingFor(e.ID) == 0 }

func (d *deliveries) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue, d.log, d.faults = nil, nil, nil
	d.open, d.pending = map[arrival]bool{}, map[string]int{}
}

// Deliveries is the log of the latest attempts, oldest first.
func (s *Sim) Deliveries() []Delivery {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	return slices.Clone(s.outbox.log)
}

// SetWebhookRetry sets the first pause between attempts; it doubles from there.
func (s *Sim) SetWebhookRetry(first time.Duration) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	s.outbox.retry = first
}

// WaitForWebhooks returns when nothing is on its way and nothing is due. What
// waits for a later retry, or is parked by a fault, is not waited for.
func (s *Sim) WaitForWebhooks(ctx context.Context) error {
	d := &s.outbox
	d.mu.Lock()
	if d.settled == nil {
		d.settled = make(chan struct{})
	}
	settled := d.settled
	d.mu.Unlock()
	d.kick()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return fmt.Errorf("simulator closed")
	}
}

// Resend delivers an event again to every endpoint it is for, as the Dashboard
// does by hand: once per times, without retries.
func (s *Sim) Resend(eventID string, times int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.st.events.byID[eventID]
	if e == nil {
		return fmt.Errorf("no such event: %s", eventID)
	}
	for range max(times, 1) {
		for _, target := range s.endpointsFor(e.Account, e.Type) {
			s.outbox.add(
				&job{arrival: arrival{e.ID, target.ID}, typ: e.Type, resend: true, born: s.now(), due: s.now()},
			)
		}
	}
	return nil
}

// AddWebhookEndpoint registers an endpoint for the account of a secret key, as a
// request to /v1/webhook_endpoints would, but with a secret of the caller's.
func (s *Sim) AddWebhookEndpoint(key, url, secret string, events ...string) (string, error) {
	name, err := accountName(key)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	t := s.begin(accountOf(name), origin{})
	e := newEndpoint(url)
	e.ID, e.Created, e.Secret = s.newID("we_1", 23), t.now.Unix(), secret
	if secret == "" {
		e.Secret = s.newID("whsec_", 32)
	}
	if len(events) > 0 {
		e.EnabledEvents = events
	}
	t.create(e)
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	return e.ID, nil
}
