package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestLoopsBeginOneAfterAnother: twenty processes that start together would else take all connections of a server. One
// whose first iteration takes long holds up the others for a while only.
func TestLoopsBeginOneAfterAnother(t *testing.T) {
	t.Parallel()
	const loops = 9
	for name, c := range map[string]struct {
		takes  time.Duration // the first iteration of each
		most   int           // first iterations at the same time
		within time.Duration
	}{
		"short ones": {beginWithin / 2, 1, loops * beginWithin / 2},
		"long ones":  {time.Hour, loops, loops * beginWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				var mu sync.Mutex
				var began, running, most int
				count := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					began, running = began+max(0, n), running+n
					most = max(most, running)
				}
				all := make([]loop, loops)
				for i := range all {
					all[i] = loop{name: fmt.Sprint(i), every: time.Hour, runOnce: func(ctx context.Context) (int, error) {
						count(1)
						pause(ctx, c.takes, nil)
						count(-1)
						return 0, nil
					}}
				}
				wait := start(ctx, slog.New(slog.DiscardHandler), newLoopMetrics(prometheus.NewRegistry()), time.Second, all...)
				time.Sleep(c.within)
				synctest.Wait()
				require.Equal(t, loops, began)
				require.Equal(t, c.most, most)
				stop()
				wait()
			})
		})
	}
}

// TestLoopsStop: a process that gets SIGTERM waits for the items that its loops work on,
// and not for longer than its shutdown may take.
func TestLoopsStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patience time.Duration
		finishes bool
	}{
		"when the items are done": {world.Patience, true},
		"when the time is up":     {100 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			began, goOn := make(chan struct{}), make(chan struct{})
			finished := false
			wait := start(
				ctx,
				slog.New(slog.DiscardHandler),
				newLoopMetrics(prometheus.NewRegistry()),
				c.patience,
				loop{
					// Stripe does not answer it.
					name: "completer", every: time.Hour, runOnce: func(context.Context) (int, error) {
						close(began)
						<-goOn
						finished = true
						return 1, nil
					},
				},
			)
			<-began
			stop()
			ended := make(chan struct{})
			go func() {
				wait()
				close(ended)
			}()
			if c.finishes {
				select {
				case <-ended:
					t.Fatal("it did not wait for what is in hand")
				case <-time.After(50 * time.Millisecond):
				}
				close(goOn)
				<-ended
				require.True(t, finished)
				return
			}
			select {
			case <-ended:
			case <-time.After(world.Patience):
				t.Fatal("it waits for longer than it may")
			}
			close(goOn)
		})
	}
}
