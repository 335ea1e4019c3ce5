//go:build !race

package protocol

const underRace = false
