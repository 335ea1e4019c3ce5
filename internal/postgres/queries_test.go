package postgres_test

import (
	"bytes" // part: webhooks
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// The tests TestQueriesOf are truth tables of the queries: rows that differ in what a query distinguishes, and for each
// query the rows that it returns, changes, inserts, deletes and locks. A row that is not in a case's want is a near
// miss: it fails one condition of the query, and shows that the condition is there.
//
// Every row has a twin: the same primary key under another tenant, with the other columns of the row after it. So a
// query that forgets the tenant returns or changes a row too many. The twin's name is the beginning of the tenant's, so
// that even a Stripe key, which begins with its tenant, can belong to either.
const (
	tenant = "acme:eu"
	twin   = "acme"
)

const tenants = `
	tenants
	  id       name
	  acme     Twin
	  acme:eu  Tenant

`

// q names the queries: q.KeyLookup.
type q = *db.Queries

// start is what the times of the rows count from. They differ by hours from what decides, so that the tables hold on a
// slow machine.
var start = time.Now().Truncate(time.Second)

// at is a time of a row: at("-2h").
func at(offset string) time.Time {
	d, err := time.ParseDuration(offset)
	if err != nil {
		panic(err)
	}
	return start.Add(d).UTC()
}

// somebody is the claim token of the claim that a case makes.
var somebody = uuid.MustParse("00000000-0000-4000-8000-00000000000b")

// ptr is a parameter that may be null.
func ptr[T any](v T) *T { return &v }

// but is parameters with a change.
func but[T any](params T, change func(p *T)) T {
	change(&params)
	return params
}

// joined is the parameters of a statement over arrays: the rows of both. The compiler does not see that what they point
// to lives on in both, and would reuse its place on the stack; so it is kept.
func joined[T any](a, b T) (both T) {
	kept.Store(ptr[any]([]T{a, b}))
	for i := range reflect.TypeFor[T]().NumField() {
		reflect.ValueOf(&both).Elem().Field(i).Set(
			reflect.AppendSlice(reflect.ValueOf(a).Field(i), reflect.ValueOf(b).Field(i)))
	}
	return both
}

var kept atomic.Pointer[any]

// split is a name and a number: "leased/7".
func split(of string) (name string, number int64) {
	name, digits, _ := strings.Cut(of, "/")
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic(err)
	}
	return name, number
}

// queryCase is one row of a truth table.
type queryCase struct {
	rule  string
	query any // q.KeyLookup
	// with is the query's parameter: a struct of parameters, or a single one; with each it is a function that returns
	// it for a name.
	with any
	each string // names, with blanks between them, for each of which the query runs

	first  string // SQL that runs before, in the same transaction; $name is the name of each
	given  string // rows of this case alone, as text (see rows)
	locked string // a row that another process has locked: "payments/succeeded"
	// meanwhile is SQL of another process, which commits while the query waits for it. Such a case is the last of its
	// table.
	meanwhile string

	show string // fields to show of wide rows, beside those that identify them
	any  bool   // the query does not say in which order it returns the rows

	// want has one line per row that is returned (row), changed (changes), inserted (inserts), deleted (deletes), or
	// locked and not changed (locks). A line with a deeper indentation continues the line above. A time is written from
	// the start of the test (-1h) or from the query (now, now+1m).
	want string
}

// checkQueries runs each case in a transaction that is rolled back.
func checkQueries(t *testing.T, given string, cases []queryCase) {
	t.Helper()
	newScene(t, given).check(t, cases)
}

func (s *scene) check(t *testing.T, cases []queryCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(queryName(c.query)+"/"+c.rule, func(t *testing.T) {
			got, want := s.outcome(t, c), statements(c.want)
			if !slices.Equal(got, want) {
				t.Errorf("is:\n%s\nwant:\n%s", paragraphs(got), paragraphs(want))
			}
		})
	}
}

func queryName(query any) string {
	name := runtime.FuncForPC(reflect.ValueOf(query).Pointer()).Name()
	return name[strings.LastIndex(name, ".")+1:]
}

