// Package starter makes services of one's own with cmd/new, and tests them.
//
// The smallest is built, takes money once while its process is killed, and passes its own tests. Then a service with each
// part alone, and one with all parts, is compiled, and has the tests of its part run. There are sixteen of them because
// each part is a line that may be missing somewhere else. The tests of cmd/new in the root read the manifest and the marks
// and build nothing.
//
//	go test -C proof ./night/starter -run TestNone
//	go test -C proof ./night/starter -run TestEachPart
package starter
