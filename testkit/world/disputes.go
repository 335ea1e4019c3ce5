package world

import (
	"maps"

	"example.com/payonce/internal/disputes"
)

func init() { parts = append(parts, addDisputes) }

// addDisputes wires disputes into a Local, as cmd/api's part_disputes.go does. All
// that this package knows about disputes is here and on the lines that are marked
// "part: disputes".
func addDisputes(l *Local, w *wiring) {
	maps.Copy(w.server.Paths, disputes.Paths())
	w.server.Disputes = l.Disputes
}
