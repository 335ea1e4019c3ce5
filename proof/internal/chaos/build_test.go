package chaos

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is as right as ours would make the run's processes an hour apart
// in name only.
func TestBuildMovesTheClockAndNotTheTimers(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "clock")
	require.NoError(t, build(t.Context(), ".", program, "./testdata/clock"))
	for text, offset := range map[string]time.Duration{"": 0, "-1h": -time.Hour, "1h": time.Hour} {
		cmd := exec.Command(program)
		cmd.Env = []string{ClockOffset + "=" + text}
		out, err := cmd.Output()
		require.NoError(t, err)
		var at, slept int64
		_, err = fmt.Sscan(string(out), &at, &slept)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(offset), time.Unix(at, 0), 5*time.Second, text)
		require.GreaterOrEqual(t, slept, int64(100))
		require.Less(t, slept, int64(10_000), "a timer of the process with %s", text)
	}
}
