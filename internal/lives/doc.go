// Package lives begins a new life of a database that was restored, or that a standby without all commits took over:
// `api restored`. Stripe, the broker and the readers of the feed know what the lost life did, and the database does not.
package lives
