package mutation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  string
		want []change
	}{
		"EachOperand": {
			"SELECT a FROM t WHERE x = $1 AND (y OR z)",
			[]change{
				{"AND x = $1 left out", "SELECT a FROM t WHERE (x = $1 OR true) AND (y OR z)"},
				{"AND y OR z left out", "SELECT a FROM t WHERE x = $1 AND ((y OR z) OR true)"},
				{"OR y left out", "SELECT a FROM t WHERE x = $1 AND ((y AND false) OR z)"},
				{"OR z left out", "SELECT a FROM t WHERE x = $1 AND (y OR (z AND false))"},
			},
		},
		"OnlyCondition": {
			"DELETE FROM t WHERE x = $1",
			[]change{{"WHERE x = $1 left out", "DELETE FROM t WHERE x = $1 OR true"}},
		},
		"Join": {
			"SELECT FROM t JOIN u ON u.id = t.id",
			[]change{{"ON u.id = t.id left out", "SELECT FROM t JOIN u ON u.id = t.id OR true"}},
		},
		"Case": {
			"SELECT CASE WHEN a THEN 1 ELSE 2 END FROM t",
			[]change{{"CASE WHEN a never", "SELECT CASE WHEN a AND false THEN 1 ELSE 2 END FROM t"}},
		},
		"Filter": {
			"SELECT count(*) FILTER (WHERE a) FROM t",
			[]change{{"FILTER a left out", "SELECT count(*) FILTER (WHERE a OR true) FROM t"}},
		},
		"Lock": {
			"SELECT a FROM t FOR UPDATE OF t SKIP LOCKED",
			[]change{
				{"row lock left out", "SELECT a FROM t"},
				{"row lock waits instead of Skip", "SELECT a FROM t FOR UPDATE OF t"},
			},
		},
		"Order": {
			"SELECT a FROM t ORDER BY a, b DESC LIMIT 1",
			[]change{{"ORDER BY a, b reversed", "SELECT a FROM t ORDER BY a DESC, b ASC LIMIT 1"}},
		},
		"Conflict": {
			"INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING",
			[]change{{"ON CONFLICT DO NOTHING left out", "INSERT INTO t VALUES ($1)"}},
		},
		"ConflictUpdate": {
			"INSERT INTO t VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE t.c",
			[]change{
				{"ON CONFLICT DO UPDATE does nothing",
					"INSERT INTO t VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE t.c AND false"},
				{"ON CONFLICT DO UPDATE WHERE t.c left out",
					"INSERT INTO t VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE t.c OR true"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := changes(c.sql)
			require.NoError(t, err)
			require.ElementsMatch(t, c.want, got)
		})
	}
}
