package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// TestPage: the page shows these scopes and rules.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read(Page)
	require.NoError(t, err)
	shown, err := Rows(page)
	require.NoError(t, err)
	want := []string{"| scope | what is asked for | bounds |"}
	for _, s := range Scopes {
		want = append(want, s.row())
	}
	want = append(want, "| left out | rule | breaks |")
	for _, r := range Rules {
		want = append(want, r.row())
	}
	require.Equal(t, want, shown, "%s shows other scopes or rules: go run -C proof ./protocol -write", Page)
}

func TestWrite(t *testing.T) {
	t.Parallel()
	page := "before\n" + pageBegin + pageEnd + "after\n"
	results, without := make([]Result, len(Scopes)), make([]Result, len(Rules))
	for i := range results {
		results[i] = Result{States: 1234567, Transitions: 2000, Histories: 1.25e9, Depth: 7, Complete: true}
	}
	for i := range without {
		without[i] = Result{Broken: Rules[i].Breaks, Depth: 3}
	}
	written, err := Write(page, results, without)
	require.NoError(t, err)
	require.Contains(t, written, Scopes[0].row()+" 1 234 567 | 2 000 | 1.2 · 10^9 | 7 steps |\n")
	require.Contains(t, written, Rules[0].row()+" 3 steps |\n")
	require.True(t, strings.HasSuffix(written, pageEnd+"after\n"))
	again, err := Write(written, results, without)
	require.NoError(t, err)
	require.Equal(t, written, again)

	results[0].Complete = false
	_, err = Write(page, results, without)
	require.Error(t, err, "only what was explored to its end is written")
	results[0].Complete, without[0].Broken = true, 0
	_, err = Write(page, results, without)
	require.Error(t, err, "a rule that is not missed is not written")
	_, err = Write("a page without a place", results, without)
	require.ErrorIs(t, err, errNoPlace)
}
