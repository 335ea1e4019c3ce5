package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

const slowConnections = 300

// slowClients hold connections open and hardly send anything.
var slowClients = attack{
	name: "slow clients", who: "anybody",
	tries: fmt.Sprintf("%d connections that send a header, or a body, a byte at a time", slowConnections),
	holds: doesNotSlow,
	run: func(ctx context.Context, s *site) (string, error) {
		return s.amid(ctx, 0, func() (func() error, error) { return holdOpen(ctx, strings.TrimPrefix(s.api.URL, "http://")) })
	},
}

// holdOpen opens the connections, and returns what closes them.
func holdOpen(ctx context.Context, addr string) (end func() error, err error) {
	var open []net.Conn
	stop, stopped := make(chan struct{}), make(chan struct{})
	for i := range slowConnections {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		open = append(open, c)
		begin := "POST /v1/orders HTTP/1.1\r\nHost: a\r\nX-Slow: "
		if i%2 == 0 {
			begin = "POST /v1/webhooks/stripe HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"
		}
		if _, err := c.Write([]byte(begin)); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(stopped)
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
	return func() error {
		close(stop)
		<-stopped
		for _, c := range open {
			_ = c.Close()
		}
		return nil
	}, nil
}
