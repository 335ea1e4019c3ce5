package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSimulate compares the simulation with what can be computed by hand: each of what is waited for is busiest once.
func TestSimulate(t *testing.T) {
	t.Parallel()
	t.Run("OneClient", func(t *testing.T) {
		t.Parallel()
		got := simulate(machine{processors: 2, processes: 1, clients: 1}, costs{
			driver: 10 * time.Microsecond, request: 60 * time.Microsecond, send: 5 * time.Microsecond,
			execute: 20 * time.Microsecond, row: 5 * time.Microsecond, flush: 100 * time.Microsecond,
		})
		require.InEpsilon(t, 1e6/(10+60+4*(5+20+5)+3*100), got.rate, 0.001, "one thing after the other")
		require.InEpsilon(t, 1, got.rows, 1e-9)
		require.Equal(t, "the clients", got.limit())
	})
	t.Run("Processors", func(t *testing.T) {
		t.Parallel()
		got := simulate(machine{processors: 4, processes: 4, clients: 512}, costs{
			request: 100 * time.Microsecond, send: time.Microsecond, execute: time.Microsecond, row: 20 * time.Microsecond,
		})
		require.Equal(t, "the processors", got.limit())
		require.InEpsilon(t, 4*1e6/(100+4*20), got.rate, 0.02, "the statements' own share is small")
		require.InEpsilon(t, 1, got.processors, 0.01)
	})
	t.Run("Lanes", func(t *testing.T) {
		t.Parallel()
		c := costs{request: 6 * time.Microsecond, send: 50 * time.Microsecond, execute: 100 * time.Microsecond, row: 5 * time.Microsecond}
		got := simulate(machine{processors: 64, processes: 1, clients: 4096}, c)
		require.Equal(t, "the lanes", got.limit())
		require.InEpsilon(t, 2*64*1e6/(4*(50+100+64*5)), got.rate, 0.03)
		require.InEpsilon(t, 64, got.rows, 0.02)
		two := simulate(machine{processors: 64, processes: 2, clients: 4096}, c)
		require.InEpsilon(t, 2*got.rate, two.rate, 0.03, "another process has two more")
	})
	t.Run("Log", func(t *testing.T) {
		t.Parallel()
		c := costs{request: 6 * time.Microsecond, send: time.Microsecond, execute: time.Microsecond, row: time.Nanosecond,
			flush: 10 * time.Millisecond}
		got := simulate(machine{processors: 64, processes: 8, clients: 1024}, c)
		require.Greater(t, got.logs, 0.95)
		require.Equal(t, "the lanes", got.limit(), "which wait for the log")
		require.Greater(t, got.rate, 100.0*64, "a flush is for all that wait")
	})
}

// TestSplit: costs that were put in come out.
func TestSplit(t *testing.T) {
	t.Parallel()
	want := costs{
		driver: 17 * time.Microsecond, request: 60 * time.Microsecond, send: 40 * time.Microsecond,
		execute: 90 * time.Microsecond, row: 7 * time.Microsecond, flush: time.Millisecond,
	}
	at := func(rows float64) measuredCosts {
		return measuredCosts{
			rows: rows, driver: want.driver, flush: want.flush,
			service: want.request + time.Duration(4/rows*float64(want.send)),
			server:  4*want.row + time.Duration(4/rows*float64(want.execute)),
		}
	}
	got, err := split(at(10), at(50))
	require.NoError(t, err)
	for what, of := range map[string][2]time.Duration{
		"request": {want.request, got.request}, "send": {want.send, got.send},
		"execute": {want.execute, got.execute}, "row": {want.row, got.row},
		"driver": {want.driver, got.driver}, "flush": {want.flush, got.flush},
	} {
		require.InDelta(t, of[0], of[1], 10, what)
	}
	_, err = split(at(50), at(50))
	require.ErrorContains(t, err, "no costs follow")
	_, err = split(measuredCosts{rows: 10, service: 1, server: 1}, measuredCosts{rows: 50, service: 2, server: 2})
	require.ErrorContains(t, err, "no costs follow")
}
