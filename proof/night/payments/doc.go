// Package payments runs what is enumerated about payments: each statement and each request to Stripe of each operation
// fails once; each move of others at Stripe, each order of events and each rival meets each operation; each seed and each
// currency is tried. internal/payments in the root module runs one of each rule, with the same code. A combination that is
// wrong alone is found here, by night.
//
//	go test -C proof ./night/payments                          all, a minute or two
//	go test -C proof ./night/payments -run NoErrorIsSwallowed  some
package payments
