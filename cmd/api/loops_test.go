package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

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
