package sealed_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/sealed"
)

// keyOf is a key of the form of DATA_KEY; c is any character.
func keyOf(c byte) string {
	return base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{c}, 31), '!'))
}

func boxOf(t *testing.T, text string) *sealed.Box {
	t.Helper()
	b, err := sealed.New(text)
	require.NoError(t, err)
	return b
}

var place = sealed.Place{Table: "idempotency_keys", Column: "answer_body", Owner: "ten_1", ID: "key 1"}

func TestSeal(t *testing.T) {
	t.Parallel()
	box := boxOf(t, keyOf('a'))
	for _, value := range []string{"", "{}", `{"id":"pay_1"}`, strings.Repeat("x", 1<<20)} {
		stored := box.Seal(place, []byte(value))
		require.Len(t, stored, len(value)+sealed.Overhead)
		opened, err := box.Open(place, stored)
		require.NoError(t, err)
		require.NotNil(t, opened)
		require.Equal(t, value, string(opened))
	}
	secret := []byte("the customer's own words")
	require.NotContains(t, string(box.Seal(place, secret)), string(secret[:4]))
	require.NotEqual(t, box.Seal(place, secret), box.Seal(place, secret), "the nonce must be new for each value")
	require.Nil(t, box.Seal(place, nil), "no value stays none")
	opened, err := box.Open(place, nil)
	require.NoError(t, err)
	require.Nil(t, opened)
}

// TestOpenRefusesWhatWasChanged changes each bit of a sealed value. None may open, and none may pass for a value that is
// not sealed but one whose mark was changed: that is what a plain value is.
func TestOpenRefusesWhatWasChanged(t *testing.T) {
	t.Parallel()
	box := boxOf(t, keyOf('a'))
	stored := box.Seal(place, []byte("value"))
	for i := range len(stored) * 8 {
		changed := bytes.Clone(stored)
		changed[i/8] ^= 1 << (i % 8)
		opened, err := box.Open(place, changed)
		var missing *sealed.MissingKeyError
		switch {
		case i/8 < 4:
			require.NoError(t, err)
			require.Equal(t, changed, opened)
		case i/8 < 4+sealed.KeyIDSize:
			require.ErrorAs(t, err, &missing)
		default:
			require.ErrorIs(t, err, sealed.ErrChanged)
			require.Nil(t, opened)
		}
	}
	for _, n := range []int{1, 16} { // cut off at the end
		_, err := box.Open(place, box.Seal(place, bytes.Repeat([]byte("v"), 16))[:sealed.Overhead+16-n])
		require.ErrorIs(t, err, sealed.ErrChanged)
	}
}

func TestOpenRefusesAnotherPlace(t *testing.T) {
	t.Parallel()
	box := boxOf(t, keyOf('a'))
	stored := box.Seal(place, []byte("value"))
	for name, other := range map[string]sealed.Place{
		"table":  {Table: "tenants", Column: place.Column, Owner: place.Owner, ID: place.ID},
		"column": {Table: place.Table, Column: "request", Owner: place.Owner, ID: place.ID},
		"owner":  {Table: place.Table, Column: place.Column, Owner: "ten_2", ID: place.ID},
		"id":     {Table: place.Table, Column: place.Column, Owner: place.Owner, ID: "key 2"},
		// The same letters, divided otherwise.
		"limits": {Table: place.Table, Column: place.Column, Owner: place.Owner + "k", ID: "ey 1"},
	} {
		_, err := box.Open(other, stored)
		require.ErrorIs(t, err, sealed.ErrChanged, name)
	}
}

