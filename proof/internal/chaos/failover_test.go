package chaos

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/chaos/history"
)

// good is a run that shows what it is for.
func good() *failover {
	r := &failover{}
	r.report = FailoverReport{Acknowledged: 1000, Losses: []Loss{
		{How: Killed, Writes: 900}, {How: Frozen, Writes: 2000, Late: 9, Holding: 3}, {How: Cut, Writes: 2000, Late: 9, Holding: 1},
		{How: Canceled, Writes: 900, WaitsCanceled: 12},
	}}
	return r
}

// TestFailoverIsJudged: each thing that a run must not show turns it red, and so does a run that shows nothing.
func TestFailoverIsJudged(t *testing.T) {
	t.Parallel()
	r := good()
	r.judge(nil)
	require.Empty(t, r.report.Violations)
	require.True(t, r.report.OK())
	for says, change := range map[string]func(*FailoverReport){
		"an acknowledged answer is lost":  func(s *FailoverReport) { s.Lost = []string{"/v1/payments"} },
		"charged twice":                   func(s *FailoverReport) { s.Twice = 1 },
		"that no row knows":               func(s *FailoverReport) { s.Unknown = 1 },
		"which proves little":             func(s *FailoverReport) { s.Acknowledged = 3 },
		"was acknowledged after 10001 ms": func(s *FailoverReport) { s.Losses[0].Writes = 10_001 },
		"was acknowledged after -1 ms":    func(s *FailoverReport) { s.Losses[3].Writes = -1 },
		"answered 2 requests":             func(s *FailoverReport) { s.Losses[1].Acked = 2 },
		"got 0 requests and held 3":       func(s *FailoverReport) { s.Losses[1].Late = 0 },
		"got 9 requests and held 0":       func(s *FailoverReport) { s.Losses[2].Holding = 0 },
		"no wait was canceled":            func(s *FailoverReport) { s.Losses[3].WaitsCanceled = 0 },
	} {
		r := good()
		change(&r.report)
		r.judge(nil)
		require.Len(t, r.report.Violations, 1, says)
		require.Contains(t, r.report.Violations[0], says)
		require.False(t, r.report.OK())
		var out strings.Builder
		r.report.Print(&out)
		require.Contains(t, out.String(), "violations=1")
	}
	r = good()
	r.judge([]Check{{ID: "I2", Violations: []string{"a row is gone"}}, {ID: "I3"}})
	require.Equal(t, []string{"I2 a row is gone"}, r.report.Violations)
}

// TestFirstWrite: the first answer to a key that is new counts, and no answer to one that was begun before the loss.
func TestFirstWrite(t *testing.T) {
	t.Parallel()
	r := &failover{log: history.New()}
	before := r.log.Call(0, "before", "a")
	loss := r.now()
	require.Zero(t, r.firstWrite(loss))
	before(history.Final, "x")
	again := r.log.Call(0, "before", "a")
	again(history.Final, "x")
	require.Zero(t, r.firstWrite(loss), "it may be a replay")
	refused := r.log.Call(0, "new", "b")
	refused(history.Away, "")
	require.Zero(t, r.firstWrite(loss))
	answered := r.log.Call(0, "new", "b")
	_, at := answered(history.Final, "y")
	require.InDelta(t, float64(at)/1e9, r.firstWrite(loss), 1e-9)
}

// TestAsyncIsJudged: a run that loses nothing shows nothing, and money that the audit does not account for is a fault.
func TestAsyncIsJudged(t *testing.T) {
	t.Parallel()
	good := AsyncReport{
		Lost: Books{Answers: map[string]int{"payments": 3}, Intents: 3, Minor: 300, Drift: 300},
		Left: Books{Intents: 1, Minor: 100, Drift: 100},
	}
	require.True(t, good.OK())
	for name, change := range map[string]func(*AsyncReport){
		"NothingLost":      func(r *AsyncReport) { r.Lost.Answers = nil },
		"NothingBack":      func(r *AsyncReport) { r.Left.Intents = 3 },
		"ChargedTwice":     func(r *AsyncReport) { r.Twice = 1 },
		"MoneyUnaccounted": func(r *AsyncReport) { r.Left.Drift = 90 },
	} {
		bad := good
		change(&bad)
		require.False(t, bad.OK(), name)
		bad.Print(io.Discard)
	}
}

// TestFailoverConfig: what cannot be a run is refused.
func TestFailoverConfig(t *testing.T) {
	t.Parallel()
	good := FailoverConfig{Processes: 2, Clients: 1, Losses: PairLosses}
	require.NoError(t, good.Check())
	good.Losses = RealLosses
	require.ErrorContains(t, good.Check(), "no way to lose a primary")
	good.Real = true
	require.NoError(t, good.Check())
	good.Processes = 1
	require.ErrorContains(t, good.Check(), "two processes")
}
