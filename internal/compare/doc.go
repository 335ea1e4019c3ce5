// Package compare holds every rule by which our rows are compared with Stripe's
// objects. It is pure: it reads no database and makes no call, so compare_test.go
// states each rule as a row of a table.
//
// Stripe is authoritative about whether money moved, our rows about what it was for.
// The reconciler, the audit and the operations that repair something, by themselves
// or for an operator, apply the same rules: internal/reconcile reads the objects,
// internal/payments reads the rows and acts.
package compare
