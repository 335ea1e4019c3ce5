package dbtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Copy returns the DSN of a database with the rows and sequences that a database of URL or URLWith has at this moment: a
// backup that was restored elsewhere. Both databases may be in use. CREATE DATABASE … TEMPLATE would end all sessions of
// the first one and begin all of the second one cold.
func Copy(t testing.TB, url string) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	from := s.open[url]
	s.mu.Unlock()
	if from == nil {
		t.Fatalf("the database of %s is not one of URL or URLWith", url)
	}
	copied := URLWith(t, from.prepared)
	s.mu.Lock()
	to := s.open[copied]
	s.mu.Unlock()
	if err := s.copyRows(t.Context(), from, to); err != nil {
		t.Fatalf("copy the rows of a database: %v", err)
	}
	return copied
}

// contents lists what a database of the service contains: tables, with the columns that can be written, and the values of
// sequences.
const contents = `
SELECT format('%I (%s)', c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)), '' AS sequence
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
   AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 GROUP BY c.relname
UNION ALL
SELECT '', format('SELECT setval(%L, %s, %L)', format('public.%I', sequencename), coalesce(last_value, start_value),
		last_value IS NOT NULL)
  FROM pg_sequences WHERE schemaname = 'public'`

func (s *server) copyRows(ctx context.Context, from, to *database) error {
	source, releaseSource, err := s.session(ctx, from)
	if err != nil {
		return err
	}
	defer releaseSource()
	target, releaseTarget, err := s.session(ctx, to)
	if err != nil {
		return err
	}
	defer releaseTarget()
	return pgx.BeginTxFunc(ctx, source, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(read pgx.Tx) error {
		return pgx.BeginFunc(ctx, target, func(write pgx.Tx) error { return copyContents(ctx, read, write) })
	})
}

func copyContents(ctx context.Context, read, write pgx.Tx) error {
	rows, err := read.Query(ctx, contents, pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	var tables []string
	script := []string{"SET LOCAL session_replication_role = replica"} // no trigger fires, no reference is checked
	var table, sequence string
	if _, err := pgx.ForEachRow(rows, []any{&table, &sequence}, func() error {
		if sequence != "" {
			script = append(script, sequence)
			return nil
		}
		tables = append(tables, table)
		name, _, _ := strings.Cut(table, " (")
		script = append(script, "DELETE FROM "+name) // what the migrations have written
		return nil
	}); err != nil {
		return err
	}
	if _, err := write.Exec(ctx, strings.Join(script, "; "), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	for _, table := range tables {
		var content bytes.Buffer
		tag, err := read.Conn().PgConn().CopyTo(ctx, &content, "COPY "+table+" TO STDOUT (FORMAT binary)")
		if err == nil && tag.RowsAffected() > 0 {
			_, err = write.Conn().PgConn().CopyFrom(ctx, &content, "COPY "+table+" FROM STDIN (FORMAT binary)")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}
