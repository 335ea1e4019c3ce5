//go:build race

package protocol

// underRace: every access of memory is watched, which takes ten times as long.
const underRace = true
