// Package tags is what the demo's API is built with. It stands alone because the demo, its tests and the test of what a
// first run downloads must say the same, and the demo is a program, which cannot be imported.
package tags

// API are the build tags of the demo's API. They add the crash points that FAULT_AT names, and leave out what the demo
// does not use: on a machine without Go modules half as much is downloaded
// (docs/adr/0070-what-a-first-run-downloads.md).
const API = "faults,notracing"
