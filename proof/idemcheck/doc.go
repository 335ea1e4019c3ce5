// Package idemcheck holds the tests of idemcheck against APIs that it did not bring itself: payonce's own,
// and hosts of libraries of others, in the folder foreign.
package idemcheck
