package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// network is the cables between the nodes and what they depend on. Its API
// server is never started: it would end the process when it cannot listen.
type network struct{ server *toxiproxy.ApiServer }

func newNetwork() *network {
	return &network{toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())}
}

// link is one cable, from one node to one thing that it depends on.
type link struct {
	to    string // postgres, broker, stripe
	proxy *toxiproxy.Proxy
}

func (n *network) lay(node, to, upstream string) (*link, error) {
	p := toxiproxy.NewProxy(n.server, node+" to "+to, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("lay the link from %s to %s: %w", node, to, err)
	}
	return &link{to, p}, nil
}

func (l *link) addr() string { return l.proxy.Listen }

// cut pulls the plug: connections end, and new ones are refused.
func (l *link) cut() { l.proxy.Stop() }

// repair puts it back. While it was out another process may have used the port, for a
// moment, as the other end of a connection of his own.
func (l *link) repair(ctx context.Context) error {
	for {
		err := l.proxy.Start()
		if errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return nil
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// clean puts the cable back without anything that was done to it.
func (l *link) clean(ctx context.Context) error {
	l.proxy.Toxics.ResetToxics(ctx)
	return l.repair(ctx)
}

// slow delays what passes, in both directions together by about so much.
func (l *link) slow(by time.Duration) (undo func(), err error) {
	attributes := map[string]int64{"latency": by.Milliseconds() / 2, "jitter": by.Milliseconds() / 8}
	return l.poison("latency", attributes)
}

// swallow drops all data without closing the connection: both ends wait. When it
// is over the connections that were in it end.
func (l *link) swallow() (undo func(), err error) {
	return l.poison("timeout", map[string]int64{"timeout": 0})
}

func (l *link) poison(kind string, attributes map[string]int64) (undo func(), err error) {
	undo = func() {
		for _, direction := range []string{"upstream", "downstream"} {
			_ = l.proxy.Toxics.RemoveToxic(context.Background(), kind+direction) // it may not have come so far
		}
	}
	for _, direction := range []string{"upstream", "downstream"} {
		toxic, err := json.Marshal(map[string]any{"name": kind + direction, "type": kind, "stream": direction,
			"attributes": attributes})
		if err != nil {
			return undo, err
		}
		if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
			return undo, fmt.Errorf("poison %s: %w", l.proxy.Name, err)
		}
	}
	return undo, nil
}
