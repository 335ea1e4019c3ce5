package world

import (
	"maps"

	"example.com/payonce/internal/checkout"
	httpapi "example.com/payonce/internal/http"
)

func init() { parts = append(parts, addCheckouts) }

// addCheckouts wires checkouts into a Local, as cmd/api's part_checkouts.go does. All
// that this package knows about checkouts is here and on the lines that are marked
// "part: checkouts".
func addCheckouts(l *Local, w *wiring) {
	l.Checkouts = checkout.New(l.Pool, l.Keys, l.Gateway, l.Payments, httpapi.Answers{}, checkout.Options{
		Metrics: checkout.NewMetrics(l.Metrics), Log: l.log,
	})
	maps.Copy(w.server.Operations, l.Checkouts.Operations())
	maps.Copy(w.server.Paths, checkout.Paths())
	w.describe[checkout.Create] = checkout.History // part: history
	w.server.Checkouts = l.Checkouts
}
