// Package api plays with real processes of the service what its own tests in cmd/api show at one place each.
//
// A process is killed at each of sixteen places, stopped before and after the effect of each call to Stripe, and sent a
// hundred duplicates at once. A large table is migrated under traffic. Processes that have nothing to do are counted:
// their statements, and twenty of them at once by their connections. Commands are run as programs, for their exit status.
//
//	go test -C proof ./night/api
package api
