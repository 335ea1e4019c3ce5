package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/notifier"
	"example.com/payonce/testkit/process"
)

// What becomes of a delivery to a hostile endpoint, after one attempt.
const (
	delivered = "delivered" // it said 2xx: what else it says is not read
	retried   = "pending"   // later, for about three days
	disabled  = "failed"    // it said 410
	hangs     = ""          // an attempt lasts 15 s
)

// hostileEndpoint is one that a tenant of ours may have: what it says on a connection, and what becomes of the delivery.
type hostileEndpoint struct {
	name    string
	says    func(net.Conn)
	becomes string
}

const ok200 = "HTTP/1.1 200 OK\r\n"

var hostileEndpoints = []hostileEndpoint{
	{"never answers", func(c net.Conn) { wait(c) }, hangs},
	{"sends a byte at a time", func(c net.Conn) { drip(c, ok200+"X: "+strings.Repeat("a", 1<<20)) }, hangs},
	{"sends endless early hints", func(c net.Conn) { slowly(c, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n") }, hangs},
	{"sends endless headers", func(c net.Conn) { forever(c, ok200, "X-A: "+strings.Repeat("a", 1000)+"\r\n") }, retried},
	{"sends a header without end", func(c net.Conn) { forever(c, ok200+"X-A: ", strings.Repeat("a", 1<<16)) }, retried},
	{"sends a status line without end", func(c net.Conn) { forever(c, "HTTP/1.1 200 ", strings.Repeat("a", 1<<16)) }, retried},
	{"sends an endless body", func(c net.Conn) { forever(c, ok200+"Content-Length: 99999999999999\r\n\r\n", megabyte) }, delivered},
	{"sends endless chunks", func(c net.Conn) { forever(c, ok200+"Transfer-Encoding: chunked\r\n\r\n", "100000\r\n"+megabyte+"\r\n") }, delivered},
	{"fails with an endless body", func(c net.Conn) { forever(c, "HTTP/1.1 500 No\r\n\r\n", megabyte) }, retried},
	{"sends a compressed bomb", func(c net.Conn) { forever(c, ok200+"Content-Encoding: gzip\r\n\r\n", bomb()) }, delivered},
	{"sends no HTTP", func(c net.Conn) { forever(c, "\x16\x03\x01\x00", megabyte) }, retried},
	{"closes", func(net.Conn) {}, retried},
	{"resets", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }, retried},
	{"redirects to itself", func(c net.Conn) { say(c, "HTTP/1.1 307 A\r\nLocation: /\r\nContent-Length: 0\r\n\r\n") }, retried},
	{"redirects inside", func(c net.Conn) { say(c, "HTTP/1.1 308 A\r\nLocation: CANARY\r\nContent-Length: 0\r\n\r\n") }, retried},
	{"names a length that is none", func(c net.Conn) { say(c, ok200+"Content-Length: -1\r\n\r\n") }, retried},
	{"switches protocols", func(c net.Conn) { say(c, "HTTP/1.1 101 A\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n") }, retried},
	{"is gone", func(c net.Conn) { say(c, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n") }, disabled},
}

var megabyte = strings.Repeat("a", 1<<20)

func bomb() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 100 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	return b.String()
}

func say(c net.Conn, text string) { _, _ = c.Write([]byte(text)) }

func forever(c net.Conn, first, then string) {
	say(c, first)
	for n, err := 0, error(nil); err == nil; n, err = c.Write([]byte(then)) {
		_ = n
	}
}

func slowly(c net.Conn, text string) {
	for err := error(nil); err == nil; _, err = c.Write([]byte(text)) {
		time.Sleep(500 * time.Millisecond)
	}
}

func drip(c net.Conn, text string) {
	for i := 0; i < len(text); i++ {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// wait waits until the other side has closed.
func wait(c net.Conn) {
	for b, err := make([]byte, 1<<10), error(nil); err == nil; _, err = c.Read(b) {
	}
}

// serve listens until the site is struck.
func (s *site) serve(says func(net.Conn)) (url string, err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", process.AnyPort)
	if err != nil {
		return "", err
	}
	s.Later(l.Close)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = c.Read(make([]byte, 1<<10)) // as much of the request as has come
				says(c)
			}()
		}
	}()
	return "http://" + l.Addr().String(), nil
}

const (
	heardMax     = 5 * time.Second // from the answer to a request until its event arrives
	hostileEach  = 10              // events for each hostile endpoint: more than one is told at once
	residentMore = 96 << 20        // bytes that the process may need for all of it
)

// hostileAnswers: a tenant's own deliveries are all that its endpoint can harm.
var hostileAnswers = attack{
	name: "hostile endpoints", who: "a tenant",
	tries: fmt.Sprintf("endpoints that hang, drip, never end, close, redirect, send bombs, are gone: %d kinds and more that hang, %d events each",
		len(hostileEndpoints), hostileEach),
	holds: fmt.Sprintf("another tenant hears of each of its events within %s; "+
		"no answer is held in memory; each delivery is ended or retried as documented; no redirect is followed", heardMax),
	run: func(ctx context.Context, s *site) (string, error) {
		return s.another(ctx, s.server, []string{"NOTIFY_PRIVATE_ADDRESSES=true", "RATE_LIMIT_RPS=0"},
			func(s *site) (string, error) { return s.hostileEndpoints(ctx) })
	},
}

func (s *site) hostileEndpoints(ctx context.Context) (string, error) {
	v, err := s.listener()
	if err != nil {
		return "", err
	}
	if err := notifier.SetEndpoint(ctx, s.pool, s.victim.id, v.url, endpointSecret); err != nil {
		return "", err
	}
	quiet, _, err := s.heard(ctx, v, "quiet")
	if err != nil {
		return "", err
	}
	memory, err := s.api.Sample(ctx, "process_resident_memory_bytes")
	if err != nil {
		return "", err
	}
	canary := s.canary.calls.Load()
	tenants, err := s.hostileTenants(ctx)
	if err != nil {
		return "", err
	}
	median, slowest, err := s.heard(ctx, v, "attacked")
	if err != nil {
		return "", err
	}
	if err := s.asDocumented(ctx, tenants); err != nil {
		return "", err
	}
	after, err := s.api.Sample(ctx, "process_resident_memory_bytes")
	if err != nil {
		return "", err
	}
	ratio := float64(median) / float64(quiet)
	switch more := after - memory; {
	case s.canary.calls.Load() > canary:
		return "", didNotHold("a redirect was followed")
	case more > residentMore:
		return "", didNotHold("the process has %.0f MiB more in memory", more/(1<<20))
	case slowest > heardMax:
		return "", didNotHold("another tenant waits for an event for %s, at the median %.1f times as long", slowest, ratio)
	default:
		return fmt.Sprintf("%d endpoints; another tenant's events arrive after %.1f times as long at the median, at most %s; %.0f MiB more",
			len(tenants), ratio, slowest.Round(time.Millisecond), max(0, more/(1<<20))), nil
	}
}

// hostileTenants makes a tenant for each kind, and more of those that hang.
func (s *site) hostileTenants(ctx context.Context) (kinds map[string]hostileEndpoint, err error) {
	kinds = map[string]hostileEndpoint{}
	endpoints := slices.Concat(hostileEndpoints, slices.Repeat(hostileEndpoints[:1], s.form(8, 60)))
	for i, e := range endpoints {
		says := e.says
		if e.name == "redirects inside" {
			says = func(c net.Conn) {
				say(c, "HTTP/1.1 308 A\r\nLocation: "+s.canary.url()+"\r\nContent-Length: 0\r\n\r\n")
			}
		}
		url, err := s.serve(says)
		if err != nil {
			return nil, err
		}
		t, err := s.tenant(ctx)
		if err != nil {
			return nil, err
		}
		if err := notifier.SetEndpoint(ctx, s.pool, t.id, url, endpointSecret); err != nil {
			return nil, err
		}
		kinds[t.id] = e
		for n := range hostileEach {
			if _, err := t.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("order-", i, "-", n), smallOrder); err != nil {
				return nil, err
			}
		}
	}
	return kinds, nil
}

// listener is an endpoint that answers at once.
type listener struct {
	url string

	mu   sync.Mutex
	told map[string]time.Time // by the subject of the event
}

func (s *site) listener() (*listener, error) {
	l := &listener{told: map[string]time.Time{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told[strings.TrimSuffix(r.Header.Get("webhook-id"), "-1")] = time.Now()
	}))
	s.Later(func() error { server.Close(); return nil })
	l.url = server.URL
	return l, nil
}

func (l *listener) at(subject string) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, told := l.told[subject]
	return at, told
}

