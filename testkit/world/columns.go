package world

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
)

// Columns is what every column of every table holds, as text, by "table.column". Bytes are there twice: as text, and in
// hexadecimal.
func (w *World) Columns() map[string]string {
	w.T.Helper()
	ctx := context.Background()
	rows, err := w.DB.Raw().Query(ctx, `SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
		JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'`)
	require.NoError(w.T, err)
	queries := map[string]string{}
	for rows.Next() {
		var table, column, kind string
		require.NoError(w.T, rows.Scan(&table, &column, &kind))
		expression := fmt.Sprintf("%q::text", column)
		if kind == "bytea" {
			expression = fmt.Sprintf(`encode(%q, 'escape') || ' ' || encode(%[1]q, 'hex')`, column)
		}
		queries[table+"."+column] = fmt.Sprintf(`SELECT coalesce(string_agg(%s, E'\n'), '') FROM %q`, expression, table)
	}
	require.NoError(w.T, rows.Err())
	kept := map[string]string{}
	for column, query := range queries {
		var text string
		require.NoError(w.T, w.DB.Raw().QueryRow(ctx, query).Scan(&text), column)
		kept[column] = text
	}
	return kept
}
