package deploy_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/prometheus"
	"example.com/payonce/testkit/process"
)

// findPrometheus fails the test in CI if there is no Prometheus to start;
// elsewhere it says so and skips.
func findPrometheus(t *testing.T) {
	t.Helper()
	if err := prometheus.Installed(); err != nil {
		require.Empty(t, os.Getenv("CI"), err)
		t.Skip("SKIPPED: " + err.Error() + ", so no rule and no dashboard has met a real one")
	}
}

// startPrometheus scrapes the targets.
func startPrometheus(t *testing.T, targets ...string) *prometheus.Prometheus {
	t.Helper()
	dir := t.TempDir()
	group, err := process.NewGroup(dir)
	require.NoError(t, err)
	t.Cleanup(group.Dismiss)
	log, err := process.NewLog("payonce-observe-*.log")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, log.Close(t.Failed()))
		if t.Failed() {
			t.Log("what Prometheus logged is in " + log.Name)
		}
	})
	p, err := prometheus.Start(t.Context(), prometheus.Options{Dir: dir, Group: group, Log: log, Targets: targets})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}