// heard is how long the victim waits for the event of an order: the median, and the longest of some.
func (s *site) heard(ctx context.Context, l *listener, when string) (median, longest time.Duration, err error) {
	var took []time.Duration
	for i := range s.form(11, 51) {
		object, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint(when, i), smallOrder)
		if err != nil {
			return 0, 0, didNotHold("a request of the victim: %s", err)
		}
		from, order := time.Now(), object["id"].(string)
		for {
			if at, told := l.at(order); told {
				took = append(took, max(time.Millisecond, at.Sub(from)))
				break
			}
			if time.Since(from) > 4*heardMax {
				return 0, 0, didNotHold("%s, an event has not arrived after %s", when, 4*heardMax)
			}
			time.Sleep(time.Millisecond)
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1], nil
}

// asDocumented waits until a delivery to each hostile endpoint was tried, and compares what became of it.
func (s *site) asDocumented(ctx context.Context, tenants map[string]hostileEndpoint) error {
	for id, e := range tenants {
		if e.becomes == hangs {
			continue
		}
		const tried = `SELECT count(*) FROM webhook_deliveries WHERE tenant_id = '%s' AND attempts > 0
			AND (last_error IS NOT NULL OR ended_at IS NOT NULL) AND status %s '%s'`
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var right, wrong int
			if err := s.pool.Raw().QueryRow(ctx, fmt.Sprintf("SELECT ("+tried+"), ("+tried+")", id, "=", e.becomes, id, "<>", e.becomes)).
				Scan(&right, &wrong); err != nil {
				return err
			}
			if wrong > 0 || time.Now().After(deadline) {
				return didNotHold("an endpoint that %s: of its deliveries %d are %s, %d are not", e.name, right, e.becomes, wrong)
			}
			if right > 0 {
				break
			}
		}
	}
	return nil
}
