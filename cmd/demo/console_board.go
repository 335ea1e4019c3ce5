package main

import (
	"slices"
	"sync"
	"time"
)

// The console may run for hours, so everything that the board keeps has a limit.
const (
	maxEntries     = 400    // of the timeline; an action adds about twenty
	maxPurchases   = 40     // shown on the page
	maxOrders      = 10_000 // whose charges are counted
	maxSamples     = 240    // points of the plot; when there are so many, every second one is removed
	sampleInterval = 500 * time.Millisecond
)

// board is what the console runs: a timeline that only grows, and how things
// stand. Readers wait on changed; they hold nothing that a slow one could fill.
type board struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	seq     int64         // of the newest entry
	entries []entry       // the newest maxEntries
	now     pageState
	bought  map[string]*purchase // by order: those shown on the page
	charges map[string]int       // by order: at Stripe, of every order created by a button
	orders  []string             // the keys of charges, oldest first
	samples []sample
	every   time.Duration // between two samples
}

// entry is a line of the timeline.
type entry struct {
	Seq    int64     `json:"seq"`
	ID     int64     `json:"id"`
	Run    int64     `json:"run"` // the id of the action's first entry
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Who    string    `json:"who,omitempty"`
	Text   string    `json:"text"`
	Answer string    `json:"answer,omitempty"`
	Tone   string    `json:"tone,omitempty"` // good, wait, bad
	Dots   string    `json:"dots,omitempty"` // one letter per response: see the function dot
	Key    string    `json:"key,omitempty"`  // of the request; the page links its history
	Code   string    `json:"code,omitempty"` // the function behind the line, "file#function"
	// Charges is the number of charges at Stripe. Only a result has it.
	Charges *int `json:"charges,omitempty"`
}

// The kinds of entry.
const (
	kindAction  = "action"  // a button was pressed
	kindRequest = "request" // the shop sent a request, or got the response
	kindClaim   = "claim"   // a process claimed the key or reached a recovery point, from the database
	kindStripe  = "stripe"  // a charge, from Stripe's records
	kindWebhook = "webhook" // Stripe delivered a webhook
	kindEvent   = "event"   // the broker delivered an event
	kindFault   = "fault"   // the console broke something, or repaired it
	kindResult  = "result"  // how the action ended
)

// The tones.
const (
	toneGood = "good"
	toneWait = "wait"
	toneBad  = "bad"
)

// purchase is an order that was created by a button.
type purchase struct {
	Order      string `json:"order"`
	Title      string `json:"title"`
	Requests   int    `json:"requests"`   // payment requests sent by the shop
	Suppressed int    `json:"suppressed"` // of those and of webhooks: replayed, 409, or duplicate
	Charges    int    `json:"charges"`    // at Stripe
}

// pageState is what the page shows apart from the timeline.
type pageState struct {
	Run       string         `json:"run"` // identifies this demo: the next one can have the same address
	Ready     bool           `json:"ready"`
	Docs      string         `json:"docs"`            // URL of the API docs
	Operator  string         `json:"operator"`        // URL of the operator's page
	Source    bool           `json:"source"`          // whether /code can show source files
	Scene     string         `json:"scene,omitempty"` // being played in the terminal
	Current   *purchase      `json:"current"`
	Purchases []*purchase    `json:"purchases"`
	Totals    totals         `json:"totals"`
	Processes []processState `json:"processes"`
	Postgres  string         `json:"postgres"`
	Busy      []string       `json:"busy"` // names of running actions
}

type totals struct {
	Orders     int `json:"orders"`
	Requests   int `json:"requests"`
	Suppressed int `json:"suppressed"`
	Charges    int `json:"charges"`
	Worst      int `json:"worst"` // the largest number of charges that any order has
}

type processState struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	State string `json:"state"`
}

// The states of a process, and of PostgreSQL.
const (
	stateUp       = "up"
	stateDead     = "dead"
	statePaused   = "paused"
	stateStarting = "starting"
	stateCut      = "disconnected"
)

// sample is a point of the plot.
type sample struct {
	At time.Time `json:"at"`
	totals
}

func newBoard() *board {
	return &board{
		changed: make(chan struct{}), bought: map[string]*purchase{}, charges: map[string]int{},
		every: sampleInterval,
		now:   pageState{Postgres: stateUp, Purchases: []*purchase{}, Processes: []processState{}, Busy: []string{}},
	}
}

