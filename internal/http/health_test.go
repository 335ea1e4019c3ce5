package http

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestProbesShareAQuestion: those that come while the database is asked wait for its answer.
func TestProbesShareAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		away := errors.New("away")
		answer := make(chan error)
		r := &readiness{ping: func(ctx context.Context) error {
			asked.Add(1)
			_, limited := ctx.Deadline()
			require.True(t, limited)
			return <-answer
		}}
		for round := range int64(2) {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { require.ErrorIs(t, r.ask(), away) })
			}
			synctest.Wait()
			require.Equal(t, round+1, asked.Load())
			answer <- away
			all.Wait()
		}
		go func() { answer <- nil }()
		require.NoError(t, r.ask(), "an answer is for those that waited for it, and no others")
	})
}
