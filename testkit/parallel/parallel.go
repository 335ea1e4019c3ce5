// Package parallel is for test binaries whose tests wait more than they compute. go test runs as many tests at once as
// there are processors, so on two cores such tests wait one after the other.
package parallel

import (
	"flag"
	"runtime"
	"strconv"
)

// AtLeast has a test binary run at least n tests at once, unless -parallel says how many. It is called in TestMain, before
// the tests run.
func AtLeast(n int) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set && runtime.GOMAXPROCS(0) < n {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is valid
	}
}
