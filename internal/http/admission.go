package http

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.com/payonce/internal/postgres"
)

// Admission control: a request takes a slot before it uses a processor or the database. A client may open a thousand
// connections and send over all of them at once. What it asks for may be cheap, a replay, a read or a refusal: a thousand
// of them still stand before the one request of another tenant, in each queue that they have in common, which are those
// of the processors and of the database's connections. So each client has queues of its own, in which no other client
// waits, and limits of how many of its requests are served at a time (I30).
//
// A tenant that is alone has limits that it does not notice. While others are active they share fairly what there is.
// Clients without a valid API key are told apart by network, and have a small share always.
//
// What costs the least is rate-limited, too: a client that sends its next request when it has its refusal would else keep
// the processors busy with refusals. Even that a queue is full is said late, because a client with more connections than
// a queue has room for would have no other limit. And a read costs as much as its response is long.
//
// A slot is held while a request needs a processor or the database, and not while its client sends or reads slowly, while
// it waits for another request with its key, nor during the calls of its work. What the work asks of the database goes
// in batches, in which tenants have their share (postgres.Batched), or takes a slot for each transaction and statement
// of its own (turns).

const (
	activeFor      = 30 * time.Second // A tenant is active for so long after a request, or for up to twice that.
	queueMax       = 2048             // requests in one queue
	queuedTotalMax = 8192             // requests of all tenants, and as many again of clients without a valid key
	queuedLeast    = 256              // requests of each tenant, even if those of all are more than queuedTotalMax
	queueFullAfter = 2 * time.Second
)

// class is what a slot is needed for. Each client has a queue for each.
type class int

const (
	classKeyed     class = iota // to read a body, and look its Idempotency-Key up in a batch
	classLargeBody              // to read a large body, before that
	classRead                   // for statements that have a connection of their own, of a request that reads
	classWrite                  // for one transaction or statement of a request that writes, which is not in a batch
	classRefusal                // for a refusal that depends on nothing stored but the API key (problem.queued)
	classWebhook                // for a webhook whose signature is not checked yet
	classDocument               // for a document, until it is sent
	classProbe                  // to say that the process is alive, or ready
	classes
)

// largeBody is a body that takes longer to read than to look its key up.
const largeBody = 4 << 10

// readKiB is how much a tenant may read per second and processor, in KiB, while others are active. A page of large orders,
// 1 MiB, takes the processors of the service and of the database some 30 ms.
const readKiB = 8 << 10

// classLimits are the limits of one client in a class.
type classLimits struct {
	alone int // slots while no other tenant is active
	total int // slots that active tenants share
	least int // slots of each, however many are active

	rate  rate.Limit // of requests per second; 0: no limit. A tenant has one only while others are active.
	burst int
	kib   bool // A request counts as one more for each KiB of its response.

	// anonymous are the slots of all networks together, and networks how many times the rate of one they have in sum:
	// clients without a valid API key may have any number of networks.
	anonymous, networks int
}

func (l classLimits) slots(active int) int {
	if active <= 1 {
		return l.alone
	}
	return max(l.total/active, l.least)
}

// admissionLimits are the limits of a process that has so many connections for reads, and processors. Alone a tenant may
// use all connections; of two each may use half.
func admissionLimits(connections, processors int) [classes]classLimits {
	half := max(1, processors/2)
	return [classes]classLimits{
		// Look-ups are sent in batches, so many at a time are good. What a replay sends counts as what a read does.
		classKeyed: {alone: 1024, total: 32, least: 8,
			rate: rate.Limit(readKiB * processors), burst: readKiB, kib: true},
		classLargeBody: {alone: 4 * processors, total: processors, least: half,
			rate: rate.Limit(25 * processors), burst: 16 * processors},
		classRead: {alone: connections, total: max(2, connections), least: max(1, connections/6),
			rate: rate.Limit(readKiB * processors), burst: readKiB, kib: true},
		// Half, so that a tenant which reads and writes as much as it can leaves a quarter to another.
		classWrite:   {alone: connections, total: max(2, connections/2), least: max(1, connections/12)},
		classRefusal: {alone: half, total: half, least: half, rate: 500, burst: 500, anonymous: processors, networks: 4},
		classWebhook: {alone: 4 * processors, total: processors, least: half, anonymous: 8 * processors},
		classDocument: {alone: half, total: half, least: half, rate: documentKiB, burst: documentKiB, kib: true,
			anonymous: processors, networks: 1},
		classProbe: {alone: half, total: half, least: half, rate: 2000, burst: 500, anonymous: processors, networks: 4},
	}
}

