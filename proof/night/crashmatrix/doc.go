// Package crashmatrix runs all cells of the crash matrix: each operation that moves money, disturbed at each of its places,
// with each answer of Stripe's, on each way back. The root module runs each place once, in internal/payments/crashmatrix.
// A combination that only one answer of Stripe's or one way back breaks is found here, by night.
//
//	go test -C proof ./night/crashmatrix                                         all of them, a minute
//	go test -C proof ./night/crashmatrix -run 'TestCrashMatrix/refund/finished'  some
package crashmatrix
