package http

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A client may open a thousand connections and send over all of them at once. What it asks for may be cheap, a replay, a
// read or a refusal: a thousand of them still stand before the one request of another tenant, in each queue that they
// have in common, which are those of the processors and of the database's connections. So how many requests of one
// client are worked on at a time has a limit, its share, and its others wait here, where no other client waits behind
// them (I30).
//
// A tenant that is alone has a share that it does not notice. While others are active they divide what there is. Who has
// no valid API key is told apart by network, has a small share always, and is refused at a pace: a client that sends its
// next request when it has its refusal would else keep the processors busy with refusals.
//
// A request holds its place while it needs a processor or the database, and not while a client sends or reads slowly,
// while it waits for another with its key, nor while it does new work, which the rate limit bounds and whose statements
// are shared fairly already (postgres.Batched).

const (
	activeFor  = 30 * time.Second // A tenant is active for so long after a request, or for up to twice that.
	waitersMax = 2048             // requests of one client that wait to be worked on
	waitingMax = 8192             // of all tenants, and as many again of who has no valid key
)

// work is what a place is needed for.
type work int

const (
	workKeyed   work = iota // to read a body, and look its key up in a batch
	workLarge               // to read a large body, before that
	workRead                // for statements that have a connection of their own
	workRefuse              // to refuse a request without a valid API key
	workWebhook             // for a webhook whose signature is not checked yet
	workPage                // for a document, until it is sent
	workProbe               // to say that the process lives, or is ready
	works
)

// largeBody is a body that takes longer to read than to look its key up.
const largeBody = 4 << 10

// share is how many requests of one client may be worked on at a time.
type share struct {
	alone int // while no other tenant is active
	all   int // what active tenants divide
	least int // what each has, however many they are

	pace  time.Duration // between one request and the next; 0: none
	burst time.Duration // of paces that a client has saved up

	yields bool // the pace is for while other tenants are active
}

func (s share) of(active int) int {
	if active <= 1 {
		return s.alone
	}
	return max(s.all/active, s.least)
}

// sharesFor are the shares in a process that has so many connections for reads, and processors. Alone a tenant may use
// all connections; of two each may use half.
func sharesFor(connections, processors int) [works]share {
	half := max(1, processors/2)
	return [works]share{
		workKeyed: {alone: 1024, all: 32, least: 8}, // Look-ups go in batches, so many at a time are good.
		workLarge: {alone: 4 * processors, all: processors, least: half,
			pace: time.Second / 125 / time.Duration(processors), burst: time.Second / 4, yields: true},
		workRead:    {alone: connections, all: max(2, connections), least: max(1, connections/6)},
		workRefuse:  {alone: half, all: half, least: half, pace: time.Second / 500, burst: time.Second},
		workWebhook: {alone: 4 * processors, all: processors, least: half},
		workPage:    {alone: half, all: half, least: half, pace: time.Second / 250, burst: time.Second},
		workProbe:   {alone: half, all: half, least: half, pace: time.Second / 2000, burst: time.Second / 4},
	}
}

// admission lets requests in, those of each client in the order of their arrival.
type admission struct {
	shares [works]share

	mu      sync.Mutex
	clients map[clientID]*client
	room    room  // of tenants
	open    room  // of who has no valid key, who could else fill that of tenants
	period  int64 // the time, in activeFor
	active  int   // tenants in this period
	before  int   // tenants in the one before it
}

// clientID is a tenant, or a network from which requests without a valid API key come.
type clientID struct {
	tenant  string
	network netip.Prefix
}

type client struct {
	period int64 // of its last request
	lines  [works]line
}

// room is how many requests wait.
type room int

// line is the requests of a client that need the same.
type line struct {
	room    *room
	taken   int             // places
	waiting []chan struct{} // closed when they have one
	next    time.Time       // when the pace allows the next request, without what is saved up
	paced   bool            // a timer lets the next one in
}

// place is what a request holds while it is worked on. The zero place is none.
type place struct {
	admission *admission
	client    *client
	work      work
}

func newAdmission(shares [works]share) *admission {
	return &admission{shares: shares, clients: map[clientID]*client{}}
}

var (
	// errShareUsedUp is for a tenant that sends faster than its share is worked on.
	errShareUsedUp = &problem{
		code: codeRateLimited, detail: "Too many requests of this tenant are waiting. Retry the request unchanged.",
		retryAfter: time.Second,
	}
	// errAllWaiting is for a process that has more to do than it can.
	errAllWaiting = &problem{
		code: codeUnavailable, detail: "Too many requests are waiting. Retry the request unchanged.",
		retryAfter: time.Second,
	}
)

