package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hostileAnswersOfStripe are what comes in the place of the answer to a confirmation, once.
var hostileAnswersOfStripe = []hostileEndpoint{
	{name: "nothing", says: func(c net.Conn) { wait(c) }},
	{name: "a byte at a time", says: func(c net.Conn) { drip(c, ok200+"Content-Length: 9999\r\n\r\n"+megabyte) }},
	{name: "endless headers", says: func(c net.Conn) { forever(c, ok200, "X-A: "+megabyte[:1000]+"\r\n") }},
	{name: "a header without end", says: func(c net.Conn) { forever(c, ok200+"X-A: ", megabyte) }},
	{name: "an endless body", says: func(c net.Conn) { forever(c, ok200+"Content-Type: application/json\r\n\r\n"+`{"id":"`, megabyte) }},
	{name: "endless arrays", says: func(c net.Conn) { forever(c, ok200+"\r\n", deepArrays) }},
	{name: "an endless error", says: func(c net.Conn) { forever(c, "HTTP/1.1 500 No\r\n\r\n"+`{"error":{"message":"`, megabyte) }},
	{name: "a compressed bomb", says: func(c net.Conn) { forever(c, ok200+"Content-Encoding: gzip\r\n\r\n", bomb()) }},
	{name: "no HTTP", says: func(c net.Conn) { forever(c, "\x16\x03\x01\x00", megabyte) }},
	{name: "an end", says: func(net.Conn) {}},
	{name: "a reset", says: func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }},
	{name: "a page", says: func(c net.Conn) { say(c, ok200+"Content-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>") }},
	{name: "an empty object", says: func(c net.Conn) { say(c, ok200+"Content-Length: 2\r\n\r\n{}") }},
	{name: "null", says: func(c net.Conn) { say(c, ok200+"Content-Length: 4\r\n\r\nnull") }},
	{name: "a list", says: func(c net.Conn) { say(c, ok200+"Content-Length: 2\r\n\r\n[]") }},
	{name: "other types", says: func(c net.Conn) { say(c, ok200+"Content-Length: 24\r\n\r\n"+`{"id":1,"status":["ok"]}`) }},
	{name: "a redirect inside"}, // to the canary
}

var deepArrays = strings.Repeat("[", 1<<16)

// upstream stands where Stripe is expected. It answers the first confirmation under a key "hostile-N" with the Nth
// answer; under an odd N it has done before what was asked.
type upstream struct {
	canary string
	target atomic.Pointer[url.URL]
	seen   sync.Map
	sent   atomic.Int64
}

var hostileKey = regexp.MustCompile(`:hostile-(\d+):confirm$`)

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := u.target.Load()
	if target == nil {
		http.Error(w, "not yet", http.StatusBadGateway)
		return
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	key := r.Header.Get("Idempotency-Key")
	which := hostileKey.FindStringSubmatch(key)
	if which == nil {
		proxy.ServeHTTP(w, r)
		return
	}
	if _, again := u.seen.LoadOrStore(key, true); again {
		proxy.ServeHTTP(w, r)
		return
	}
	n, _ := strconv.Atoi(which[1])
	if n%2 == 1 {
		proxy.ServeHTTP(discarded{http.Header{}}, r)
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	u.sent.Add(1)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if says := hostileAnswersOfStripe[n/2].says; says != nil {
		says(conn)
		return
	}
	say(conn, "HTTP/1.1 307 A\r\nLocation: "+u.canary+r.URL.Path+"\r\nContent-Length: 0\r\n\r\n")
}

// discarded is where an answer goes that is not passed on.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d discarded) WriteHeader(int)             {}

// providerMore is the memory that three answers at once may take, of 8 MiB each, and their copies.
const providerMore = 256 << 20

const paidWithin = 90 * time.Second // within a minute where an answer is unknown (docs/guarantees.md)

// hostileProvider: what does not say clearly that a payment was made or refused says nothing.
var hostileProvider = attack{
	name: "hostile answers of Stripe", who: "who stands between us and Stripe, or a fault there",
	tries: fmt.Sprintf("%d answers to a confirmation that never end, are too long, are no JSON, of other types or redirects, with the money moved before and not",
		len(hostileAnswersOfStripe)),
	holds: "201 or 202, and then each order is paid, and charged once; no answer is held whole in memory; Stripe's key follows no redirect",
	run: func(ctx context.Context, s *site) (string, error) {
		u := &upstream{canary: s.canary.url()}
		base, err := s.Listen(u)
		if err != nil {
			return "", err
		}
		return s.another(ctx, s.server, []string{"STRIPE_API_BASE=" + base, "STRIPE_TIMEOUT=3s", "IDEMPOTENCY_LEASE=10s",
			"STRIPE_RPS=0"}, func(s *site) (string, error) {
			target, err := url.Parse(s.stripe)
			if err != nil {
				return "", err
			}
			u.target.Store(target)
			seen, err := s.hostileProvider(ctx)
			if n := u.sent.Load(); err == nil && n != 2*int64(len(hostileAnswersOfStripe)) {
				err = fmt.Errorf("%d hostile answers were sent", n)
			}
			return seen, err
		})
	},
}

func (s *site) hostileProvider(ctx context.Context) (string, error) {
	memory, err := s.api.Sample(ctx, "process_resident_memory_bytes")
	if err != nil {
		return "", err
	}
	calls := s.canary.calls.Load()
	n := 2 * len(hostileAnswersOfStripe)
	orders, failed := make([]string, n), make([]error, n)
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 3)
	for i := range n {
		atOnce <- struct{}{}
		all.Go(func() {
			defer func() { <-atOnce }()
			orders[i], failed[i] = s.payAt(ctx, i)
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return "", err
		}
	}
	after, err := s.api.Sample(ctx, "process_resident_memory_bytes")
	if err != nil {
		return "", err
	}
	more := after - memory
	if more > providerMore {
		return "", didNotHold("the process has %.0f MiB more in memory", more/(1<<20))
	}
	for i, order := range orders {
		if err := s.settledWithin(ctx, paidWithin, "SELECT count(*) FROM orders WHERE status = 'paid' AND id = '"+order+"'"); err != nil {
			return "", fmt.Errorf("after %s: %w", hostileAnswersOfStripe[i/2].name, err)
		}
	}
	if err := s.chargedOnce(ctx, orders); err != nil {
		return "", err
	}
	if s.canary.calls.Load() > calls {
		return "", didNotHold("a redirect was followed")
	}
	return fmt.Sprintf("%d payments, each paid and charged once; %.0f MiB more", n, max(0, more/(1<<20))), nil
}

// payAt pays an order under the key that gets the answer i.
func (s *site) payAt(ctx context.Context, i int) (order string, err error) {
	object, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("order-", i), smallOrder)
	if err != nil {
		return "", err
	}
	order, _ = object["id"].(string)
	a, err := s.victim.send(ctx, "POST", "/v1/payments", fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order),
		map[string][]string{"Idempotency-Key": {fmt.Sprint("hostile-", i)}})
	if err != nil {
		return "", err
	}
	var payment struct{ Status string }
	_ = json.Unmarshal([]byte(a.body), &payment)
	if a.status != http.StatusCreated && (a.status != http.StatusAccepted || payment.Status != "processing") {
		return "", didNotHold("after %s: %d %.300s", hostileAnswersOfStripe[i/2].name, a.status, a.body)
	}
	return order, nil
}
