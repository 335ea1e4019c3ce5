package ids_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
)

var kinds = []string{
	ids.Tenant, ids.Order, ids.Payment, ids.Refund,
	ids.Checkout, // part: checkouts
	ids.Action,   // part: operator
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		first, second := ids.New(kind), ids.New(kind)
		require.True(t, ids.Is(kind, first), first)
		require.Equal(t, kind, ids.Kind(first))
		require.NotEqual(t, first, second)
	}
}

// TestIDsSortByTime: an id that was made later sorts later, to the millisecond, and
// between the floors of its time.
func TestIDsSortByTime(t *testing.T) {
	t.Parallel()
	before := time.Now().Add(-time.Millisecond)
	id := ids.New(ids.Payment)
	after := time.Now().Add(time.Millisecond)
	require.Less(t, ids.Payment+ids.Floor(before), id)
	require.Greater(t, ids.Payment+ids.Floor(after), id)
	require.Less(t, ids.Floor(before), ids.Floor(after))
	require.Equal(t, ids.Floor(time.Unix(0, 0)), ids.Floor(time.Unix(-1, 0)), "there is nothing before 1970")
	require.True(t, ids.Is(ids.Payment, ids.Payment+ids.Floor(before)))
}

// TestTimeOfAnID: what is made with an id takes its created_at from it, so both are the same.
func TestTimeOfAnID(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	made := ids.Time(ids.New(ids.Order))
	require.False(t, made.Before(before))
	require.WithinDuration(t, time.Now(), made, time.Minute)
	require.Equal(t, time.UTC, made.Location())
	at := time.Date(2021, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	first, second := ids.At(ids.Payment, at.Add(time.Microsecond)), ids.At(ids.Payment, at)
	require.True(t, ids.Is(ids.Payment, first))
	require.NotEqual(t, first, second)
	require.Equal(t, at, ids.Time(first))
	require.GreaterOrEqual(t, first, ids.Payment+ids.Floor(at))
	require.Less(t, first, ids.Payment+ids.Floor(at.Add(time.Millisecond)))
	for _, none := range []string{"", "pay", "pay_", "pay_0", "pay_%", first[:len(first)-2]} {
		require.Zero(t, ids.Time(none), none)
	}
}

// TestKeyed: the id is the same on every attempt, and another for any other request.
func TestKeyed(t *testing.T) {
	t.Parallel()
	id := ids.Keyed(ids.Refund, "ten_1", "key")
	require.True(t, ids.Is(ids.Refund, id), id)
	require.Equal(t, id, ids.Keyed(ids.Refund, "ten_1", "key"))
	for _, other := range []string{
		ids.Keyed(ids.Refund, "ten_2", "key"), ids.Keyed(ids.Refund, "ten_1", "other"), ids.Keyed(ids.Payment, "ten_1",
			"key"),
	} {
		require.NotEqual(t, strings.TrimPrefix(id, ids.Refund), other[len(ids.Refund):])
	}
	require.Equal(t, "rfd_m0ra0qk83229taa6qrpuc9cc3s", ids.Keyed(ids.Refund, "ten_1", "key"),
		"Stripe has ids of refunds that were made years ago: the rule must never change")
}

func TestIs(t *testing.T) {
	t.Parallel()
	const good = "pay_0123456789abcdefghijklmnop"
	require.True(t, ids.Is(ids.Payment, good))
	for name, bad := range map[string]string{
		"another kind":       "ord_0123456789abcdefghijklmnop",
		"no kind":            "0123456789abcdefghijklmnop",
		"too short":          good[:len(good)-1],
		"too long":           good + "0",
		"an upper-case":      "pay_0123456789Abcdefghijklmnop",
		"after v":            "pay_0123456789wbcdefghijklmnop",
		"before 0":           "pay_0123456789/bcdefghijklmnop",
		"between the ranges": "pay_0123456789:bcdefghijklmnop",
		"before a":           "pay_0123456789`bcdefghijklmnop",
		"nothing":            "",
	} {
		require.False(t, ids.Is(ids.Payment, bad), name)
	}
	require.True(t, ids.Is(ids.Payment, "pay_vvvvvvvvvvvvvvvvvvvvvvvvvv"))
}

func TestKind(t *testing.T) {
	t.Parallel()
	for id, kind := range map[string]string{"pay_1": "pay_", "pay_": "pay_", "pay": "", "": "", "_": "_", "a_b_c": "a_"} {
		require.Equal(t, kind, ids.Kind(id), id)
	}
}

func TestHref(t *testing.T) {
	t.Parallel()
	paths := ids.Paths{ids.Payment: "/v1/payments/"}
	id := ids.New(ids.Payment)
	require.Equal(t, "/v1/payments/"+id, paths.Href(id))
	require.Empty(t, paths.Href(ids.New(ids.Refund)), "the API does not show these")
	require.Empty(t, paths.Href("pay_1"), "it is no id")
	require.Empty(t, paths.Href(""))
}

func TestInstant(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_999_999, time.FixedZone("", 3600))
	shown, err := json.Marshal(ids.Instant(at))
	require.NoError(t, err)
	require.JSONEq(t, `"2026-01-02T02:04:05.006Z"`, string(shown))
	require.Equal(t, "2026-01-02 02:04:05.006 UTC", ids.Instant(at).String())
	require.Nil(t, ids.InstantOf(nil))
	require.Equal(t, ids.Instant(at), *ids.InstantOf(&at))
	now := ids.Now()
	require.Equal(t, time.UTC, now.Location())
	require.Equal(t, now.Truncate(time.Millisecond), now)
}
