package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	require.Empty(t, postgres.ErrorText(nil))
	require.Equal(t, "no ? text", postgres.ErrorText(errors.New("no \xff\x00 text")))
	long := postgres.ErrorText(errors.New(strings.Repeat("ä", 1000)))
	require.Less(t, len(long), 1010)
	require.True(t, utf8.ValidString(long))
}
