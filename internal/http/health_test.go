package http

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// TestQuestionOutlivesItsProbe: one that the database answers late is answered for the next probe, or its connection
// would be lost.
func TestQuestionOutlivesItsProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := &readiness{ping: func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-time.After(2500 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		began := time.Now()
		require.ErrorIs(t, r.ask(), errNoAnswer)
		require.Equal(t, readinessTimeout, time.Since(began))
		time.Sleep(time.Second)
		require.NoError(t, r.ask())
		require.EqualValues(t, 1, asked.Load())
	})
}

// TestProbesAreSlowedDownAndNotRefused, however many there are.
func TestProbesAreSlowedDownAndNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{networks: newNetworks(), admission: newAdmission(admissionLimits(1, 2))}
		probe := s.probed(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		began := time.Now()
		var all sync.WaitGroup
		var soon atomic.Int64
		for range 3 * queueMax {
			all.Go(func() {
				r := httptest.NewRequest("GET", "/readyz", nil)
				ctx, visit := visited(r.Context())
				w := httptest.NewRecorder()
				probe(&statusWriter{ResponseWriter: w, visit: visit}, r.WithContext(ctx))
				if require.Equal(t, http.StatusNoContent, w.Code); time.Since(began) < probeDelay/2 {
					soon.Add(1)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, time.Since(began), probeDelay)
		require.Less(t, soon.Load(), int64(3*queueMax), "those that may wait are slowed down")
	})
}
