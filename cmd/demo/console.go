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
	maxActions     = 3                // at once
	actionTimeout  = 45 * time.Second // and then it is given up, with everything put right again
	restartAfter   = 12 * time.Second // how long a killed process stays dead, for somebody to press buttons meanwhile
	outageDuration = 3 * time.Second
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

	mu          sync.Mutex
	running     map[string]bool
	lastRun     *actionRun            // that bought something, to ask again
	restartNow  chan struct{}         // not nil: A is dead, and closing it starts A now
	exclusive   bool                  // one of those actions is under way that tolerate no other of their kind
	runs        map[string]*actionRun // by key and by the ids of their objects: whose timeline a fact belongs to
	runKeys     []string              // of stories, the oldest first
	historyRead map[string]int        // by key: how much of its trail is on the timeline
	refreshing  sync.Mutex            // one look at a time
	effects     int64                 // read so far of Stripe's books
}

// openConsole serves the page, at first without its buttons.
func (s *system) openConsole(ctx context.Context, out *printer) error {
	c := &console{
		system: s, board: newBoard(), closing: make(chan struct{}),
		running: map[string]bool{}, runs: map[string]*actionRun{}, historyRead: map[string]int{},
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(ctx)
	c.showProcesses(stateUp)
	c.board.update(func(now *pageState) { now.Run = s.nonce })
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
func (c *console) showScene(number int, title string) {
	c.board.update(func(s *pageState) { s.Scene = fmt.Sprintf("Scene %d: %s", number, title) })
}

// ready hands the system over to the buttons.
func (c *console) enableButtons() error {
	effects, err := c.stripe.effects(c.ctx)
	if err != nil {
		return err
	}
	if n := len(effects); n > 0 {
		c.effects = effects[n-1].Seq
	}
	c.subscriber.forwardTo(c.showEvent)
	c.working.Go(c.watch)
	c.showProcesses(stateUp)
	c.board.update(func(s *pageState) { s.Ready, s.Scene = true, "" })
	return nil
}

// begin starts an action, or says why not.
func (c *console) startAction(name string) *refusedAction {
	if name == "start" { // the process that is dead
		c.startANow()
		return nil
	}
	i := slices.IndexFunc(actions, func(a action) bool { return a.Name == name })
	if i < 0 {
		return &refusedAction{http.StatusNotFound, "there is no such button"}
	}
	a := actions[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.board.state().Ready:
		return &refusedAction{http.StatusConflict, "the demo is still playing on the terminal"}
	case c.running[name]:
		return &refusedAction{http.StatusConflict, "that is under way"}
	case a.Exclusive && c.exclusive:
		return &refusedAction{http.StatusConflict, "one disaster at a time"}
	case len(c.running) >= maxActions:
		return &refusedAction{http.StatusTooManyRequests, "enough is under way"}
	case c.ctx.Err() != nil:
		return &refusedAction{http.StatusServiceUnavailable, "the demo ends"}
	}
	c.running[name] = true
	c.exclusive = c.exclusive || a.Exclusive
	c.showBusy()
	c.working.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, actionTimeout)
		defer cancel()
		a.run(ctx, c)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
		if a.Exclusive {
			c.exclusive = false
		}
		if len(c.running) == 0 {
			c.clearFaults()
		}
		c.showBusy()
	})
	return nil
}

// busy runs which buttons are at work. Called with mu held.
func (c *console) showBusy() {
	names := []string{}
	for name := range c.running {
		names = append(names, name)
	}
	slices.Sort(names)
	c.board.update(func(s *pageState) { s.Busy = names })
}

// disarm clears what has fired at Stripe, which would otherwise keep a list of it.
func (c *console) clearFaults() {
	for _, what := range []string{"/faults", "/webhook-faults"} {
		_ = c.stripe.call(c.ctx, http.MethodDelete, what, nil, nil) // the next time, then
	}
}

// standing runs the processes; state is A's, the only one that is ever hurt.
func (c *console) showProcesses(state string) {
	c.board.update(func(s *pageState) {
		s.Processes = []processStanding{{c.a.name, c.processes[0].PID(), state}, {c.b.name, c.processes[1].PID(), stateUp}}
	})
}

// stateOfA is what the page says of it.
func (c *console) stateOfA() string { return c.board.state().Processes[0].State }

// healthy is the door of a process that is alive: A's, as long as A is.
func (c *console) upEndpoint() *endpoint {
	if c.stateOfA() == stateUp {
		return c.a
	}
	return c.b
}

// other is where to ask when nobody answers at a door.
func (c *console) otherEndpoint(d *endpoint) *endpoint {
	if d == c.a {
		return c.b
	}
	return c.upEndpoint()
}

// laterRevive starts A again after a while, or when somebody asks for it.
func (c *console) restartALater(s *actionRun) {
	c.working.Go(func() {
		for c.ctx.Err() == nil && c.stateOfA() != stateUp {
			now := make(chan struct{})
			c.mu.Lock()
			c.restartNow = now
			c.mu.Unlock()
			select {
			case <-time.After(restartAfter):
			case <-now:
			case <-c.ctx.Done():
				return
			}
			c.startA(s)
		}
	})
}

func (c *console) startA(s *actionRun) {
	c.showProcesses(stateStarting)
	p := c.processAt(c.a)
	if err := p.start(c.ctx); err != nil {
		c.showProcesses(stateDead)
		s.add(entry{Kind: kindFault, Text: "Process A does not start: " + err.Error(), Tone: toneBad})
		return
	}
	c.showProcesses(stateUp)
	s.add(entry{Kind: kindFault, Text: fmt.Sprintf("Process A is started again (%d), and finds nothing left to do.", p.PID())})
}

// reviveNow starts A if it is dead, and waits until it lives.
func (c *console) ensureAIsUp(ctx context.Context) error {
	c.startANow()
	for c.stateOfA() != stateUp {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return errors.New("process A does not come back")
		}
	}
	return nil
}

// hurry ends the wait of laterRevive.
func (c *console) startANow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restartNow != nil {
		close(c.restartNow)
		c.restartNow = nil
	}
}

// hear is told what the broker delivers.
func (c *console) showEvent(m inbox.Message) {
	if s := c.runOf(m.Subject, orderIn(m.Body)); s != nil {
		s.add(entry{Kind: kindEvent, Text: m.Type, Answer: fmt.Sprintf("version %d", m.Version)})
	}
}
