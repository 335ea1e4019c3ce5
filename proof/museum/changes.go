package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// What the producers have in common: a table of what happened to each object,
// and how one change of it is written.

const changesTable = `CREATE TABLE changes (id bigserial, object text, version bigint, published_at timestamptz)`

const changesQuery = `SELECT object, version FROM changes`

// write records the next change of an object, under a lock of its own, so that
// only the exhibit's own mistake shows.
func write(ctx context.Context, tx pgx.Tx, object string) event {
	exec(ctx, tx, `SELECT pg_advisory_xact_lock(hashtext($1))`, object)
	e := event{Object: object}
	found(tx.QueryRow(ctx, `INSERT INTO changes (object, version)
		SELECT $1, count(*) + 1 FROM changes WHERE object = $1 RETURNING version`, object), &e.Version)
	return e
}

// events reads a list of events, and the highest id in it.
func events(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, sql string, args ...any) (ids []int64, list []event) {
	rows, err := q.Query(ctx, sql, args...)
	must(err)
	for rows.Next() {
		var id int64
		var e event
		must(rows.Scan(&id, &e.Object, &e.Version))
		ids, list = append(ids, id), append(list, e)
	}
	must(rows.Err())
	return ids, list
}
