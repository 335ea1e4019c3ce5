package postgres_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/dbtest"
)

func dataKeyOf(c byte) string {
	return base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{c}, 31), '!'))
}

func boxOf(t *testing.T, c byte) *sealed.Box {
	t.Helper()
	box, err := sealed.New(dataKeyOf(c))
	require.NoError(t, err)
	return box
}

// TestSealedInSQL: the functions of the schema know a sealed value as the program does.
func TestSealedInSQL(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	a, b := boxOf(t, 'a'), boxOf(t, 'b')
	place := sealed.Place{Table: "t", Column: "c", Owner: "o", ID: "i"}
	seal := func(box *sealed.Box, n int) []byte { return box.Seal(place, bytes.Repeat([]byte("x"), n)) }

	short := append([]byte("\x00PO\x01"), bytes.Repeat([]byte("s"), sealed.Overhead-5)...)
	for name, c := range map[string]struct {
		stored []byte
		by     []byte
		length int
	}{
		"plain":                 {[]byte("{}"), []byte{}, 2},
		"empty":                 {[]byte{}, []byte{}, 0},
		"sealed":                {seal(a, 700), a.SealedBy(), 700},
		"sealed empty":          {seal(a, 0), a.SealedBy(), 0},
		"sealed with another":   {seal(b, 32), b.SealedBy(), 32},
		"shorter than a sealed": {short, []byte{}, len(short)},
	} {
		var by []byte
		var length int
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT sealed_by($1), plain_length($1)", c.stored).Scan(&by, &length))
		require.Equal(t, c.by, by, name)
		require.Equal(t, c.length, length, name)
		require.Equal(t, len(c.by) == 0, sealed.KeyID(c.stored) == nil, name)
	}

	plain := bytes.Repeat([]byte("x"), 32)
	once := seal(a, 32)
	for name, c := range map[string]struct {
		before, after []byte
		only          bool
	}{
		"nothing":                      {plain, plain, true},
		"no value":                     {nil, nil, true},
		"sealed":                       {plain, seal(a, 32), true},
		"sealed anew":                  {once, seal(b, 32), true},
		"the same sealed value":        {once, once, true},
		"with the same key":            {once, seal(a, 32), false},
		"opened":                       {once, plain, false},
		"changed":                      {plain, bytes.Repeat([]byte("y"), 32), false},
		"sealed with more in it":       {plain, seal(a, 33), false},
		"sealed with less in it":       {plain, seal(a, 31), false},
		"sealed anew with more in it":  {once, seal(b, 33), false},
		"dropped":                      {once, nil, false},
		"made up":                      {nil, once, false},
		"something that is not sealed": {plain, short, false},
	} {
		var only bool
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT only_resealed($1, $2)", c.before, c.after).Scan(&only))
		require.Equal(t, c.only, only, name)
	}
}