// add puts an entry on the timeline and returns its id.
func (b *board) add(e entry) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	if e.ID == 0 {
		e.ID = b.seq
	}
	if e.Kind == kindAction {
		e.Run = e.ID
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if b.entries = append(b.entries, e); len(b.entries) > maxEntries {
		b.entries = slices.Delete(b.entries, 0, len(b.entries)-maxEntries)
	}
	b.notifyReaders()
	return e.ID
}

// update changes the state of the page.
func (b *board) update(f func(*pageState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.now)
	b.notifyReaders()
}

// notifyReaders wakes the readers. Called with mu held.
func (b *board) notifyReaders() {
	b.sample()
	close(b.changed)
	b.changed = make(chan struct{})
}

// state returns the state without the purchases, which may change at any time.
func (b *board) state() pageState {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now
	now.Current, now.Purchases = nil, nil
	return now
}

// addPurchase makes an order the current one.
func (b *board) addPurchase(p *purchase) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Current, b.bought[p.Order], b.charges[p.Order] = p, p, 0
	if b.now.Purchases = append(b.now.Purchases, p); len(b.now.Purchases) > maxPurchases {
		delete(b.bought, b.now.Purchases[0].Order)
		b.now.Purchases = slices.Delete(b.now.Purchases, 0, 1)
	}
	if b.orders = append(b.orders, p.Order); len(b.orders) > maxOrders {
		delete(b.charges, b.orders[0])
		b.orders = slices.Delete(b.orders, 0, 1)
	}
	b.now.Totals.Orders++
	b.notifyReaders()
}

// countRequests counts payment requests for an order, and those that changed nothing.
func (b *board) countRequests(order string, requests, suppressed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.bought[order]; p != nil {
		p.Requests += requests
		p.Suppressed += suppressed
	}
	b.now.Totals.Requests += requests
	b.now.Totals.Suppressed += suppressed
	b.notifyReaders()
}

// countCharge counts a charge in Stripe's records, and reports whether its order was
// created by a button.
func (b *board) countCharge(order string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ours := b.charges[order]; !ours {
		return false
	}
	b.charges[order]++
	if p := b.bought[order]; p != nil {
		p.Charges = b.charges[order]
	}
	b.now.Totals.Charges++
	b.now.Totals.Worst = max(b.now.Totals.Worst, b.charges[order])
	b.notifyReaders()
	return true
}

// chargesOf returns the number of charges of an order that have been read so far.
func (b *board) chargesOf(order string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges[order]
}

// sample adds a point to the plot if a total has changed. Called with mu held.
func (b *board) sample() {
	now := time.Now()
	if n := len(b.samples); n > 0 && (now.Sub(b.samples[n-1].At) < b.every || b.samples[n-1].totals == b.now.Totals) {
		return
	}
	b.samples = append(b.samples, sample{now, b.now.Totals})
	if len(b.samples) < maxSamples {
		return
	}
	b.every *= 2
	half := b.samples[:0]
	for i := 0; i < len(b.samples); i += 2 {
		half = append(half, b.samples[i])
	}
	b.samples = half
}

// snapshot is what one reader is sent at one moment.
type snapshot struct {
	entries []entry
	samples []sample
	now     pageState
	seq     int64
	changed <-chan struct{} // closed when the snapshot is out of date
}

// snapshotSince returns the entries after a sequence number, and the state.
func (b *board) snapshotSince(seq int64) snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := snapshot{now: b.now, seq: b.seq, changed: b.changed, samples: slices.Clone(b.samples)}
	if seq > b.seq { // a number of an earlier demo: the page needs everything
		seq = 0
	}
	from, _ := slices.BinarySearchFunc(b.entries, seq+1, func(e entry, seq int64) int { return int(e.Seq - seq) })
	p.entries = slices.Clone(b.entries[from:])
	p.now.Purchases = make([]*purchase, len(b.now.Purchases))
	for i, one := range b.now.Purchases { // copied, because it can change while the snapshot is being sent
		still := *one
		p.now.Purchases[i] = &still
		if one == b.now.Current {
			p.now.Current = &still
		}
	}
	p.now.Processes, p.now.Busy = slices.Clone(b.now.Processes), slices.Clone(b.now.Busy)
	return p
}
