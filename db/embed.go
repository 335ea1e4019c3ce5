// Package db is the SQL of the service and the Go that sqlc generates from it:
// migrations/ has the schema, queries/ the statements. Nothing else in this folder
// is written by hand; what opens connections and transactions is internal/postgres.
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
