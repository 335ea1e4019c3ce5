package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Each statement is sent with its scope: the tenants whose rows it may see and write. The policies of the tables
// (db/rights.sql) compare it with the tenant of each row, so a statement that forgets its tenant finds nothing, and one
// that takes another's is refused. PostgreSQL applies them to the service's role; the owner of the tables, and a
// superuser, pass.
//
// The setting belongs to the transaction and ends with it, so no statement inherits the scope of another, behind a
// pooler neither.
const (
	scopeSetting = "payonce.tenants"
	setScope     = "SELECT set_config('" + scopeSetting + "', $1, true)"
	allTenants   = "*"
)

// ScopeKey is the key of a context's tenant. ForTenant sets it; a context of another kind may return the tenant for it.
type ScopeKey struct{}

// ForTenant returns a context whose statements see the rows of one tenant.
func ForTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, ScopeKey{}, tenant)
}

// ForAllTenants returns a context whose statements see the rows of every tenant. It is for work that belongs to none,
// such as a loop that looks for what is due; reason says which.
func ForAllTenants(ctx context.Context, reason string) context.Context {
	if reason == "" {
		panic("bug: work for all tenants does not say what it is")
	}
	return context.WithValue(ctx, ScopeKey{}, allTenants)
}

// scopeOf returns the setting for a statement. Not ok: the context names no tenant, and the statement is sent without a
// scope. Then it sees what the session's own setting says, which is nothing unless the connection string sets it.
func scopeOf(ctx context.Context) (scope string, ok bool) {
	scope, ok = ctx.Value(ScopeKey{}).(string)
	return scope, ok
}

// ForTenants returns a context for the rows of several tenants, those of a batch. It sorts tenants.
func ForTenants(ctx context.Context, tenants []string) context.Context {
	if len(tenants) == 0 {
		return ctx
	}
	if slices.Contains(tenants, allTenants) {
		return ForTenant(ctx, allTenants)
	}
	slices.Sort(tenants)
	return ForTenant(ctx, strings.Join(slices.Compact(tenants), ","))
}

// scopeFor returns the scope of a row that is the tenant's, in a batch: the tenant, or all, if that is what ctx says.
// Empty: ctx is not for this tenant.
func scopeFor(ctx context.Context, tenant string) string {
	if scope, _ := scopeOf(ctx); scope == allTenants || scope == tenant {
		return scope
	}
	return ""
}

// beginInScope is begin, a statement that begins a transaction, with the scope of ctx, in one round trip.
func beginInScope(ctx context.Context, begin string) (string, error) {
	scope, ok := scopeOf(ctx)
	if !ok {
		return begin, nil
	}
	if strings.ContainsFunc(scope, func(c rune) bool { return c == '\'' || c == '\\' || c == 0 }) {
		return "", fmt.Errorf("the tenant's id %q cannot be one", scope)
	}
	return begin + "; SET LOCAL " + scopeSetting + " = '" + scope + "'", nil
}

// setScopeWith also sets other settings of its transaction, for sessions in which nothing could be set while connecting.
// The settings are constants of this package.
func setScopeWith(settings map[string]string) string {
	set := setScope
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		set += ", set_config('" + name + "', '" + settings[name] + "', true)"
	}
	return set
}

// scoped sends each statement behind the setting of its scope, in one round trip and one transaction: what
// PostgreSQL is sent before a Sync belongs together.
type scoped struct {
	pool *pgxpool.Pool
	set  string // setScope, or setScopeWith
}

// Exec implements db.DBTX.
func (s scoped) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	scope, ok := scopeOf(ctx)
	if !ok {
		return s.pool.Exec(ctx, sql, args...)
	}
	results, err := s.send(ctx, scope, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if closed := results.Close(); err == nil { // it commits here
		err = closed
	}
	return tag, err
}

// Query implements db.DBTX.
func (s scoped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	scope, ok := scopeOf(ctx)
	if !ok {
		return s.pool.Query(ctx, sql, args...)
	}
	results, err := s.send(ctx, scope, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return &scopedRows{Rows: rows, results: results}, nil
}

// QueryRow implements db.DBTX.
func (s scoped) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if _, ok := scopeOf(ctx); !ok {
		return s.pool.QueryRow(ctx, sql, args...)
	}
	rows, err := s.Query(ctx, sql, args...)
	return scopedRow{rows, err}
}

func (s scoped) send(ctx context.Context, scope, sql string, args []any) (pgx.BatchResults, error) {
	batch := &pgx.Batch{}
	batch.Queue(s.set, scope)
	batch.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return nil, err
	}
	return results, nil
}

// scopedRows are the rows of the statement behind the setting. The transaction ends after the last one, so an error of
// its commit is known only then.
type scopedRows struct {
	pgx.Rows
	results pgx.BatchResults
	once    sync.Once
	err     error
}

// Next implements pgx.Rows.
func (r *scopedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *scopedRows) Close() {
	r.Rows.Close()
	r.once.Do(func() { r.err = r.results.Close() })
}

// Err implements pgx.Rows.
func (r *scopedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type scopedRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements pgx.Row.
func (r scopedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	err := r.rows.Scan(dest...)
	r.rows.Close()
	if err == nil {
		err = r.rows.Err()
	}
	return err
}
