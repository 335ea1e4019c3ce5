package chaos

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUntilWaitsForProgress: what becomes less is waited for, and what hangs is late.
func TestUntilWaitsForProgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		done  time.Duration // when nothing is left
		stops time.Duration // when no more becomes less; until then a piece is finished each second
		late  bool
	}{
		"InTime":        {done: 5 * time.Second, stops: time.Hour},
		"BusyMachine":   {done: 30 * time.Second, stops: time.Hour},
		"Hangs":         {done: time.Hour, late: true},
		"HangsInTheEnd": {done: time.Hour, stops: 20 * time.Second, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, progress := time.Now(), newProgress()
				took, late, err := (*world)(nil).until(context.Background(), 10*time.Second, func() (string, error) {
					since := time.Since(began)
					if since >= c.done {
						return "", nil
					}
					progress.left(1000 - int(min(since, c.stops)/time.Second))
					return "one is unfinished", nil
				}, func() (time.Duration, error) { return progress.lasted, nil })
				require.NoError(t, err)
				require.Equal(t, c.late, len(late) > 0, late)
				require.Less(t, took, min(c.done, c.stops)+11*time.Second, "it is said at once that it hangs")
			})
		})
	}
}
