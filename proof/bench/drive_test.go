package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func matching(t *testing.T, text string) *regexp.Regexp {
	only, err := regexp.Compile(text)
	require.NoError(t, err)
	return only
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	due := arrivals(400, 10*time.Second)
	require.InDelta(t, 4000, len(due), 200)
	require.IsIncreasing(t, due)
	require.Less(t, due[len(due)-1], 10*time.Second)
	require.Equal(t, due, arrivals(400, 10*time.Second), "the same in each round")
}

// TestOpenLoop: a response that is late makes those late that wait for its connection, and the wait is counted.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	const takes = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(takes)
		w.Header().Set("Content-Length", "2")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	request := func(int, int) ([]byte, bool) { return []byte("GET / HTTP/1.1\r\nHost: bench\r\n\r\n"), true }
	l := load{addr: strings.TrimPrefix(server.URL, "http://"), connections: 1, status: http.StatusOK,
		arrivals: []time.Duration{0, time.Millisecond, 2 * time.Millisecond}}
	got, err := drive(t.Context(), l, request)
	require.NoError(t, err)
	require.Equal(t, 3, got.n)
	require.GreaterOrEqual(t, got.percentile(0), takes)
	require.GreaterOrEqual(t, got.percentile(99), 3*takes-2*time.Millisecond)

	l.status = http.StatusCreated
	_, err = drive(t.Context(), l, request)
	require.ErrorContains(t, err, "status 200, expected 201")
}

func TestLimit(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, load{length: time.Second}.limit())
	require.Equal(t, time.Minute+openLoopEnds, load{arrivals: []time.Duration{time.Second, time.Minute}}.limit(),
		"an open loop that is longer than its end is driven to its end")
}

// TestFollowed: an order is passed on when its payment had its response.
func TestFollowed(t *testing.T) {
	t.Parallel()
	next, paid := followed(func(int, int) ([]byte, bool) { return nil, true }, "ord_0001", 2)
	next(0, 1)
	next(1, 1)
	require.Empty(t, paid)
	next(1, 2)
	require.Equal(t, orderOf("ord_0001", 1, 1), <-paid)
	next(1, 1) // a new stretch continues with the orders, and its first request follows none
	require.Empty(t, paid)
	next(1, 2)
	require.Equal(t, orderOf("ord_0001", 1, 3), <-paid)
}

func TestWarming(t *testing.T) {
	t.Parallel()
	require.Equal(t, warmUp, load{length: time.Hour}.warming().length)
	due := load{arrivals: arrivals(100, time.Second)}.warming().arrivals
	require.InDelta(t, 100*warmUp.Seconds(), len(due), 60)
	require.IsNonDecreasing(t, due)
}