// enter waits for a place. leave must be called with it.
func (a *admission) enter(ctx context.Context, id clientID, work work) (place, error) {
	p, admitted, err := a.arrive(id, work)
	if admitted == nil || err != nil {
		return p, err
	}
	select {
	case <-admitted:
		return p, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	line := &p.client.lines[work]
	if i := slices.Index(line.waiting, admitted); i >= 0 {
		line.waiting = slices.Delete(line.waiting, i, i+1)
		*line.room--
		return place{}, errAllWaiting
	}
	return p, nil // It was admitted together with the end of its time, which the next step will notice.
}

// arrive takes a place, or a place in the line: then admitted is not nil.
func (a *admission) arrive(id clientID, work work) (_ place, admitted chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.seen(id)
	line := &c.lines[work]
	if len(line.waiting) == 0 && a.take(line, work) {
		return place{a, c, work}, nil, nil
	}
	switch {
	case len(line.waiting) >= waitersMax && id.tenant != "":
		return place{}, nil, errShareUsedUp
	case len(line.waiting) >= waitersMax || *line.room >= waitingMax:
		return place{}, nil, errAllWaiting
	}
	admitted = make(chan struct{})
	line.waiting = append(line.waiting, admitted)
	*line.room++
	a.letIn(line, work)
	return place{a, c, work}, admitted, nil
}

// take takes a place, if the share and the pace of the line allow it.
func (a *admission) take(line *line, work work) bool {
	share, active := &a.shares[work], max(a.active, a.before)
	if line.taken >= share.of(active) {
		return false
	}
	if share.pace > 0 && (active > 1 || !share.yields) {
		now := time.Now()
		if line.next.Sub(now) > share.burst {
			return false
		}
		line.next = line.next.Add(share.pace)
		if line.next.Before(now) {
			line.next = now.Add(share.pace)
		}
	}
	line.taken++
	return true
}

// letIn gives places to those who wait.
func (a *admission) letIn(line *line, work work) {
	for len(line.waiting) > 0 && a.take(line, work) { // several, if its share has grown
		close(line.waiting[0])
		line.waiting = line.waiting[1:]
		*line.room--
	}
	// If it is the pace that they wait for, a timer lets them in; otherwise who leaves does.
	// Its time may have come since take has looked; then no request that leaves lets them in.
	wait := time.Until(line.next) - a.shares[work].burst
	if a.shares[work].pace > 0 && (wait > 0 || line.taken == 0) && len(line.waiting) > 0 && !line.paced {
		line.paced = true
		time.AfterFunc(wait, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			line.paced = false
			a.letIn(line, work)
		})
	}
}

// seen finds a client, and counts it among the active ones.
func (a *admission) seen(id clientID) *client {
	if period := time.Now().UnixNano() / int64(activeFor); period != a.period {
		a.begin(period)
	}
	c := a.clients[id]
	if c == nil {
		c = &client{}
		for i := range c.lines {
			c.lines[i].room = &a.room
			if id.tenant == "" {
				c.lines[i].room = &a.open
			}
		}
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

// begin begins a period, and forgets clients that are not active any more.
func (a *admission) begin(period int64) {
	a.before = 0
	if period == a.period+1 {
		a.before = a.active
	}
	a.period, a.active = period, 0
	for id, c := range a.clients {
		if c.period < period-1 && c.idle() {
			delete(a.clients, id)
		}
	}
}

func (c *client) idle() bool {
	for i := range c.lines {
		if l := &c.lines[i]; l.taken > 0 || len(l.waiting) > 0 || l.paced {
			return false
		}
	}
	return true
}

// leave gives the place to those who wait. A second call does nothing.
func (p *place) leave() {
	if p.client == nil {
		return
	}
	a, line := p.admission, &p.client.lines[p.work]
	p.client = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	line.taken--
	a.letIn(line, p.work)
}

// admit lets a request in. Its place ends when it leaves or is admitted for other work, or with the first byte of the
// response; that of a document with its last one.
func (s *Server) admit(ctx context.Context, r *http.Request, work work) (err error) {
	v := visitOf(r)
	v.place.leave()
	id := clientID{tenant: v.tenant.id}
	if id.tenant == "" {
		id.network = clientNetwork(r.RemoteAddr)
	}
	v.place, err = s.admission.enter(ctx, id, work)
	return err
}
