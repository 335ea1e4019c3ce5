package pgproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is one way to a server. Its methods may be called from anywhere.
type Proxy struct {
	url      *url.URL
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	away     bool
	links    map[*link]struct{}
	cuts     []*Cut
	rewrites []*Rewriting
	seen     []string
	trips    int
	pooling  *Pooling
	dropped  bool
}

// Start listens on a free port of this machine for the server of a DSN.
func Start(dsn string) (*Proxy, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return nil, errors.New("pgproxy: not a postgres:// URL")
	}
	upstream := u.Host
	if u.Port() == "" {
		upstream = net.JoinHostPort(u.Hostname(), "5432")
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u.Host = l.Addr().String()
	p := &Proxy{url: u, upstream: upstream, listener: l, links: map[*link]struct{}{}}
	p.serving.Go(p.accept)
	return p, nil
}

// URL is the DSN that leads through the proxy.
func (p *Proxy) URL() string { return p.url.String() }

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.drop()
	p.serving.Wait()
	return err
}

// Forget makes the proxy what Start returned, for another test. Connections stay, unless statements were rewritten or the
// proxy was a pooler: connections would remember that. It reports whether all connections were cut at once since Start or
// Forget, among them connections that a pool believes to be idle.
func (p *Proxy) Forget() (dropped bool) {
	p.mu.Lock()
	remembered := p.pooling != nil || len(p.rewrites) > 0
	dropped = p.dropped || remembered
	p.away, p.pooling, p.cuts, p.rewrites, p.seen, p.trips = false, nil, nil, nil, nil, 0
	p.mu.Unlock()
	if remembered {
		p.drop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = false
	return dropped
}

// Away cuts every connection and refuses new ones, until it is called with false.
func (p *Proxy) Away(away bool) {
	p.mu.Lock()
	p.away = away
	p.mu.Unlock()
	if away {
		p.drop()
	}
}

func (p *Proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = true
	for l := range p.links {
		l.cut()
	}
}

// Pooling is how a connection pooler differs from the server, for who connects.
type Pooling struct {
	Drops   []string // settings of a new connection that it keeps to itself
	Refuses string   // one for which it turns a client away; empty: none
}

// Pool makes the proxy look like a pooler to those who connect from now on: they
// are given a process number that is not their session's. A session each they
// have all the same.
func (p *Proxy) Pool(as Pooling) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pooling = &as
}

func (p *Proxy) pools() *Pooling {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pooling
}

// Rewriting is a change of statements on their way.
type Rewriting struct {
	statement string
	part      *regexp.Regexp
	with      string
	happened  atomic.Int64
}

// Rewrite replaces a part, a regular expression, of each statement that holds
// the text and is prepared from now on.
func (p *Proxy) Rewrite(statement, part, with string) *Rewriting {
	r := &Rewriting{statement: statement, part: regexp.MustCompile(part), with: with}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrites = append(p.rewrites, r)
	return r
}

// Happened counts the parts replaced: a test that changed nothing proves nothing.
func (r *Rewriting) Happened() int { return int(r.happened.Load()) }

// Cut is a connection that will be cut, once.
type Cut struct {
	text   string
	commit bool // cut the COMMIT of the transaction that holds the statement
	after  bool
	fired  chan struct{}

	release chan struct{} // not nil: the answer is held until it is closed
	fails   bool          // no cut: the server raises an error instead of executing the statement
	skip    int           // how many such statements pass before
	least   int           // rows that a statement must have to set it off
	rows    atomic.Int64  // of the statement that has set it off
}

// Before cuts the connection instead of passing on the next statement that
// holds the text.
func (p *Proxy) Before(text string) *Cut { return p.arm(&Cut{text: text}) }

// After passes the next such statement on, waits until the server is done with
// it, and cuts the connection instead of passing on the answer.
func (p *Proxy) After(text string) *Cut { return p.arm(&Cut{text: text, after: true}) }

// BeforeBatch is Before for the next such statement over arrays of so many rows, or more. The statement's own commit is
// lost with it: it is executed outside of a transaction.
func (p *Proxy) BeforeBatch(text string, rows int) *Cut { return p.arm(&Cut{text: text, least: rows}) }

// AfterBatch is After for such a statement.
func (p *Proxy) AfterBatch(text string, rows int) *Cut {
	return p.arm(&Cut{text: text, after: true, least: rows})
}

// BeforeCommit and AfterCommit do so to the COMMIT of the next transaction that
// holds such a statement.
func (p *Proxy) BeforeCommit(text string) *Cut { return p.arm(&Cut{text: text, commit: true}) }

// AfterCommit is what BeforeCommit says.
func (p *Proxy) AfterCommit(text string) *Cut {
	return p.arm(&Cut{text: text, commit: true, after: true})
}

