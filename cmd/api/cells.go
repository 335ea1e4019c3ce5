package main

import (
	"context"
	"fmt"

	"example.com/payonce/internal/postgres"
)

// The name of a cell is in two places that can contradict each other: CELL, which a process is started with, and the
// database. A process with another cell's DATABASE_URL would finish that cell's payments at its own Stripe account, and
// one with a copy of another cell's database would take that cell's charges for its own. So neither starts.

// migrateAs migrates the database, and names it after the cell if it has neither a name nor a tenant. An empty cell
// leaves the name as it is: `api migrate` needs no setting but DATABASE_URL.
func migrateAs(ctx context.Context, pool *postgres.Pool, cell string) (applied []postgres.Migration, err error) {
	name, err := pool.CellName(ctx)
	if err != nil && !postgres.IsUndefined(err) { // There is no such table before the first migration.
		return nil, fmt.Errorf("read the name of the cell: %w", err)
	}
	if cell != "" && name != "" && name != cell {
		return nil, &otherCellError{what: "CELL", named: cell, database: name}
	}
	if applied, err = pool.Migrate(ctx); err == nil {
		err = introduceKey(ctx, pool)
	}
	if err != nil || cell == "" || name == cell {
		return applied, err
	}
	if _, err := pool.CellSet(ctx, cell); err != nil {
		return applied, fmt.Errorf("name the database after the cell: %w", err)
	}
	name, err = pool.CellName(ctx)
	switch {
	case err != nil:
		return applied, fmt.Errorf("read the name of the cell: %w", err)
	case name == "":
		return applied, fmt.Errorf("CELL is %q, but the database of DATABASE_URL has tenants already, and no cell: unset "+
			"CELL, because their API keys name none, and such a deployment is the router's default (docs/cells.md)", cell)
	case name != cell: // another process was first
		return applied, &otherCellError{what: "CELL", named: cell, database: name}
	}
	return applied, nil
}

// checkCell stops the start if the database is not that of the cell.
func checkCell(ctx context.Context, pool *postgres.Pool, cell string) error {
	name, err := pool.CellName(ctx)
	if err != nil {
		return fmt.Errorf("read the name of the cell: %w", err)
	}
	if name != cell {
		return &otherCellError{what: "CELL", named: cell, database: name}
	}
	return nil
}

// cellOf is the cell that the keys of the database's tenants name. What CELL and the flag -cell say must agree with it,
// where they say something.
func (c cli) cellOf(ctx context.Context, pool *postgres.Pool, flag string) (string, error) {
	e := environment{getenv: c.getenv}
	set := e.cell()
	if e.err != nil {
		return "", e.err
	}
	name, err := pool.CellName(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the name of the cell: %w", err)
	case flag != "" && flag != name:
		return "", &otherCellError{what: "-cell", named: flag, database: name}
	case set != "" && set != name:
		return "", &otherCellError{what: "CELL", named: set, database: name}
	}
	return name, nil
}

// otherCellError says that something names another cell than the database.
type otherCellError struct {
	what            string // that names the cell
	named, database string // cells; empty: none
}

func (e *otherCellError) Error() string {
	const of = "the database of DATABASE_URL"
	switch {
	case e.named == "":
		return fmt.Sprintf("%s is unset, but %s is that of the cell %q; set CELL=%s, or correct DATABASE_URL",
			e.what, of, e.database, e.database)
	case e.database == "":
		return fmt.Sprintf("%s is %q, but %s is that of no cell; run `api migrate` with CELL=%s if it is new, or correct "+
			"%s or DATABASE_URL", e.what, e.named, of, e.named, e.what)
	}
	return fmt.Sprintf("%s is %q, but %s is that of the cell %q; correct one of the two", e.what, e.named, of, e.database)
}
