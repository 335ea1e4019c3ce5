package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"example.com/payonce/testkit/process"
)

// canary listens on loopback, as a service inside would, and counts who connects. Nobody has a reason to.
type canary struct {
	port  int
	calls atomic.Int64
}

func startCanary(stage *process.Stage) (*canary, error) {
	c := &canary{}
	v4, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", process.AnyPort)
	if err != nil {
		return nil, err
	}
	c.listen(stage, v4)
	c.port = v4.Addr().(*net.TCPAddr).Port
	// A machine without IPv6 has no such address to be called at.
	if v6, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("[::1]:%d", c.port)); err == nil {
		c.listen(stage, v6)
	}
	return c, nil
}

func (c *canary) listen(stage *process.Stage, l net.Listener) {
	stage.Later(l.Close)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			c.calls.Add(1)
			_ = conn.Close()
		}
	}()
}

func (c *canary) url() string { return fmt.Sprintf("http://127.0.0.1:%d", c.port) }
