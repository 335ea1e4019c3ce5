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
	maxActions     = 3                // at once: more would only wait for each other
	actionTimeout  = 45 * time.Second // then the action is cancelled, and what it broke is repaired
	restartAfter   = 12 * time.Second // long enough to press other buttons while process A is killed
	outageDuration = 3 * time.Second
)

// console is the page with the buttons. Each line of its timeline comes from the
// part that it is about: responses from the shop, claims from the database, charges
// from Stripe's records, events from the broker.
type console struct {
	*system
	board   *board
	source  *sourceTree // nil: the source code is not on this machine
	url     string
	closing chan struct{}
	readers atomic.Int64
	ctx     context.Context // cancelled when the console closes
	working sync.WaitGroup

	mu          sync.Mutex
	running     map[string]bool            // by the action's name
	lastRun     *actionRun                 // the last that created an order, for the button "retry"
	restartNow  chan struct{}              // not nil while A is killed; closing it restarts A at once
	exclusive   bool                       // whether an exclusive action is running
	runs        map[string]*actionRun      // by key and by order, to find the run that a fact belongs to
	runKeys     []string                   // the keys of runs, oldest first
	historyRead map[string]map[string]bool // by idempotency key: the lease tokens and recovery points on the timeline
	refreshing  sync.Mutex                 // held during a refresh: two at once would show facts twice
	effects     int64                      // sequence number of the last effect read from Stripe
}

// openConsole serves the page. Its buttons are disabled until enableButtons,
// because the scenes kill processes too.
func (s *system) openConsole(ctx context.Context, out *printer) error {
	c := &console{
		system: s, board: newBoard(), source: findSourceTree(), closing: make(chan struct{}),
		running: map[string]bool{}, runs: map[string]*actionRun{}, historyRead: map[string]map[string]bool{},
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(ctx)
	c.showProcesses(stateUp)
	c.board.update(func(now *pageState) {
		now.Run, now.Docs, now.Operator, now.Source = s.nonce, s.docsURL(), s.operatorURL(), c.source != nil
	})
	var err error
	if c.url, err = s.Listen(c.handler()); err != nil {
		cancel()
		return err
	}
	out.fact("Console", "%s, whose buttons work when the scenes have been played", c.url)
	s.console = c
	s.Later(func() error {
		close(c.closing)
		c.mu.Lock() // so that no action starts after the cancellation
		cancel()
		c.mu.Unlock()
		c.working.Wait() // each action repairs what it broke
		return nil
	})
	return nil
}

// showScene shows which scene is being played, while the buttons are disabled.
func (c *console) showScene(number int, title string) {
	c.board.update(func(s *pageState) { s.Scene = fmt.Sprintf("Scene %d: %s", number, title) })
}

// enableButtons is called when the scenes have been played. Their charges and
// events are not the console's: it counts from here on.
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
	c.board.update(func(s *pageState) {
		s.Ready, s.Scene, s.Operator = true, "", c.operatorURL() // a scene may have restarted B
	})
	return nil
}

// startAction runs the action of a button, or returns why it cannot.
func (c *console) startAction(name string) *refusedAction {
	if name == "start" { // the small button beside a killed process
		c.startANow()
		return nil
	}
	i := slices.IndexFunc(actions, func(a action) bool { return a.Name == name })
	if i < 0 {
		return &refusedAction{http.StatusNotFound, "no such button"}
	}
	a := actions[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.board.state().Ready:
		return &refusedAction{http.StatusConflict, "the demo is still playing scenes in the terminal"}
	case c.running[name]:
		return &refusedAction{http.StatusConflict, "this action is still running"}
	case a.Exclusive && c.exclusive:
		return &refusedAction{http.StatusConflict, "another failure is still being shown"}
	case len(c.running) >= maxActions:
		return &refusedAction{http.StatusTooManyRequests, "too many actions are running"}
	case c.ctx.Err() != nil:
		return &refusedAction{http.StatusServiceUnavailable, "the demo is shutting down"}
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

// showBusy shows which actions are running. Called with mu held.
func (c *console) showBusy() {
	names := []string{}
	for name := range c.running {
		names = append(names, name)
	}
	slices.Sort(names)
	c.board.update(func(s *pageState) { s.Busy = names })
}

// clearFaults deletes the faults that have been used: the simulator would keep
// their list for as long as the console runs.
func (c *console) clearFaults() {
	for _, path := range []string{"/faults", "/webhook-faults"} {
		_ = c.stripe.call(c.ctx, http.MethodDelete, path, nil, nil) // after an error, the next action clears them
	}
}

// showProcesses shows the processes; state is A's, the only one that is ever killed.
func (c *console) showProcesses(state string) {
	c.board.update(func(s *pageState) {
		s.Processes = []processState{
			{c.a.name, c.processes[0].PID(), state},
			{c.b.name, c.processes[1].PID(), stateUp},
		}
	})
}

func (c *console) stateOfA() string { return c.board.state().Processes[0].State }

// upEndpoint is the endpoint of a running process: A's, if A is running.
func (c *console) upEndpoint() *endpoint {
	if c.stateOfA() == stateUp {
		return c.a
	}
	return c.b
}

// otherEndpoint is where to retry when there was no response.
func (c *console) otherEndpoint(e *endpoint) *endpoint {
	if e == c.a {
		return c.b
	}
	return c.upEndpoint()
}

// restartALater restarts A after a while, or when its button is pressed.
func (c *console) restartALater(run *actionRun) {
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
			c.startA(run)
		}
	})
}

func (c *console) startA(run *actionRun) {
	c.showProcesses(stateStarting)
	p := c.processAt(c.a)
	if err := p.start(c.ctx); err != nil {
		c.showProcesses(stateDead)
		run.add(entry{Kind: kindFault, Text: "Process A does not start: " + err.Error(), Tone: toneBad})
		return
	}
	c.showProcesses(stateUp)
	text := fmt.Sprintf("Process A is started again (%d). No work is left for it.", p.PID())
	run.add(entry{Kind: kindFault, Text: text})
}

// ensureAIsUp restarts A if it is killed, for actions that need both processes.
func (c *console) ensureAIsUp(ctx context.Context) error {
	c.startANow()
	for c.stateOfA() != stateUp {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return errors.New("process A does not start")
		}
	}
	return nil
}

// startANow ends the wait of restartALater.
func (c *console) startANow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restartNow != nil {
		close(c.restartNow)
		c.restartNow = nil
	}
}

// showEvent adds an event that the broker has delivered to its run.
func (c *console) showEvent(m inbox.Message) {
	if run := c.runOf(m.Subject, orderIn(m.Body)); run != nil {
		version := fmt.Sprintf("version %d", m.Version)
		run.add(entry{Kind: kindEvent, Text: m.Type, Answer: version, Code: codeOf["event"]})
	}
}
