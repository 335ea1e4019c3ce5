// Package crashmatrix has a test and no other code: each place of each operation that moves money is disturbed once, and
// the operation is brought to its end. testkit/crashmatrix has the places, and says how they are disturbed.
package crashmatrix