// documentKiB is how much documentation a network may read per second, in KiB. The largest document has 3.6 MB, or 1.1 MB for
// a client that accepts gzip.
const documentKiB = 4 << 10

// admission gives slots to requests, to those of each client and class in the order of their arrival.
type admission struct {
	limits    [classes]classLimits
	fullAfter time.Duration // how late a client is told that a queue is full

	mu              sync.Mutex
	clients         map[clientID]*client
	queuedTenants   int
	queuedAnonymous int // counted apart: these could else fill the tenants' queues
	ofNetworks      [classes]ofNetworks
	period          int64 // the time, in activeFor
	active          int   // tenants in this period
	activeBefore    int   // tenants in the period before it
}

// clientID is a tenant, or a network from which requests without a valid API key come (networks).
type clientID struct {
	tenant  string
	network netip.Prefix
}

type client struct {
	period int64 // of its last request
	queued int   // requests in its queues
	queues [classes]queue
}

// queue is the requests of one client in one class.
type queue struct {
	inUse    int // slots
	ofTenant bool
	waiting  []chan struct{} // one for each request, closed when it has a slot
	begun    int             // how many of them, the first ones, are of work that was begun
	ofClient *int            // requests in all queues of the client
	ofAll    *int            // requests in the queues of all such clients
	rate     *rate.Limiter   // nil: no limit
	timerSet bool            // a timer will dispatch
}

// ofNetworks is what all clients without a valid API key have together in one class.
type ofNetworks struct {
	inUse   int
	rate    *rate.Limiter // nil: no limit
	blocked []*queue      // those with requests that wait only for a slot of all networks
}

// slot is what a request holds while it is served. The zero slot is none.
type slot struct {
	admission *admission
	client    *client
	class     class
}

func newAdmission(limits [classes]classLimits) *admission {
	a := &admission{limits: limits, fullAfter: queueFullAfter, clients: map[clientID]*client{}}
	for class, l := range limits {
		if l.networks > 0 {
			a.ofNetworks[class].rate = rate.NewLimiter(l.rate*rate.Limit(l.networks), l.burst*l.networks)
		}
	}
	return a
}

var (
	// errTenantQueueFull is for a tenant that sends faster than its requests are served.
	errTenantQueueFull = rateLimited(reasonTenantQueue, time.Second,
		"Too many requests of this tenant are queued. Retry the request unchanged.")
	// errTenantQueueSlow is for a request of such a tenant whose time is over before it is served.
	errTenantQueueSlow = unavailable(reasonTenantQueue, time.Second,
		"The request was queued for too long. Retry the request unchanged.")
	// errAnonymousQueueFull is for clients without a valid API key.
	errAnonymousQueueFull = unavailable(reasonAnonymous, time.Second,
		"Too many requests without a valid API key are queued. Retry the request unchanged.")
	// errOverloaded is for a process that has more to do than it can, for several tenants.
	errOverloaded = unavailable(reasonOverloaded, time.Second,
		"Too many requests are queued. Retry the request unchanged.")
)

// acquire waits for a slot, which must be released.
func (a *admission) acquire(ctx context.Context, id clientID, class class) (slot, error) {
	return a.await(ctx, id, class, false)
}

// acquireBegun is acquire for work that was begun. It waits before what is not begun yet, and however full the queue is:
// it was let in, and is bounded by that.
func (a *admission) acquireBegun(ctx context.Context, id clientID, class class) (slot, error) {
	return a.await(ctx, id, class, true)
}

