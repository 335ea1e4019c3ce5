// Package postgres is the only way to PostgreSQL: the pool, transactions and timeouts, the errors from which a caller
// may draw conclusions, batches of statements over arrays, migrations and invariants. The SQL itself is in db/, with
// the Go that sqlc generates from it.
//
// Only InTx opens a transaction. A transaction contains no network call, and its COMMIT has three outcomes, not two
// (ErrInDoubt). Every decision that depends on time uses the database's clock_timestamp(). Every rule that must hold
// even if the Go code is wrong is a named constraint or trigger in db/migrations, so that Violates can tell which one
// was broken.
//
// This package contains no rules of payments.
package postgres
