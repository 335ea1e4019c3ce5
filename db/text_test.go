package db_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	require.Empty(t, db.ErrorText(nil))
	require.Equal(t, "no ? text", db.ErrorText(errors.New("no \xff\x00 text")))
	long := db.ErrorText(errors.New(strings.Repeat("ä", 1000)))
	require.Less(t, len(long), 1010)
	require.True(t, utf8.ValidString(long))
}
