//go:build !faults

package main

// boundary is the seam for crash tests. A build without the tag faults has none.
func boundary(func(string) string) func(operation, recoveryPoint string) { return nil }
