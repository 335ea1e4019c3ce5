package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func setup(t *testing.T) *museum {
	t.Helper()
	m, err := open(t.Context(), dbtest.Empty(t), crowdMin)
	require.NoError(t, err)
	t.Cleanup(m.close)
	return m
}

// Every pattern does its damage, and payonce none in the same scenario.
func TestExhibits(t *testing.T) {
	t.Parallel()
	m := setup(t)
	for _, room := range rooms {
		for _, e := range room.exhibits {
			t.Run(e.name, func(t *testing.T) {
				f, err := m.visit(t.Context(), e)
				require.NoError(t, err)
				require.Equal(t, crowdMin, f.wrong[e.shows].n,
					"by barriers, not by luck: everyone is hurt, in every run")
			})
		}
	}
}

// A museum that cannot turn red proves nothing.
func TestVisit(t *testing.T) {
	t.Parallel()
	m := setup(t)

	t.Run("IsRedWithoutDamage", func(t *testing.T) {
		harmless := checkThenWrite
		harmless.scenario = oneByOne
		_, err := m.visit(t.Context(), harmless)
		require.ErrorContains(t, err, `the wrong side shows no "charged twice", but: none`)
	})

	t.Run("IsRedWithoutTheOtherDamage", func(t *testing.T) {
		halved := gatewayInTransaction
		halved.scenario = fullHouse
		_, err := m.visit(t.Context(), halved)
		require.ErrorContains(t, err, `shows no "charged twice"`)
	})

	t.Run("FailsWhenNoCustomerIsAtRisk", func(t *testing.T) {
		elsewhere := *m
		elsewhere.right = func(s *side) shop { return shop{Pay: payonce(s).Pay} } // orders that it does not know
		_, err := elsewhere.visit(t.Context(), checkThenWrite)
		require.ErrorContains(t, err, "the right side is damaged: 6 of 6 could never pay")

		idle := relaySkipLocked
		elsewhere.right = func(s *side) shop {
			nothing := payonce(s)
			nothing.Change = func(context.Context, string, func()) {}
			return nothing
		}
		idle.scenario = brokerAwayAtTheEnd
		idle.shows = eventLost
		idle.wrong = publishAfterCommit.wrong
		_, err = elsewhere.visit(t.Context(), idle)
		require.ErrorContains(t, err, `the right side has no case of "events lost"`)
	})

	t.Run("IsRedWhenTheRightSideIsWrong", func(t *testing.T) {
		for _, room := range rooms {
			e, swapped := room.exhibits[len(room.exhibits)-1], *m
			swapped.payonce, swapped.right = m.wrong, e.wrong
			_, err := swapped.visit(t.Context(), e)
			require.ErrorContains(t, err, e.name+": the right side is damaged: ")
		}
	})

	t.Run("IsRedWhenAStoryCannotBeTold", func(t *testing.T) {
		stuck := checkThenWrite
		stuck.scenario = func(s *side) { s.inTheBackground(func() { s.restart(); panic("lost the thread") })() }
		_, err := m.visit(t.Context(), stuck)
		require.ErrorContains(t, err, "check_then_write, wrong side: the scenario went wrong: ")
	})
}

// What a label says is at the place where it says it is, and each exhibit stands
// in a file of its own, which begins with its scenario.
func TestLabels(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	front, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	seen := map[string]bool{}
	name := regexp.MustCompile(`\w+`)
	for _, room := range rooms {
		require.Contains(t, string(readme), "### "+room.title)
		for _, e := range room.exhibits {
			require.False(t, seen[e.name], "%s stands here twice", e.name)
			seen[e.name] = true
			text, err := os.ReadFile(e.name + ".go")
			require.NoError(t, err)
			for _, part := range []string{"// Who teaches it:", "// Why it fails", "// The cure:",
				`name: "` + e.name + `"`} {
				require.Contains(t, string(text), part, "%s.go", e.name)
			}
			require.Contains(t, string(readme), "| ["+escape(e.pattern)+"]("+e.name+".go) | "+e.taught+" |",
				"README.md is older than the exhibits: make museum")
			require.Contains(t, string(readme), "| "+links(e.cure)+" |")
			for _, n := range regexp.MustCompile(`\d`).FindAllString(e.taught, -1) {
				require.LessOrEqual(t, n, "5")
			}
			cures := strings.FieldsFunc(e.cure,
				func(r rune) bool { return r == ' ' || r == ',' || r == ';' || r == ':' })
			var code string
			for _, word := range cures {
				if strings.Contains(word, "/") {
					b, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(word)))
					require.NoError(t, err, e.name)
					code += string(b)
				}
			}
			for _, word := range cures {
				if name.FindString(word) == word && (strings.ToLower(word) != word || strings.Contains(word, "_")) {
					require.Contains(t, code, word, "%s says that %s is where its cure is", e.name, word)
				}
			}
		}
	}
	require.Contains(t, string(front), fmt.Sprintf("runs %d simpler designs", len(seen)))
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "= exhibit{\n") && !strings.HasSuffix(file, "_test.go") {
			require.True(t, seen[strings.TrimSuffix(file, ".go")], "%s is in no room", file)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	f := finding{exhibit: checkThenWrite}
	f.wrong[chargedTwice], f.wrong[answerChanged], f.right[chargedTwice] = count{12, 12}, count{3, 12}, count{0, 12}

	t.Run("Terminal", func(t *testing.T) {
		var out bytes.Buffer
		heading(&out)
		row(&out, f)
		require.Equal(t, ""+
			"pattern                             taught by        what went wrong                         payonce\n"+
			"----------------------------------  ---------------  --------------------------------------  -------\n"+
			"check, then write                   folklore, [1]    12 of 12 charged twice, 3 of 12 got     0 of 12\n"+
			"                                                     two different answers\n"+
			"  cure: db/queries/payments.sql, PaymentBegin: the insert is the lock\n", out.String())
	})

	t.Run("Markdown", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "README.md")
		require.NoError(t, os.WriteFile(path, []byte("before\n"+tableBegins+"old\n"+tableEnds+"\nafter\n"), 0o600))
		for range 2 {
			require.NoError(t, rewrite(path, []tourOf{{"The key", []finding{f}}}))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "before\n"+tableBegins+"\n### The key\n"))
		require.True(t, strings.HasSuffix(string(text), tableEnds+"\nafter\n"))
		require.NotContains(t, string(text), "old")
		require.Equal(t, 1, strings.Count(string(text),
			"\n| [check, then write](check_then_write.go) | folklore, [1] | 12 of 12 charged twice, 3 of 12 got two "+
				"different answers | 0 of 12 | "+
				"[payments.sql](../../db/queries/payments.sql), PaymentBegin: the insert is the lock |\n"))
	})

	t.Run("NoPlaceForIt", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "README.md")
		require.NoError(t, os.WriteFile(path, []byte("nothing"), 0o600))
		require.ErrorContains(t, rewrite(path, nil), "has no place for the table")
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.ErrorContains(t, run(t.Context(), []string{"-customers", "3"}, &out), "some exhibits need 6")
}
