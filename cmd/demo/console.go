package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/payonce/internal/inbox"
)

const (
	actionsMax   = 3                // at once
	actionWithin = 45 * time.Second // and then it is given up, with everything put right again
	deadFor      = 12 * time.Second // how long a killed process stays dead, for somebody to press buttons meanwhile
	cutFor       = 3 * time.Second
)

// console is a page with buttons, on which anybody can break the system and watch
// the number that does not move. It has a timeline, and everything on it comes
// from whoever knows: answers from the shop, claims from the database, charges
// from Stripe's books, events from the broker.
type console struct {
	*system
	board   *board
	url     string
	closing chan struct{}
	readers atomic.Int64
	ctx     context.Context // ends with the console
	working sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool
	last    *story            // that bought something, to ask again
	revive  chan struct{}     // not nil: A is dead, and closing it starts A now
	alone   bool              // one of those actions is under way that tolerate no other of their kind
	stories map[string]*story // by key and by the ids of their objects: whose timeline a fact belongs to
	order   []string          // of stories, the oldest first
	trails  map[string]int    // by key: how much of its trail is on the timeline
	looking sync.Mutex        // one look at a time
	effects int64             // read so far of Stripe's books
}

// openConsole serves the page, at first without its buttons.
func (s *system) openConsole(ctx context.Context, out *printer) error {
	c := &console{
		system: s, board: newBoard(), closing: make(chan struct{}),
		running: map[string]bool{}, stories: map[string]*story{}, trails: map[string]int{},
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(ctx)
	c.standing(stateUp)
	c.board.change(func(now *standing) { now.Run = s.nonce })
	var err error
	if c.url, err = s.Listen(c.handler()); err != nil {
		cancel()
		return err
	}
	out.fact("Console", "%s, whose buttons work when the scenes have been played", c.url)
	s.console = c
	s.Later(func() error {
		close(c.closing)
		c.mu.Lock() // nothing begins any more
		cancel()
		c.mu.Unlock()
		c.working.Wait() // each puts right what it broke
		return nil
	})
	return nil
}

// playing says which scene is on, before the buttons work.
func (c *console) playing(number int, title string) {
	c.board.change(func(s *standing) { s.Scene = fmt.Sprintf("Scene %d: %s", number, title) })
}

// ready hands the system over to the buttons.
func (c *console) ready() error {
	effects, err := c.stripe.effects(c.ctx)
	if err != nil {
		return err
	}
	if n := len(effects); n > 0 {
		c.effects = effects[n-1].Seq
	}
	c.audience.tellInstead(c.hear)
	c.working.Go(c.watch)
	c.standing(stateUp)
	c.board.change(func(s *standing) { s.Ready, s.Scene = true, "" })
	return nil
}

// begin starts an action, or says why not.
func (c *console) begin(name string) *refusal {
	if name == "start" { // the process that is dead
		c.hurry()
		return nil
	}
	i := slices.IndexFunc(actions, func(a action) bool { return a.Name == name })
	if i < 0 {
		return &refusal{http.StatusNotFound, "there is no such button"}
	}
	a := actions[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.board.standing().Ready:
		return &refusal{http.StatusConflict, "the demo is still playing on the terminal"}
	case c.running[name]:
		return &refusal{http.StatusConflict, "that is under way"}
	case a.Alone && c.alone:
		return &refusal{http.StatusConflict, "one disaster at a time"}
	case len(c.running) >= actionsMax:
		return &refusal{http.StatusTooManyRequests, "enough is under way"}
	case c.ctx.Err() != nil:
		return &refusal{http.StatusServiceUnavailable, "the demo ends"}
	}
	c.running[name] = true
	c.alone = c.alone || a.Alone
	c.busy()
	c.working.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, actionWithin)
		defer cancel()
		a.run(ctx, c)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
		if a.Alone {
			c.alone = false
		}
		if len(c.running) == 0 {
			c.disarm()
		}
		c.busy()
	})
	return nil
}

// busy shows which buttons are at work. Called with mu held.
func (c *console) busy() {
	names := []string{}
	for name := range c.running {
		names = append(names, name)
	}
	slices.Sort(names)
	c.board.change(func(s *standing) { s.Busy = names })
}

// disarm clears what has fired at Stripe, which would otherwise keep a list of it.
func (c *console) disarm() {
	for _, what := range []string{"/faults", "/webhook-faults"} {
		_ = c.stripe.call(c.ctx, http.MethodDelete, what, nil, nil) // the next time, then
	}
}

// standing shows the processes; state is A's, the only one that is ever hurt.
func (c *console) standing(state string) {
	c.board.change(func(s *standing) {
		s.Processes = []processStanding{{c.a.name, c.processes[0].PID(), state}, {c.b.name, c.processes[1].PID(), stateUp}}
	})
}

// stateOfA is what the page says of it.
func (c *console) stateOfA() string { return c.board.standing().Processes[0].State }

// healthy is the door of a process that is alive: A's, as long as A is.
func (c *console) healthy() *door {
	if c.stateOfA() == stateUp {
		return c.a
	}
	return c.b
}

// other is where to ask when nobody answers at a door.
func (c *console) other(d *door) *door {
	if d == c.a {
		return c.b
	}
	return c.healthy()
}

// laterRevive starts A again after a while, or when somebody asks for it.
func (c *console) laterRevive(s *story) {
	c.working.Go(func() {
		for c.ctx.Err() == nil && c.stateOfA() != stateUp {
			now := make(chan struct{})
			c.mu.Lock()
			c.revive = now
			c.mu.Unlock()
			select {
			case <-time.After(deadFor):
			case <-now:
			case <-c.ctx.Done():
				return
			}
			c.startA(s)
		}
	})
}

func (c *console) startA(s *story) {
	c.standing(stateStarting)
	p := c.process(c.a)
	if err := p.start(c.ctx); err != nil {
		c.standing(stateDead)
		s.say(entry{Kind: kindFault, Text: "Process A does not start: " + err.Error(), Tone: toneBad})
		return
	}
	c.standing(stateUp)
	s.say(entry{Kind: kindFault, Text: fmt.Sprintf("Process A is started again (%d), and finds nothing left to do.", p.PID())})
}

// reviveNow starts A if it is dead, and waits until it lives.
func (c *console) reviveNow(ctx context.Context) error {
	c.hurry()
	for c.stateOfA() != stateUp {
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return errors.New("process A does not come back")
		}
	}
	return nil
}

// hurry ends the wait of laterRevive.
func (c *console) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revive != nil {
		close(c.revive)
		c.revive = nil
	}
}

// hear is told what the broker delivers.
func (c *console) hear(m inbox.Message) {
	if s := c.storyOf(m.Subject, orderIn(m.Body)); s != nil {
		s.say(entry{Kind: kindEvent, Text: m.Type, Answer: fmt.Sprintf("version %d", m.Version)})
	}
}