// scene is a database with the rows of a truth table.
type scene struct {
	conn    *pgx.Conn // runs the queries
	other   *pgx.Conn // another process
	keys    map[string][]string
	columns map[string]bool // of any table
	inspect string
	base    snapshot
}

// snapshot is what a table has, by the names of its rows.
type snapshot map[string]map[string]map[string]any

// newScene makes the database.
func newScene(t *testing.T, given string) *scene {
	t.Helper()
	ctx := t.Context()
	url := dbtest.URL(t)
	s := &scene{conn: connect(t, url), other: connect(t, url), keys: map[string][]string{}, columns: map[string]bool{}}
	rows, err := s.conn.Query(ctx, `
		SELECT c.relname, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY k(n, o)
				JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.n ORDER BY k.o),
			ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
		FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'goose%' ORDER BY c.relname`)
	require.NoError(t, err)
	var table string
	var key, columns []string
	var parts []string
	_, err = pgx.ForEachRow(rows, []any{&table, &key, &columns}, func() error {
		s.keys[table] = key
		for _, c := range columns {
			s.columns[goName(c)] = true
		}
		// listed_status repeats the status.
		const own = "pg_current_xact_id_if_assigned()::xid"
		name := rowName(key)
		parts = append(parts, fmt.Sprintf(`SELECT '%s' AS name, clock_timestamp() AS now,
			coalesce(array_agg(%[2]s), '{}') AS keys,
			coalesce(array_agg(%[2]s ORDER BY ctid) FILTER (WHERE xmin = %[3]s), '{}') AS changed,
			coalesce(jsonb_agg(to_jsonb(r) - 'listed_status' ORDER BY ctid) FILTER (WHERE xmin = %[3]s), '[]') AS rows,
			coalesce(array_agg(%[2]s) FILTER (WHERE xmax = %[3]s AND xmin <> %[3]s), '{}') AS locked
			FROM %[1]s r`, table, name, own))
		return nil
	})
	require.NoError(t, err)
	s.inspect = strings.Join(parts, " UNION ALL ")
	s.fill(t, s.conn, tenants+given, true)
	s.base = s.all(t)
	return s
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	pool := dbtest.Kept(t, url, "scene", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), url, postgres.Options{Name: "scene", MaxConn: 4})
	})
	conn, err := pool.Raw().Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	_, err = conn.Exec(t.Context(), "SET timezone = 'UTC'; SET payonce.tenants = '*'")
	require.NoError(t, err)
	return conn.Conn()
}

// rowName is SQL for the name of a row: its primary key without the tenant.
func rowName(key []string) string {
	parts := make([]string, 0, len(key))
	for _, column := range key {
		if column == "tenant_id" || column == "id" && len(key) == 1 {
			column = fmt.Sprintf("CASE %s::text WHEN '%s' THEN NULL WHEN '%s' THEN 'twin' ELSE %[1]s::text END", column, tenant, twin)
			if len(key) == 1 {
				column = strings.Replace(column, "NULL", "'tenant'", 1)
			}
		}
		parts = append(parts, column)
	}
	return "concat_ws('/', " + strings.Join(parts, ", ") + ")"
}

