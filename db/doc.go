// Package db is the only door to PostgreSQL: the SQL in queries/ and migrations/,
// the Go that sqlc makes of it, and three things that are easy to get wrong.
//
// A transaction is opened by InTx and by nothing else, it holds no network call,
// and its COMMIT has three outcomes, not two (ErrInDoubt). Time that decides
// anything is the database's clock_timestamp(). And every rule that must hold
// when somebody edits the Go code is a named constraint or trigger in
// migrations/, so that Violates can say which sentence was broken.
//
// Nothing in this package knows what a payment is for.
package db