func (a *admission) await(ctx context.Context, id clientID, class class, begun bool) (slot, error) {
	s, admitted, err := a.enqueue(id, class, begun)
	if err != nil {
		select {
		case <-time.After(a.fullAfter):
		case <-ctx.Done():
		}
		return slot{}, err
	}
	if admitted == nil {
		return s, nil
	}
	select {
	case <-admitted:
		return s, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	q := &s.client.queues[class]
	if i := slices.Index(q.waiting, admitted); i >= 0 {
		q.remove(i)
		if id.tenant == "" {
			return slot{}, errAnonymousQueueFull
		}
		return slot{}, errTenantQueueSlow
	}
	return s, nil // It was admitted at the same time as its context ended, which the next step will notice.
}

// enqueue takes a slot at once, or joins the queue for it: then admitted is not nil, and is closed with the slot.
func (a *admission) enqueue(id clientID, class class, begun bool) (_ slot, admitted chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.client(id)
	q := &c.queues[class]
	if len(q.waiting) == 0 {
		if ok, _ := a.take(q, class); ok {
			return slot{a, c, class}, nil, nil
		}
	}
	switch full, allFull := len(q.waiting) >= queueMax, *q.ofAll >= queuedTotalMax; {
	case begun:
	case (full || allFull) && id.tenant == "":
		return slot{}, nil, errAnonymousQueueFull
	case full:
		return slot{}, nil, errTenantQueueFull
	case allFull && c.queued >= queuedLeast:
		return slot{}, nil, errOverloaded
	}
	admitted = make(chan struct{})
	q.add(admitted, begun)
	a.dispatch(q, class)
	return slot{a, c, class}, admitted, nil
}

// take takes a slot if the limits allow it. If only the rate limit does not, it returns how long until it will.
func (a *admission) take(q *queue, class class) (ok bool, wait time.Duration) {
	if q.inUse >= a.limits[class].slots(a.activeTenants()) {
		return false, 0
	}
	all := a.shared(q, class)
	if all != nil && all.inUse >= a.limits[class].anonymous {
		if !slices.Contains(all.blocked, q) {
			all.blocked = append(all.blocked, q)
		}
		return false, 0
	}
	var reserved []*rate.Reservation
	for _, limit := range a.paces(q, all) {
		reservation := limit.Reserve()
		reserved = append(reserved, reservation)
		wait = max(wait, reservation.Delay())
	}
	if wait > 0 {
		for _, reservation := range reserved {
			reservation.Cancel()
		}
		return false, wait
	}
	q.inUse++
	if all != nil {
		all.inUse++
	}
	return true, 0
}

// shared is what the queue's client shares with all other networks; nil: it is a tenant, or they have no limit.
func (a *admission) shared(q *queue, class class) *ofNetworks {
	if q.ofTenant || a.limits[class].anonymous == 0 {
		return nil
	}
	return &a.ofNetworks[class]
}

// paces are the rate limits that hold now.
func (a *admission) paces(q *queue, all *ofNetworks) (limits []*rate.Limiter) {
	if a.paced(q) {
		limits = append(limits, q.rate)
	}
	if all != nil && all.rate != nil {
		limits = append(limits, all.rate)
	}
	return limits
}

// paced reports whether the rate limit holds now.
func (a *admission) paced(q *queue) bool {
	return q.rate != nil && (a.activeTenants() > 1 || !q.ofTenant)
}

func (a *admission) activeTenants() int { return max(a.active, a.activeBefore) }

// dispatch gives slots to the requests that wait, as many as the limits allow: several, if the tenant's share has grown.
// After it the next call comes with the release of a slot, or from a timer.
func (a *admission) dispatch(q *queue, class class) {
	for len(q.waiting) > 0 {
		ok, wait := a.take(q, class)
		if !ok {
			if wait > 0 && !q.timerSet {
				q.timerSet = true
				time.AfterFunc(wait, func() {
					a.mu.Lock()
					defer a.mu.Unlock()
					q.timerSet = false
					a.dispatch(q, class)
				})
			}
			return
		}
		close(q.waiting[0])
		q.remove(0)
	}
}

func (q *queue) add(request chan struct{}, begun bool) {
	if begun {
		q.waiting = slices.Insert(q.waiting, q.begun, request)
		q.begun++
	} else {
		q.waiting = append(q.waiting, request)
	}
	*q.ofClient++
	*q.ofAll++
}

func (q *queue) remove(i int) {
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if i < q.begun {
		q.begun--
	}
	*q.ofClient--
	*q.ofAll--
}

// client finds a client, and counts it among the active ones.
func (a *admission) client(id clientID) *client {
	if period := time.Now().UnixNano() / int64(activeFor); period != a.period {
		a.beginPeriod(period)
	}
	c := a.clients[id]
	if c == nil {
		c = a.newClient(id)
		a.clients[id] = c
	}
	if c.period != a.period {
		c.period = a.period
		if id.tenant != "" {
			a.active++
		}
	}
	return c
}

func (a *admission) newClient(id clientID) *client {
	c := &client{}
	for i := range c.queues {
		q := &c.queues[i]
		q.ofClient, q.ofAll, q.ofTenant = &c.queued, &a.queuedTenants, id.tenant != ""
		if !q.ofTenant {
			q.ofAll = &a.queuedAnonymous
		}
		if limits := a.limits[i]; limits.rate > 0 {
			q.rate = rate.NewLimiter(limits.rate, limits.burst)
		}
	}
	return c
}

// beginPeriod also removes the clients that are not active any more.
func (a *admission) beginPeriod(period int64) {
	a.activeBefore = 0
	if period == a.period+1 {
		a.activeBefore = a.active
	}
	a.period, a.active = period, 0
	for id, c := range a.clients {
		if c.period < period-1 && c.idle() {
			delete(a.clients, id)
		}
	}
}

func (c *client) idle() bool {
	for i := range c.queues {
		if q := &c.queues[i]; q.inUse > 0 || len(q.waiting) > 0 || q.timerSet {
			return false
		}
	}
	return true
}

// release gives the slot to the next request in the queue. A second call does nothing.
func (s *slot) release() {
	if s.client == nil {
		return
	}
	a, q := s.admission, &s.client.queues[s.class]
	s.client = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	q.inUse--
	all := a.shared(q, s.class)
	if all == nil {
		a.dispatch(q, s.class)
		return
	}
	// The networks that wait for each other take turns.
	all.inUse--
	all.blocked = append(all.blocked, q)
	for range len(all.blocked) {
		next := all.blocked[0]
		all.blocked = all.blocked[1:]
		if a.dispatch(next, s.class); all.inUse >= a.limits[s.class].anonymous {
			return
		}
	}
}

// sent counts a response of so many bytes. Its client has it at once; the next ones wait until the rate allows for it.
func (s *slot) sent(bytes int) {
	if s.client == nil || !s.admission.limits[s.class].kib {
		return
	}
	a, q := s.admission, &s.client.queues[s.class]
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, limit := range a.paces(q, a.shared(q, s.class)) {
		for kib := bytes >> 10; kib > 0; kib -= limit.Burst() {
			limit.ReserveN(time.Now(), min(kib, limit.Burst()))
		}
	}
}

// admit waits until the request has a slot of the class, which replaces the one that it holds. It is released with the
// first byte of the response; that of a document with the last one.
func (s *Server) admit(ctx context.Context, r *http.Request, class class) (err error) {
	v := visitOf(r)
	v.slot.release()
	id := clientID{tenant: v.tenant.id}
	if id.tenant == "" {
		id.network = s.networks.of(r.RemoteAddr)
	}
	v.slot, err = s.admission.acquire(ctx, id, class)
	return err
}

// admitParsed parses a body, a large one in a slot that is for that, and returns with a slot of the class.
func (s *Server) admitParsed(ctx context.Context, r *http.Request, class class, body []byte, parse func() error) error {
	large := len(body) > largeBody
	first := class
	if large {
		first = classLargeBody
	}
	err := s.admit(ctx, r, first)
	if err == nil {
		err = parse()
	}
	if err == nil && large {
		err = s.admit(ctx, r, class)
	}
	return err
}

// turnsToBegin have the transactions and statements that begin work wait for a slot each, while others of its tenant use
// as many connections as its share. It is refused when the queue is full, and when it would begin later than it may:
// with less time it would be cut off at Stripe.
func (s *Server) turnsToBegin(ctx context.Context, tenantID string, noLaterThan time.Time) context.Context {
	return postgres.WithTurns(ctx, func(ctx context.Context) (func(), error) {
		ctx, cancel := context.WithDeadline(ctx, noLaterThan)
		defer cancel()
		taken, err := s.admission.acquire(ctx, clientID{tenant: tenantID}, classWrite)
		return taken.release, err
	})
}

// turnsOfBegun are those of work that was begun. It is not refused, and is left to the completer when its time is over.
func (s *Server) turnsOfBegun(ctx context.Context, tenantID string) context.Context {
	return postgres.WithTurns(ctx, func(ctx context.Context) (func(), error) {
		taken, err := s.admission.acquireBegun(ctx, clientID{tenant: tenantID}, classWrite)
		return taken.release, err
	})
}
