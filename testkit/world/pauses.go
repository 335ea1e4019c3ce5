package world

import (
	"time"

	"github.com/stretchr/testify/require"
)

// RequireWindowDueIn has run release a window of reconciliation_windows, and fails the test unless the window is due
// again in so long, counted from an instant during run. It holds however long run takes.
func (w *World) RequireWindowDueIn(window string, pause time.Duration, run func()) {
	w.T.Helper()
	before := w.Text(`SELECT clock_timestamp()`)
	run()
	const due = `SELECT next_at::text FROM reconciliation_windows WHERE name = $1`
	fromBefore := w.Count(`SELECT floor(extract(epoch FROM ($1::timestamptz - $2::timestamptz)))::int`,
		w.Text(due, window), before)
	fromNow := w.Count(`SELECT ceil(extract(epoch FROM ($1::timestamptz - clock_timestamp())))::int`, w.Text(due, window))
	require.GreaterOrEqual(w.T, fromBefore, int(pause.Seconds()), "due too early")
	require.LessOrEqual(w.T, fromNow, int(pause.Seconds()), "due too late")
}