func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	a, b := keyOf('a'), keyOf('b')
	old := boxOf(t, a)
	stored := old.Seal(place, []byte("value"))

	for _, text := range []string{a + "," + b, b + "," + a, "none, " + a, a + " "} {
		opened, err := boxOf(t, text).Open(place, stored)
		require.NoError(t, err)
		require.Equal(t, "value", string(opened))
	}
	both := boxOf(t, b+","+a)
	anew := both.Seal(place, []byte("value"))
	require.Equal(t, both.SealedBy(), sealed.KeyID(anew), "the first key seals")
	require.NotEqual(t, sealed.KeyID(stored), sealed.KeyID(anew))
	require.Len(t, anew, len(stored))

	_, err := old.Open(place, anew)
	var missing *sealed.MissingKeyError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, both.KeyIDs()[0], missing.KeyID)
	require.Contains(t, err.Error(), "DATA_KEY")
	require.Contains(t, err.Error(), missing.KeyID)
	require.NotContains(t, err.Error(), place.ID, "the id may be a client's key")
}

func TestWithoutKey(t *testing.T) {
	t.Parallel()
	var none *sealed.Box
	stored := boxOf(t, keyOf('a')).Seal(place, []byte("value"))
	for name, box := range map[string]*sealed.Box{
		"no box": none, "empty": boxOf(t, " "), "none": boxOf(t, "none,"+keyOf('b')),
	} {
		require.False(t, box.Seals(), name)
		require.Nil(t, box.SealedBy(), name)
		require.Equal(t, "value", string(box.Seal(place, []byte("value"))), name)
		opened, err := box.Open(place, []byte("value"))
		require.NoError(t, err, name)
		require.Equal(t, "value", string(opened), name)
		_, err = box.Open(place, stored)
		var missing *sealed.MissingKeyError
		require.ErrorAs(t, err, &missing, "%s: a sealed value must never pass for a plain one", name)
	}
	require.Empty(t, none.KeyIDs())
}

// TestShortValuesAreNotSealed: a secret of 24 to 64 random bytes may begin with any bytes.
func TestShortValuesAreNotSealed(t *testing.T) {
	t.Parallel()
	begins := "\x00PO\x01"
	short := append([]byte(begins), bytes.Repeat([]byte("s"), sealed.Overhead-len(begins)-1)...)
	require.Nil(t, sealed.KeyID(short))
	opened, err := boxOf(t, keyOf('a')).Open(place, short)
	require.NoError(t, err)
	require.Equal(t, short, opened)
	require.Equal(t, []byte("ssss"), sealed.KeyID(append(short, 's')))
}

func TestNew(t *testing.T) {
	t.Parallel()
	a, b := keyOf('a'), keyOf('b')
	for text, wrong := range map[string]string{
		"secret":                      "number 1: it is not base64",
		a + ",":                       "number 2: it is empty",
		"," + a:                       "number 1: it is empty",
		a + "," + b[:40]:              "number 2: it has 30 bytes",
		a + "," + a:                   "has a key twice: number 2",
		"none":                        "has no key after none",
		a + ",none":                   "number 2: it has 3 bytes",
		"none,none":                   "number 2: it has 3 bytes",
		strings.Repeat("A", 43) + "=": "all its bytes are the same",
		strings.TrimRight(a, "="):     "number 1: it is not base64",
	} {
		_, err := sealed.New(text)
		require.ErrorContains(t, err, wrong, text)
		for part := range strings.SplitSeq(text, ",") {
			if len(part) > 8 {
				require.NotContains(t, err.Error(), part[:8], "the error shows a key")
			}
		}
	}
	box := boxOf(t, " "+a+" , "+b+" ")
	require.True(t, box.Seals())
	require.Len(t, box.KeyIDs(), 2)
	require.Len(t, box.KeyIDs()[0], 2*sealed.KeyIDSize)
	require.NotContains(t, strings.Join(box.KeyIDs(), " "), a[:8])
	require.Equal(t, box.KeyIDs()[0], boxOf(t, a).KeyIDs()[0], "an id depends on its key alone")
}

func BenchmarkSealAndOpen(b *testing.B) {
	box, err := sealed.New(keyOf('a'))
	require.NoError(b, err)
	value := bytes.Repeat([]byte("x"), 700)
	stored := box.Seal(place, value)
	b.Run("Seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = box.Seal(place, value)
		}
	})
	b.Run("Open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := box.Open(place, stored); err != nil {
				b.Fatal(errors.Unwrap(err))
			}
		}
	})
}
