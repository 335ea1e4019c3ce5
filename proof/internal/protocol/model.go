package protocol

import (
	"context"
	"sync"
)

// Scope bounds a model: what is asked for, from which state on, and how much may go wrong.
type Scope struct {
	Name  string
	What  string
	asks  [clients]Operation
	begin func(*state)

	Tries  uint8 // requests of each client
	Faults uint8 // of processes, connections, the database and Stripe
	Acts   uint8 // of people, banks and other programs
	Ticks  uint8 // of thirteen hours
	Copies uint8 // of the database

	Announced bool // `api restored` follows a restore
	Bank      bool // payments and refunds take time at a bank
	Others    bool // another program has the account's key
	Dashboard bool // people work in Stripe's dashboard
	Webhooks  bool // may be delivered; the others come without any
}

// Model is the protocol in a scope, perhaps without some rules.
type Model struct {
	scope    Scope
	without  Rule
	verdicts verdicts
	copies   copies

	// Only is the invariant that is looked for, in spite of others that break before it; 0: any.
	Only Invariant
}

// Verdicts are what the service concludes from Stripe's responses. They are asked once, for all models.
var Verdicts = sync.OnceValues(func() (verdicts, error) { return ask(context.Background()) })

// New returns the protocol in a scope, without some rules.
func New(s Scope, without Rule) (*Model, error) {
	v, err := Verdicts()
	return &Model{scope: s, without: without, verdicts: v}, err
}

func (m *Model) has(r Rule) bool { return m.without&r == 0 }

// start is the first state.
func (m *Model) start() state {
	s := state{faults: m.scope.Faults, acts: m.scope.Acts, backups: m.scope.Copies}
	s.order.status = orderOpen
	if m.scope.begin != nil {
		m.scope.begin(&s)
	}
	return s
}

// copies are the databases that a state may go back to.
type copies struct {
	mu   sync.Mutex
	rows []rows
	ids  map[rows]uint16
}

func (c *copies) keep(r rows) uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.ids[r]; ok {
		return id
	}
	if c.ids == nil {
		c.ids = map[rows]uint16{}
	}
	c.rows = append(c.rows, r)
	c.ids[r] = uint16(len(c.rows))
	return c.ids[r]
}

func (c *copies) get(id uint16) rows {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[id-1]
}
