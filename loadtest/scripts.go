// Package loadtest holds the k6 scripts. `go run -C proof ./load` unpacks and runs
// them, and counts the charges afterwards; k6 can also run each by itself (README.md).
package loadtest

import "embed"

// Scripts are the scenarios and what they share.
//
//go:embed *.js lib/*.js
var Scripts embed.FS
