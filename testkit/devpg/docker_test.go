package devpg

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDockerIsNotForDataThatStays(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Only: FromDocker, Dir: t.TempDir()})
	require.ErrorContains(t, err, "the data is to stay in a folder")
}