// Hold passes the next such statement on and keeps the answer, once the server is
// done with it, until release is closed. Close it before the proxy is closed.
func (p *Proxy) Hold(text string, release chan struct{}) *Cut {
	return p.arm(&Cut{text: text, after: true, release: release})
}

// HoldCommit is Hold for the COMMIT of the next transaction that holds such a statement.
func (p *Proxy) HoldCommit(text string, release chan struct{}) *Cut {
	return p.arm(&Cut{text: text, commit: true, after: true, release: release})
}

// FailureCode is the SQLSTATE of the errors that Fail has the server raise. To the program it is an error of no known
// kind: neither a refusal of what was written nor a server that is away.
const FailureCode = "XXINJ"

// FailureText is the message of the error that Fail has raised for a statement.
func FailureText(text string) string { return "injected failure of " + strings.TrimSpace(text) }

// Fail has the server raise an error instead of executing the nth such statement from now on, counted from 1. The
// connection stays; a transaction that is open is aborted, as by any error.
func (p *Proxy) Fail(text string, nth int) *Cut {
	return p.arm(&Cut{text: text, fails: true, skip: nth - 1})
}

func (p *Proxy) arm(c *Cut) *Cut {
	c.fired = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c
}

// Disarm calls a cut off and reports whether that was in time: one that has been
// set off cannot be.
func (p *Proxy) Disarm(c *Cut) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, armed := range p.cuts {
		if armed == c {
			p.cuts = append(p.cuts[:i:i], p.cuts[i+1:]...)
			return true
		}
	}
	return false
}

// Fired is closed when the connection has been cut, or the answer is held.
func (c *Cut) Fired() <-chan struct{} { return c.fired }

// Await waits until the cut has fired. It fails the test after a minute in which no statement set the cut off.
func (c *Cut) Await(t interface {
	Helper()
	Fatalf(format string, args ...any)
}) {
	t.Helper()
	select {
	case <-c.fired:
	case <-time.After(time.Minute):
		t.Fatalf("no statement with %q was sent in a minute", c.text)
	}
}

// HasFired reports whether it has: a test whose fault never happened proves nothing.
func (c *Cut) HasFired() bool {
	select {
	case <-c.fired:
		return true
	default:
		return false
	}
}

// Rows is how many rows the statement had that has set the cut off: the length of the array that is its first
// parameter. It is 1 if that is no array, and 0 before it has fired.
func (c *Cut) Rows() int { return int(c.rows.Load()) }

// Seen returns the statements that were executed since it was last asked, each
// as it was sent.
func (p *Proxy) Seen() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, p.seen = p.seen, nil
	return list
}

// RoundTrips counts how often a client that is connected has waited for the server since it was last asked: for a
// statement, for its preparation on a new connection, for a COMMIT.
func (p *Proxy) RoundTrips() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, p.trips = p.trips, 0
	return n
}

func (p *Proxy) tripped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
}

// take returns the cut that a statement of so many rows sets off, and disarms it.
func (p *Proxy) take(statement string, rows int, isCommit bool, inTransaction []string) *Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, statement)
	for i, c := range p.cuts {
		hit := !c.commit && rows >= c.least && strings.Contains(statement, c.text)
		if c.commit && isCommit {
			for _, s := range inTransaction {
				hit = hit || strings.Contains(s, c.text)
			}
		}
		if hit && c.skip > 0 {
			c.skip--
			continue
		}
		if hit {
			c.rows.Store(int64(rows))
			p.cuts = append(p.cuts[:i:i], p.cuts[i+1:]...)
			return c
		}
	}
	return nil
}

func (p *Proxy) rewritten(statement string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rewrites {
		if strings.Contains(statement, r.statement) {
			r.happened.Add(int64(len(r.part.FindAllString(statement, -1))))
			statement = r.part.ReplaceAllString(statement, r.with)
		}
	}
	return statement
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{proxy: p, client: client, pooling: p.pools(), statements: map[string]string{}}
	defer l.cut()
	p.mu.Lock()
	refuse := p.closed || p.away
	if !refuse {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if refuse {
		return
	}
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	dead := l.dead
	l.mu.Unlock()
	if dead {
		_ = server.Close()
		return
	}
	if err := l.startup(); err != nil {
		return
	}
	var answers sync.WaitGroup
	answers.Go(l.passAnswers)
	l.passRequests()
	l.cut()
	answers.Wait()
}

const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
	messageMax    = 64 << 20
)

func unreadable(what string) error { return fmt.Errorf("pgproxy: %s", what) }

var errTooLong = unreadable("a message of impossible length")

func readFull(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
