// Package crashmatrix has a test and no other code: each operation that moves money is disturbed at each of its places,
// with each answer of Stripe's, and brought to its end on each way back. It is beside the other tests of payments, and not
// among them, because go test gives each package ten minutes.
package crashmatrix
