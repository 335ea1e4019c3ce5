package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGrown: each of what is watched makes the report red by itself when it grows, and nothing does that stays.
func TestGrown(t *testing.T) {
	t.Parallel()
	length := 10 * time.Minute
	made := func(t *testing.T, grows string) *report {
		t.Helper()
		r := &report{OK: true}
		var looks []look
		for at := 2.5; at < length.Seconds(); at += 2.5 {
			factor := func(name string) float64 {
				if name == grows {
					return 1 + at/length.Seconds() // 1.25 to 1.5 in the second quarter, 1.75 to 2 in the last
				}
				return 1
			}
			looks = append(looks, look{at: at, memory: []float64{90, 80 * factor("memory")}, stored: 4000 * factor("stored"),
				bloat: 9000 * factor("bytes")})
			r.seconds = append(r.seconds, second{at: at, durations: []float64{50 * factor("p95") * factor("p95")}})
		}
		require.NoError(t, r.grown(looks, length))
		return r
	}
	require.True(t, made(t, "").OK)
	require.Len(t, made(t, "").Growth, 5)
	for what, name := range map[string]string{
		"memory": "resident memory of process 2, MB", "stored": "responses stored", "bytes": "bytes a payment in " + tablesGrow,
		"p95": "p95 of writes, ms",
	} {
		r := made(t, what)
		require.False(t, r.OK, what)
		var broken []string
		for _, g := range r.Growth {
			if !g.OK {
				broken = append(broken, g.Name)
			}
		}
		require.Equal(t, []string{name}, broken)
		require.Contains(t, strings.Join(r.complaints(), "\n"), "GROWS: "+name)
		var page bytes.Buffer
		require.NoError(t, r.page(&page))
		require.Contains(t, page.String(), `class="no">GROWS`)
	}
	many := func(bytes float64) bool {
		r := &report{OK: true, seconds: []second{{at: 1000, durations: []float64{1}}, {at: 3000, durations: []float64{1}}}}
		var looks []look
		for at := 15.0; at < 3600; at += 15 {
			looks = append(looks, look{at: at, memory: []float64{90}, stored: 4000, bloat: bytes})
		}
		require.NoError(t, r.grown(looks, time.Hour))
		return r.OK
	}
	require.True(t, many(9000))
	require.False(t, many(18000), "twice the bytes a payment, from the beginning: nothing is vacuumed")
	require.ErrorContains(t, (&report{}).grown(nil, length), "looked at 0 times")
}

// TestWatched: who asks for a soak is told what is watched.
func TestWatched(t *testing.T) {
	t.Parallel()
	o := func(scenario, duration, apiURL string) options {
		return options{scenario: scenario, apiURL: apiURL, script: map[string]string{"DURATION": duration}}
	}
	require.Equal(t, time.Hour, o("soak", "1h", "").watched())
	require.Zero(t, o("soak", "1m", "").watched())
	require.Zero(t, o("soak", "1h", "http://elsewhere").watched())
	require.Zero(t, o("steady", "1h", "").watched())
	require.Equal(t, 450*time.Second, retention(time.Hour))
	require.Greater(t, retention(watchedFrom), lease, "the service insists")
}
