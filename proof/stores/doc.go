// Package stores tests payonce with the stores that articles on idempotency name beside its own: retention by pg_cron in
// the place of the service's reaper.
package stores
