//go:build !unix

package stripesim

import "os"

// lockFile does nothing where there is no flock: do not start two simulators on
// one journal there.
func lockFile(*os.File) error { return nil }
