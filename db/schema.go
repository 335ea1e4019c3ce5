package db

import _ "embed"

// Schema is the schema that the migrations make, generated from a migrated
// database (TestSchemaFileIsCurrent).
//
//go:embed schema.sql
var Schema string
