// Package api plays with real processes of the service what its own tests in cmd/api show at one place each, or as a call.
//
// A process is killed at each of sixteen places, stopped before and after the effect of each call to Stripe, and sent a
// hundred duplicates at once. A consumer is killed before its acknowledgement. A primary is lost, turns read-only, or has
// its waits for a standby canceled. Customers pay in a browser what was declined here. A large table is migrated under
// traffic. Processes that have nothing to do are counted: their statements, and twenty of them at once by their
// connections. The commands doctor and audit are run as programs, for their output and their exit status with each kind of
// finding.
//
//	go test -C proof ./night/api
package api
