// Package db is the SQL of the service and the Go that sqlc generates from it:
// migrations/ has the schema, rights.sql who may do what, queries/ the statements. Nothing but this file
// is written by hand in Go; what opens connections and transactions is internal/postgres.
package db

import "embed"

// Migrations are the numbered steps of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Schema is the schema that the migrations make, generated from a migrated database
// (TestSchemaFileIsCurrent in internal/postgres).
//
//go:embed schema.sql
var Schema string

// Rights are the policies of the tables and what each role may do, applied after the migrations.
//
//go:embed rights.sql
var Rights string

// DB is what the queries run on, for queries that sqlc has generated into a package of
// their own, such as those of an operation in a package of its own: so they join the
// same transaction.
func (q *Queries) DB() DBTX { return q.db }
