package devpg_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/devpg"
)

// TestDownloadRunsPostgreSQL17: the package of npm's registry, for a machine with neither Docker nor a server.
func TestDownloadRunsPostgreSQL17(t *testing.T) {
	t.Parallel()
	s := start(t, devpg.Options{Only: devpg.FromDownload})
	require.Equal(t, 170010, s.Version)
	require.Equal(t, "UTF8", query(t, s.URL, "SHOW server_encoding"))
}
