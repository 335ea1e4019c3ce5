package main

import (
	"slices"
	"sync"
	"time"
)

// The page may stay open for hours, so whatever the board keeps has a limit.
const (
	maxEntries     = 400    // of the timeline; a story takes about twenty
	maxPurchases   = 40     // tiles on the page
	maxOrders      = 10_000 // whose charges are still counted
	maxSamples     = 240    // points of the plot; when they are full, every other one goes
	sampleInterval = 500 * time.Millisecond
)

// board is what the console runs: a timeline that only grows, and how things
// stand. Readers wait on changed; they hold nothing that a slow one could fill.
type board struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	seq     int64         // of the newest entry
	entries []entry       // the newest ones
	now     pageState
	bought  map[string]*purchase // by order: those on the page
	charges map[string]int       // by order: at Stripe, of every order bought here
	orders  []string             // of charges, the oldest first
	samples []sample
	every   time.Duration // between two samples
}

// entry is a line of the timeline. One that replaces another one (an answer has
// come) has its id, and a sequence number of its own.
type entry struct {
	Seq    int64     `json:"seq"`
	ID     int64     `json:"id"`
	Story  int64     `json:"story"` // the id of the story's first entry
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Who    string    `json:"who,omitempty"`
	Text   string    `json:"text"`
	Answer string    `json:"answer,omitempty"`
	Tone   string    `json:"tone,omitempty"` // good, wait, bad
	Dots   string    `json:"dots,omitempty"` // one letter a request: see dot
	// Charges is how often the order was charged at Stripe, in a verdict.
	Charges *int `json:"charges,omitempty"`
}

// The kinds of entry.
const (
	kindAction  = "story"   // a button was pressed
	kindRequest = "request" // the shop asked, and what it was told
	kindClaim   = "claim"   // who holds the key, and how far it is: from the database
	kindStripe  = "stripe"  // something happened to money: from Stripe's books
	kindWebhook = "webhook" // Stripe told us something
	kindEvent   = "event"   // somebody downstream heard something: from the broker
	kindFault   = "fault"   // we broke something, or mended it
	kindResult  = "verdict" // how it ended
)

// The tones.
const (
	toneGood = "good"
	toneWait = "wait"
	toneBad  = "bad"
)

// purchase is an order that was bought with a button.
type purchase struct {
	Order      string `json:"order"`
	Title      string `json:"title"`
	Requests   int    `json:"requests"`   // for its payment, sent by the shop
	Suppressed int    `json:"suppressed"` // requests and webhooks that found it done, or somebody on it
	Charges    int    `json:"charges"`    // at Stripe
}

// standing is how things stand.
type pageState struct {
	Run       string            `json:"run"` // which demo this is: the next one may have the same address
	Ready     bool              `json:"ready"`
	Scene     string            `json:"scene,omitempty"` // that is played on the terminal meanwhile
	Current   *purchase         `json:"current"`
	Purchases []*purchase       `json:"purchases"`
	Totals    totals            `json:"totals"`
	Processes []processStanding `json:"processes"`
	Postgres  string            `json:"postgres"`
	Busy      []string          `json:"busy"` // actions that are under way
}

type totals struct {
	Orders     int `json:"orders"`
	Requests   int `json:"requests"`
	Suppressed int `json:"suppressed"`
	Charges    int `json:"charges"`
	Worst      int `json:"worst"` // the most charges that any order had
}

type processStanding struct {
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
	stateCut      = "cut off"
)

// sample is a point of the plot.
type sample struct {
	At time.Time `json:"at"`
	totals
}

func newBoard() *board {
	return &board{
		changed: make(chan struct{}), bought: map[string]*purchase{}, charges: map[string]int{}, every: sampleInterval,
		now: pageState{Postgres: stateUp, Purchases: []*purchase{}, Processes: []processStanding{}, Busy: []string{}},
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
		e.Story = e.ID
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

// change changes how things stand.
func (b *board) update(f func(*pageState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.now)
	b.notifyReaders()
}

// tell wakes the readers. Called with mu held.
func (b *board) notifyReaders() {
	b.sample()
	close(b.changed)
	b.changed = make(chan struct{})
}

// standing is how things stand, except for the purchases.
func (b *board) state() pageState {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now
	now.Current, now.Purchases = nil, nil
	return now
}

// buy makes an order the current one.
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

// asked counts requests for an order's payment, and those that changed nothing.
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

// charged counts a charge in Stripe's books, and says whether it is for an order
// that was bought here.
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

// chargesOf is how often Stripe took money for an order, as far as we have read.
func (b *board) chargesOf(order string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges[order]
}

// sample adds a point to the plot if something has moved. Called with mu held.
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

// picture is what a reader is shown at one moment.
type snapshot struct {
	entries []entry
	samples []sample
	now     pageState
	seq     int64
	changed <-chan struct{} // closed when it is out of date
}

// since takes a picture with the entries after a sequence number.
func (b *board) snapshotSince(seq int64) snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := snapshot{now: b.now, seq: b.seq, changed: b.changed, samples: slices.Clone(b.samples)}
	if seq > b.seq { // of an earlier run of the demo
		seq = 0
	}
	from, _ := slices.BinarySearchFunc(b.entries, seq+1, func(e entry, seq int64) int { return int(e.Seq - seq) })
	p.entries = slices.Clone(b.entries[from:])
	p.now.Purchases = make([]*purchase, len(b.now.Purchases))
	for i, one := range b.now.Purchases { // copied: it is written while the picture is being sent
		still := *one
		p.now.Purchases[i] = &still
		if one == b.now.Current {
			p.now.Current = &still
		}
	}
	p.now.Processes, p.now.Busy = slices.Clone(b.now.Processes), slices.Clone(b.now.Busy)
	return p
}