// goName is the field that sqlc makes of a column.
func goName(column string) string {
	var name strings.Builder
	for part := range strings.SplitSeq(column, "_") {
		if part == "id" {
			name.WriteString("ID")
		} else {
			name.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return name.String()
}

// outcome runs a case.
func (s *scene) outcome(t *testing.T, c queryCase) []string {
	t.Helper()
	if c.each == "" {
		return s.once(t, c, c.with)
	}
	var lines []string
	with := reflect.ValueOf(c.with)
	for name := range strings.FieldsSeq(c.each) {
		of := c
		of.first = strings.ReplaceAll(c.first, "$name", name)
		got := s.once(t, of, with.Call([]reflect.Value{reflect.ValueOf(name)})[0].Interface())
		if len(got) == 0 {
			got = []string{"nothing"}
		}
		for _, line := range got {
			lines = append(lines, name+": "+line)
		}
	}
	return lines
}

const (
	waitMax = "300ms" // for a row that another process has locked
	runMax  = "10s"   // more than any query takes on a slow machine
)

func (s *scene) once(t *testing.T, c queryCase, with any) []string {
	t.Helper()
	ctx := t.Context()
	if c.locked != "" {
		table, name, _ := strings.Cut(c.locked, "/")
		tx, err := s.other.Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		tag, err := tx.Exec(ctx, "SELECT FROM "+table+" WHERE "+rowName(s.keys[table])+" = $1 FOR UPDATE", name)
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected(), c.locked)
	}
	tx, err := s.conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	before, prepared := s.base, c.first != "" || c.given != ""
	if prepared {
		s.fill(t, s.conn, c.given, false)
		_, err := tx.Conn().PgConn().Exec(ctx, c.first).ReadAll()
		require.NoError(t, err)
		before = s.all(t)
	}
	var w watch
	require.NoError(t, tx.QueryRow(ctx,
		"SELECT clock_timestamp() FROM set_config('lock_timeout', $1, true) a, set_config('statement_timeout', $2, true) b",
		waitMax, runMax).Scan(&w.from))

	hasWaited := s.meanwhile(t, c, tx)
	results := reflect.ValueOf(c.query).Call(arguments(ctx, tx, with))
	if !hasWaited() {
		return []string{"does not wait for the other process"}
	}
	if err, failed := results[len(results)-1].Interface().(error); failed {
		var pg *pgconn.PgError
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			results = nil
		case errors.As(err, &pg):
			return []string{strings.TrimSpace("error " + pg.Code + " " + pg.ConstraintName)}
		default:
			return []string{"error " + err.Error()}
		}
	}
	var changes []string
	w.to, changes = s.changes(t, tx, before, prepared)
	var lines []string
	switch {
	case results == nil:
		lines = append(lines, "no row")
	case len(results) == 2:
		lines = s.returned(w, c, results[0])
	}
	for _, change := range changes {
		lines = append(lines, w.times(change))
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// meanwhile lets another process commit as soon as the query waits for it. What is returned is for after the query, and
// says whether it has.
func (s *scene) meanwhile(t *testing.T, c queryCase, tx pgx.Tx) (hasWaited func() bool) {
	t.Helper()
	if c.meanwhile == "" {
		return func() bool { return true }
	}
	ctx := t.Context()
	other, err := s.other.Begin(ctx)
	require.NoError(t, err)
	_, err = other.Exec(ctx, c.meanwhile)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SET LOCAL lock_timeout = '10s'")
	require.NoError(t, err)
	returned, waited := make(chan struct{}), make(chan bool, 1)
	go func() {
		waits := false
		for returns := false; !waits && !returns; {
			select {
			case <-returned:
				returns = true
			default:
				if err := other.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = "+
					"ANY (pg_blocking_pids(pid)))").Scan(&waits); err != nil {
					returns = true
				}
			}
		}
		_ = other.Commit(ctx)
		waited <- waits
	}()
	return func() bool {
		close(returned)
		return <-waited
	}
}

func arguments(ctx context.Context, tx pgx.Tx, with any) []reflect.Value {
	in := []reflect.Value{reflect.ValueOf(db.New(tx)), reflect.ValueOf(ctx)}
	if with != nil {
		in = append(in, reflect.ValueOf(with))
	}
	return in
}

// returned describes the result of a query.
func (s *scene) returned(w watch, c queryCase, v reflect.Value) []string {
	if v.Kind() != reflect.Slice {
		if v.Kind() != reflect.Struct {
			return []string{"returns " + s.show(w, c, v)}
		}
		return []string{"row " + s.show(w, c, v)}
	}
	lines := []string{}
	for i := range v.Len() {
		lines = append(lines, "row "+s.show(w, c, v.Index(i)))
	}
	if len(lines) == 0 {
		lines = append(lines, "no row")
	}
	if c.any {
		slices.Sort(lines)
	}
	return lines
}

// wide rows show what identifies them and what the query computes, and the others all that is not zero.
const wide = 13

var identify = []string{"ID", "Key", "Consumer", "EventID", "AggregateID", "Sku", "CheckoutID", "Step"}

// show describes a value that a query returns.
func (s *scene) show(w watch, c queryCase, v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		return s.show(w, c, v.Elem())
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return w.time(value)
	case uuid.UUID:
		if value == somebody {
			return "somebody"
		}
		return value.String()
	case []byte:
		return text(value)
	// part: webhooks {
	case [][]byte:
		return string(bytes.Join(value, []byte(",")))
	// part: webhooks }
	case json.RawMessage:
		return string(value)
	case float64: // all are seconds
		return w.moment(-value)
	}
	if v.Kind() != reflect.Struct {
		return w.times(fmt.Sprint(v.Interface()))
	}
	also := strings.Fields(c.show)
	var parts []string
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		switch {
		case name == "TenantID" && reflect.Indirect(field).String() == tenant, field.IsZero():
			continue
		case name == "TenantID" && reflect.Indirect(field).String() == twin:
			parts = append(parts, "twin")
			continue
		case v.NumField() >= wide && s.columns[name] && !slices.Contains(identify, name) && !slices.Contains(also, name):
			continue
		case field.Kind() == reflect.Slice && field.Len() == 0:
			continue
		}
		value := s.show(w, c, field)
		if slices.Contains(remaining, name) {
			value = w.moment(field.Float())
		}
		if _, isTime := field.Interface().(time.Time); field.Kind() == reflect.Struct && !isTime {
			value = "(" + value + ")"
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}

// text is bytes as they are read best.
func text(b []byte) string {
	if len(b) < 32 && utf8.Valid(b) && !strings.ContainsFunc(string(b), unicode.IsControl) {
		return string(b)
	}
	return fmt.Sprintf("%d bytes", len(b))
}

// watch is the time in which a query ran, by the database's clock.
type watch struct{ from, to time.Time }

// time is a time as a case's want has it.
func (w watch) time(t time.Time) string {
	if t.Nanosecond() == 0 && t.Sub(start)%time.Minute == 0 { // as in the rows
		return signed(t.Sub(start))
	}
	after := t.Sub(w.from).Truncate(time.Second)
	if after < 0 && after > -time.Minute {
		after = 0 // the row was made now, on a slow machine
	}
	if t.Add(-after).After(w.to) {
		return t.String() // neither a time of the rows, nor of the query
	}
	if after == 0 {
		return "now"
	}
	return "now" + signed(after)
}

// remaining are the seconds until something; all others are since something. The name decides and not the value: half a
// minute after the start, 2 h from now and 1 h 59 min before the start are equally far from the query.
var remaining = []string{"DueSeconds", "HeldSeconds", "NextSeconds"}

// moment is the time that lies so many seconds from the query, if it is a time of the rows.
func (w watch) moment(seconds float64) string {
	at := w.from.Add(time.Duration(seconds * float64(time.Second))).Sub(start)
	whole := at.Round(time.Minute)
	if off := whole - at; off.Abs() <= w.to.Sub(w.from)+time.Millisecond {
		return signed(whole)
	}
	return fmt.Sprint(math.Abs(seconds))
}

func signed(d time.Duration) string {
	if d == 0 {
		return "start"
	}
	text := strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "m0")
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if d > 0 {
		return "+" + text
	}
	return text
}

