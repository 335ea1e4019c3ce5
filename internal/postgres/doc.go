// Package postgres is the only door to PostgreSQL: the pool, its transactions and
// timeouts, the errors that decide what a caller may conclude, batching, and the
// migrations. The SQL itself is in db/, with the Go that sqlc generates from it.
//
// A transaction is opened by InTx and by nothing else, it holds no network call,
// and its COMMIT has three outcomes, not two (ErrInDoubt). Time that decides
// anything is the database's clock_timestamp(). And every rule that must hold
// when somebody edits the Go code is a named constraint or trigger in
// db/migrations, so that Violates can say which sentence was broken.
//
// Nothing in this package knows what a payment is for.
package postgres
