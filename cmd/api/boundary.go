//go:build !faults

package main

// boundary is where crash tests stop the process. A build without the tag faults ignores FAULT_AT,
// so that no variable can crash a production process.
func boundary(func(string) string) func(operation, recoveryPoint string) { return nil }
