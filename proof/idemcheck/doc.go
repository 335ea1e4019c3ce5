// Package idemcheck holds the tests of idemcheck against APIs that it did not bring itself: payonce's own.
package idemcheck
