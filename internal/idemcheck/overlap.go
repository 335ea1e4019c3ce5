package idemcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	rounds     = 3               // of duplicates
	gateWithin = 2 * time.Second // until all requests of a round have connections; then those go that have one
)

// wire is a connection that knows when its last bytes were sent.
type wire struct {
	net.Conn
	wrote atomic.Int64
	then  atomic.Pointer[func()] // is called once, after the next write
}

func (w *wire) Write(b []byte) (int, error) {
	w.wrote.Store(time.Now().UnixNano()) // before it: the response may come before Write returns
	n, err := w.Conn.Write(b)
	if then := w.then.Swap(nil); then != nil && err == nil {
		(*then)()
	}
	return n, err
}

// wireOf is the connection beneath TLS: that of the API, that of a proxy, both or none.
func wireOf(conn net.Conn) *wire {
	switch c := conn.(type) {
	case *wire:
		return c
	case *tls.Conn:
		return wireOf(c.NetConn())
	}
	panic(fmt.Sprintf("bug: a connection is a %T", conn))
}

// attempt is one of several requests at once.
type attempt struct {
	response        response
	err             error
	wrote, answered atomic.Int64 // when it was sent, and when its response began; 0: not
}

// atOnce sends the intent's request many times. All of them have connections before the first byte is sent.
func (c *client) atOnce(ctx context.Context, in intent) []attempt {
	n := int64(c.profile.Concurrent)
	attempts := make([]attempt, n)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer time.AfterFunc(gateWithin, open).Stop()
	var connected atomic.Int64
	var all sync.WaitGroup
	for i := range attempts {
		a := &attempts[i]
		var conn *wire
		trace := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) {
				conn = wireOf(info.Conn)
				if connected.Add(1) == n {
					open()
				}
				<-gate
			},
			GotFirstResponseByte: func() {
				a.wrote.Store(conn.wrote.Load())
				a.answered.Store(time.Now().UnixNano())
			},
		})
		all.Go(func() { a.response, a.err = c.once(trace, in) })
	}
	all.Wait()
	return attempts
}

// overlapped is how many requests had been sent when the first response began.
func overlapped(attempts []attempt) (n int) {
	var first int64
	for i := range attempts {
		if at := attempts[i].answered.Load(); at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	for i := range attempts {
		if at := attempts[i].wrote.Load(); at != 0 && at < first {
			n++
		}
	}
	return n
}

// inFlight sends duplicates at once, several times. Only a round in which requests overlapped is evidence that it holds.
func inFlight(ctx context.Context, c *client) (string, error) {
	n := c.profile.Concurrent
	seen := map[int]int{}
	var ins []intent
	var overlaps []int
	for range rounds {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		attempts := c.atOnce(ctx, in)
		if err := c.oneResponse(ctx, in, attempts, seen); err != nil {
			var b *broken
			if errors.As(err, &b) { // and what it did matters more than what it said
				if counts, err := c.settled(ctx, len(attempts), []intent{in}); err == nil {
					b.evidence += fmt.Sprintf("; %d effects", counts[0])
				}
			}
			return "", err
		}
		ins, overlaps = append(ins, in), append(overlaps, overlapped(attempts))
	}
	if err := effect(ctx, c, 1, fmt.Sprintf("%d duplicates at once", n), ins...); err != nil {
		return "", err
	}
	if err := enough(overlaps, n); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %d, of which %v were sent before the first response: %s; 1 effect each", rounds, n, overlaps,
		tally(seen)), nil
}

// enough says that nothing was asked where in no round two requests overlapped.
func enough(overlaps []int, n int) error {
	if slices.Max(overlaps) < 2 {
		return &notAsked{fmt.Sprintf("no two of %d requests overlapped in %d rounds: the API responds before the second is sent",
			n, len(overlaps))}
	}
	return nil
}

// oneResponse checks that duplicates were told to wait, or got the response that a retry gets.
func (c *client) oneResponse(ctx context.Context, in intent, attempts []attempt, seen map[int]int) error {
	var first *response
	for i := range attempts {
		r, err := attempts[i].response, attempts[i].err
		if err != nil {
			return err
		}
		seen[r.status]++
		switch {
		case c.succeeded(r) && first == nil:
			first = &r
		case c.succeeded(r) && (r.status != first.status || r.body != first.body):
			return brokenBecause("two duplicates got %s and %s", *first, r)
		case c.succeeded(r) || slices.Contains(c.profile.Status.Pending, r.status):
		case slices.Contains(c.profile.Status.InFlight, r.status):
			if err := c.refused(r, r.status, "a duplicate"); err != nil {
				return err
			}
		default:
			return brokenBecause("a duplicate got %s, expected %v or the first response", r, c.profile.Status.InFlight)
		}
	}
	last, err := c.final(ctx, in)
	switch {
	case err != nil:
		return err
	case first != nil && (last.status != first.status || last.body != first.body):
		return brokenBecause("a duplicate got %s, and a retry %s", *first, last)
	case !c.succeeded(last):
		return brokenBecause("after %d duplicates the intent got %s", len(attempts), last)
	}
	return nil
}

func tally(seen map[int]int) string {
	statuses := make([]int, 0, len(seen))
	for status := range seen {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		parts[i] = fmt.Sprintf("%d ×%d", status, seen[status])
	}
	return strings.Join(parts, ", ")
}

// goneAfter are the times between the last byte of a request and the end of its connection.
var goneAfter = []time.Duration{
	0, 0, 0, time.Millisecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond,
}

// clientGone sends whole requests on connections that it closes before the response, and then retries.
func clientGone(ctx context.Context, c *client) (string, error) {
	var ins []intent
	var retried []response
	left := 0
	for _, after := range goneAfter {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		gone, err := c.abandon(ctx, in, after)
		if err != nil {
			return "", err
		}
		if gone {
			left++
		}
		r, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		if !c.succeeded(r) {
			return "", brokenBecause("after the client had gone, a retry got %s", r)
		}
		ins, retried = append(ins, in), append(retried, r)
	}
	// The abandoned request may still be at work when its retry has its response.
	if err := effect(ctx, c, 1, "a client that had gone, and its retry", ins...); err != nil {
		return "", err
	}
	for i, in := range ins {
		again, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		if again.status != retried[i].status || again.body != retried[i].body {
			return "", brokenBecause("after the client had gone, a retry got %s, and the next %s", retried[i], again)
		}
	}
	if left == 0 {
		return "", &notAsked{"the API responds before a connection can be closed"}
	}
	return fmt.Sprintf("%d of %d requests were sent, and left before the response; all retried; 1 effect each", left, len(ins)), nil
}

// abandon sends the intent's request, and closes its connection some time after the last byte was written. gone: that was
// before the response. An error says that the request was not sent.
func (c *client) abandon(ctx context.Context, in intent, after time.Duration) (gone bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sent atomic.Bool
	var conn *wire
	leave := func() {
		sent.Store(true)
		time.AfterFunc(after, cancel)
	}
	trace := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = wireOf(info.Conn) },
		WroteRequest: func(info httptrace.WroteRequestInfo) { // into a buffer, whose last bytes are written next
			if info.Err == nil {
				conn.then.Store(&leave)
			}
		},
	})
	_, err = c.once(trace, in)
	if err != nil && sent.Load() && ctx.Err() != nil {
		return true, nil
	}
	return false, err
}