var timeText = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00(:00)?|Z)`)

// times replaces the times in a text.
func (w watch) times(text string) string {
	return timeText.ReplaceAllStringFunc(text, func(found string) string {
		found = strings.TrimSuffix(strings.Replace(found, " ", "T", 1), ":00")
		for _, zone := range []string{"Z", "+00"} {
			found = strings.TrimSuffix(found, zone)
		}
		t, err := time.Parse("2006-01-02T15:04:05.999999", found)
		if err != nil {
			return err.Error()
		}
		return w.time(t)
	})
}

// tableRows are the rows of a table: all names, and those that this transaction wrote.
type tableRows struct {
	Name    string
	Now     time.Time
	Keys    []string
	Changed []string
	Rows    []map[string]any
	Locked  []string
}

func (s *scene) look(t *testing.T, conn interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) []tableRows {
	t.Helper()
	rows, err := conn.Query(t.Context(), s.inspect)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByName[tableRows])
	require.NoError(t, err)
	return tables
}

// changes describes what a query wrote and locked. In a prepared transaction the rows of the case itself are left out.
func (s *scene) changes(t *testing.T, tx pgx.Tx, before snapshot, prepared bool) (time.Time, []string) {
	t.Helper()
	var lines []string
	var now time.Time
	for _, table := range s.look(t, tx) {
		now = table.Now
		had := before[table.Name]
		for i, key := range table.Changed {
			row, known := had[key]
			what := "changes "
			if !known {
				what = "inserts "
			}
			var columns []string
			for _, column := range slices.Sorted(maps.Keys(table.Rows[i])) {
				value := table.Rows[i][column]
				if !slices.Contains(s.keys[table.Name], column) && !reflect.DeepEqual(value, row[column]) &&
					(known || !isDefault(column, value)) {
					columns = append(columns, column+"="+cell(value))
				}
			}
			if len(columns) > 0 || !prepared {
				lines = append(lines, strings.TrimSuffix(what+table.Name+"/"+key+": "+strings.Join(columns, " "), ": "))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(had)) {
			if !slices.Contains(table.Keys, key) {
				lines = append(lines, "deletes "+table.Name+"/"+key)
			}
		}
		for _, key := range table.Locked {
			lines = append(lines, "locks "+table.Name+"/"+key)
		}
	}
	// What was inserted stays in the order in which it was.
	slices.SortStableFunc(lines, func(a, b string) int {
		if strings.HasPrefix(a, "inserts ") && strings.HasPrefix(b, "inserts ") {
			return 0
		}
		return strings.Compare(a, b)
	})
	return now, lines
}

// isDefault says which columns of a new row are not worth showing.
func isDefault(column string, value any) bool {
	return value == 0.0 || value == false || cell(value) == "{}" || column == "seq"
}

// cell is a column's value as JSON, shorter.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		if v == somebody.String() {
			return "somebody"
		}
		if hexed, ok := strings.CutPrefix(v, `\x`); ok {
			b := make([]byte, len(hexed)/2)
			for i := range b {
				n, _ := strconv.ParseUint(hexed[2*i:2*i+2], 16, 8)
				b[i] = byte(n)
			}
			return text(b)
		}
		return v
	case []any:
		cells := make([]string, len(v))
		for i := range v {
			cells[i] = cell(v[i])
		}
		return "{" + strings.Join(cells, ", ") + "}"
	case map[string]any:
		b, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(b)
	default:
		return fmt.Sprint(v)
	}
}

// all reads every table.
func (s *scene) all(t *testing.T) snapshot {
	t.Helper()
	found := snapshot{}
	for table, key := range s.keys {
		rows, err := s.conn.Query(t.Context(), "SELECT "+rowName(key)+", to_jsonb(r) FROM "+table+" r")
		require.NoError(t, err)
		found[table] = map[string]map[string]any{}
		var name string
		var row map[string]any
		_, err = pgx.ForEachRow(rows, []any{&name, &row}, func() error {
			found[table][name], row = row, nil
			return nil
		})
		require.NoError(t, err)
	}
	return found
}

// textTable is one table of a text of rows.
type textTable struct {
	name    string
	columns []string
	rows    []map[string]string
}

var (
	blanks = regexp.MustCompile(` {2,}|\t+`)
	offset = regexp.MustCompile(`^[+-]\d+h(1m)?$`)
	gap    = regexp.MustCompile(`\n\s*\n`)
)

// textTables reads rows from a text: the name of a table, its columns, and a line per row. Between two columns are two
// blanks or more. A dot stands for the column's default, and -1h for an hour ago.
func textTables(given string) []textTable {
	var found []textTable
	for block := range slices.Values(gap.Split(strings.TrimSpace(given), -1)) {
		if block == "" {
			continue
		}
		lines := strings.Split(block, "\n")
		table := textTable{name: strings.TrimSpace(lines[0]), columns: blanks.Split(strings.TrimSpace(lines[1]), -1)}
		for _, line := range lines[2:] {
			cells := blanks.Split(strings.TrimSpace(line), -1)
			if len(cells) != len(table.columns) {
				panic(fmt.Sprintf("%s: %d columns, and in %q %d", table.name, len(table.columns), line, len(cells)))
			}
			row := map[string]string{}
			for i, column := range table.columns {
				if cells[i] != "." {
					row[column] = cells[i]
				}
			}
			table.rows = append(table.rows, row)
		}
		found = append(found, table)
	}
	return found
}

// defaults complete the rows of a table with what its cases do not care about. A part of the service adds its tables.
var defaults = map[string]func(row map[string]string) map[string]string{}

// values are defaults that do not depend on the row.
func values(of map[string]string) func(map[string]string) map[string]string {
	return func(map[string]string) map[string]string { return of }
}

// fill inserts rows and, unless they name their tenants, their twins, which come first: a query that finds both returns
// the twin. A twin's times are a minute away from the row's, so that both have one order. Neither
// triggers nor foreign keys are there, since a twin is a mixture of two rows.
func (s *scene) fill(t *testing.T, conn *pgx.Conn, given string, twins bool) {
	t.Helper()
	var sql strings.Builder
	list := textTables(given)
	sql.WriteString("SET LOCAL session_replication_role = replica;\n")
	for _, table := range list {
		key := s.keys[table.name]
		require.NotEmpty(t, key, table.name)
		for _, row := range table.rows {
			if complete := defaults[table.name]; complete != nil {
				for column, value := range complete(row) {
					if _, set := row[column]; !set {
						row[column] = value
					}
				}
			}
		}
		if slices.Contains(key, "tenant_id") && !slices.Contains(table.columns, "tenant_id") {
			if twins {
				for i, row := range table.rows {
					other := maps.Clone(row)
					for _, column := range key {
						other[column] = table.rows[(i+1)%len(table.rows)][column]
					}
					other["tenant_id"] = twin
					for column, cell := range other {
						if offset.MatchString(cell) {
							other[column] = cell + "1m"
						}
					}
					if seq, err := strconv.Atoi(other["seq"]); err == nil {
						other["seq"] = strconv.Itoa(seq + 1)
					}
					insertRow(&sql, table.name, other)
				}
			}
			for _, row := range table.rows {
				row["tenant_id"] = tenant
			}
		}
		for _, row := range table.rows {
			insertRow(&sql, table.name, row)
		}
	}
	sql.WriteString("SET LOCAL session_replication_role = DEFAULT")
	_, err := conn.PgConn().Exec(t.Context(), sql.String()).ReadAll()
	require.NoError(t, err)
}

func insertRow(sql *strings.Builder, table string, row map[string]string) {
	columns := slices.Sorted(maps.Keys(row))
	cells := make([]string, len(columns))
	for i, column := range columns {
		cell := row[column]
		switch {
		case cell == "null":
			cells[i] = "NULL"
			continue
		case offset.MatchString(cell):
			cell = at(cell).Format(time.RFC3339)
		case cell == `""`:
			cell = ""
		}
		cells[i] = "'" + strings.ReplaceAll(cell, "'", "''") + "'"
	}
	fmt.Fprintf(sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s);\n", table,
		strings.Join(columns, ", "), strings.Join(cells, ", "))
}

// statements are the lines of a want, each on one line.
func statements(want string) []string {
	var lines []string
	depth := -1
	for line := range strings.Lines(want) {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, "\t "))
		if depth < 0 {
			depth = indent
		}
		if indent > depth {
			lines[len(lines)-1] += " " + text
			continue
		}
		lines = append(lines, text)
	}
	return lines
}

// paragraphs is how statements are written in a want.
func paragraphs(lines []string) string {
	var text strings.Builder
	for _, line := range lines {
		indent, width := "\t\t", 0
		for word := range strings.SplitSeq(line, " ") {
			if width > 0 && width+1+len(word) > 100 {
				text.WriteString("\n")
				indent, width = "\t\t\t", 0
			}
			if width == 0 {
				text.WriteString(indent)
			} else {
				text.WriteString(" ")
				width++
			}
			text.WriteString(word)
			width += len(word)
		}
		text.WriteString("\n")
	}
	return text.String()
}
