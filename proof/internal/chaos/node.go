package chaos

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/process"
)

// node is a host that runs the API: a clock of its own, cables of its own, and
// a supervisor that restarts the process whenever it exits.
type node struct {
	name   string
	offset time.Duration // of its clock
	addr   string
	admin  string
	dsn    *url.URL // through its cable
	links  []*link
	wire   *pgproxy.Proxy // behind the cable to PostgreSQL: it reads what passes

	child   process.Child
	program string // of its next process
	ending  context.CancelFunc
	stopped chan struct{}

	mu    sync.Mutex
	up    bool
	lives []life
	odd   []string // exits that were not injected
}

// life is one process of a node, from its first word to its end.
type life struct {
	session string // how the database knows it
	program string // what it ran
	ended   time.Time
	how     string // what we did to end it; empty: it lives, or ended by itself
}

// pause between the end of a process and the next, as an init system makes it.
const rebirth = 100 * time.Millisecond

// run keeps the node alive until ctx ends.
func (n *node) run(ctx context.Context) {
	ctx, n.ending = context.WithCancel(ctx)
	n.stopped = make(chan struct{})
	go func() {
		defer close(n.stopped)
		for ctx.Err() == nil {
			n.live(ctx)
			select {
			case <-time.After(rebirth):
			case <-ctx.Done():
			}
		}
	}()
}

// live is one process. One that cannot start, with its database away, is tried
// again; an exit that was not injected is recorded.
func (n *node) live(ctx context.Context) {
	session := fmt.Sprintf("%s.%d", n.name, len(n.lives)+1)
	dsn := *n.dsn
	query := dsn.Query()
	query.Set("application_name", session)
	dsn.RawQuery = query.Encode()
	starting, cancel := context.WithTimeout(ctx, process.ReadyWithin)
	defer cancel()
	n.mu.Lock()
	n.child.Program = n.program
	n.mu.Unlock()
	if _, err := n.child.Start(starting, "DATABASE_URL="+dsn.String()); err != nil {
		return
	}
	n.mu.Lock()
	n.up, n.lives = true, append(n.lives, life{session: session, program: n.child.Program})
	n.mu.Unlock()
	select {
	case <-n.child.Exited():
	case <-ctx.Done():
		n.end("the end of the run", syscall.SIGKILL)
		<-n.child.Exited()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = false
	l := &n.lives[len(n.lives)-1]
	if l.how == "" {
		n.odd = append(n.odd, l.session+" ended by itself")
	}
	if l.ended.IsZero() {
		l.ended = time.Now()
	}
}

// end sends a signal that ends the process, and notes why. It reports whether
// there was one.
func (n *node) end(how string, signal syscall.Signal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return false
	}
	l := &n.lives[len(n.lives)-1]
	if signal == syscall.SIGKILL || l.how == "" {
		l.how, l.ended = how, time.Now()
	}
	return n.child.Signal(signal) == nil
}

// signal sends one that does not end it; 0 only asks whether there is a process.
func (n *node) signal(s syscall.Signal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up && n.child.Signal(s) == nil
}

// halt ends the node's process. run starts another.
func (n *node) halt() {
	if n.ending != nil {
		n.ending()
		<-n.stopped
	}
}

// stop ends the node for good.
func (n *node) stop() {
	n.halt()
	for _, l := range n.links {
		l.cut()
	}
	if n.wire != nil {
		_ = n.wire.Close()
	}
}

// history is the lives so far, and what was odd about them.
func (n *node) history() (lives []life, odd []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(lives, n.lives...), append(odd, n.odd...)
}

func (n *node) ready(ctx context.Context) bool {
	n.mu.Lock()
	up := n.up
	n.mu.Unlock()
	if !up {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
