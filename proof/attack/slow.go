package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	slowConnections = 300
	quietRequests   = 60
	slowerMax       = 10 // I30: a tenant's median is never more than ten times slower because of others
)

// slowClients hold connections open and hardly send anything.
var slowClients = attack{
	name: "slow clients", who: "anybody",
	tries: fmt.Sprintf("%d connections that send a header, or a body, a byte at a time", slowConnections),
	holds: "the victim's median is at most ten times what it is without them, and each of its requests is answered",
	run: func(ctx context.Context, s *site) (string, error) {
		quiet, err := s.median(ctx)
		if err != nil {
			return "", err
		}
		host := strings.TrimPrefix(s.api.URL, "http://")
		var open []net.Conn
		defer func() {
			for _, c := range open {
				_ = c.Close()
			}
		}()
		for i := range slowConnections {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				return "", err
			}
			open = append(open, c)
			begin := "POST /v1/orders HTTP/1.1\r\nHost: a\r\nX-Slow: "
			if i%2 == 0 {
				begin = "POST /v1/webhooks/stripe HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"
			}
			if _, err := c.Write([]byte(begin)); err != nil {
				return "", err
			}
		}
		stop := make(chan struct{})
		go func() {
			for {
				for _, c := range open {
					_, _ = c.Write([]byte("x"))
				}
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		}()
		slow, err := s.median(ctx)
		close(stop)
		if err != nil {
			return "", err
		}
		ratio := float64(slow) / float64(quiet)
		if ratio > slowerMax {
			return "", didNotHold("the victim's median is %.1f times as long", ratio)
		}
		return fmt.Sprintf("the victim's median is %.1f times as long, of %d requests none failed", ratio, quietRequests), nil
	},
}

// median is how long the victim waits for a new order.
func (s *site) median(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for i := range quietRequests {
		began := time.Now()
		if _, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprintf("median-%d-%d", i, began.UnixNano()),
			`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`); err != nil {
			return 0, didNotHold("a request of the victim: %s", err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
